//! The checks at the end of scenarios: tables and indexes are undamaged, all blocks authenticate,
//! and no file shows the content of a row.

use std::fs;
use std::path::Path;

use pgseal_testkit::canary;

use crate::node::Node;

/// The table `t` in one line: the number of its rows, and a hash over them.
pub const SUM: &str = "select count(*), md5(string_agg(md5(id || v), '' order by id)) from t";

/// Asserts that no file in these directories (or none of these files) contains the marker in any
/// encoding.
///
/// # Panics
/// With the places of the marker, or when there are no files to search.
#[track_caller]
pub fn assert_hidden<P: AsRef<Path>>(places: &[P], marker: &str) {
    let hits = canary::scan(places, &[marker]).expect("the files can be read");
    assert!(hits.is_empty(), "{hits:?}");
    for place in places.iter().map(AsRef::as_ref) {
        let about = fs::metadata(place).expect("a directory or a file");
        let empty = if about.is_dir() {
            fs::read_dir(place).expect("a directory").next().is_none()
        } else {
            about.len() == 0
        };
        assert!(!empty, "{}: empty", place.display());
    }
}

/// Asserts that a file or directory contains the marker: the copy is plain, as requested, and the
/// search can find the marker.
///
/// # Panics
/// When the marker is not found.
#[track_caller]
pub fn assert_shown(place: &Path, marker: &str) {
    let hits = canary::scan(&[place], &[marker]).expect("the files can be read");
    assert!(!hits.is_empty(), "{}: sealed, and should be plain", place.display());
}

impl Node {
    /// `pg_amcheck --heapallindexed` of every database that has the extension amcheck.
    ///
    /// # Panics
    /// With the damage.
    #[track_caller]
    pub fn amcheck(&self) {
        let mut amcheck = self.bare("pg_amcheck");
        amcheck.args(["--all", "--heapallindexed", "--no-strict-names", "--jobs=2"]);
        let said = self.succeed(&mut amcheck);
        assert!(!said.contains("could not find"), "{said}");
    }

    /// `pg_amcheck` like [`Node::amcheck`], but of every database (the extension is created there),
    /// and with a check that parent and child pages of each btree agree. Not on a standby.
    ///
    /// # Panics
    /// With the damage.
    #[track_caller]
    pub fn amcheck_with_parents(&self) {
        let mut amcheck = self.bare("pg_amcheck");
        amcheck.args(["--all", "--install-missing", "--heapallindexed", "--parent-check"]);
        self.succeed(amcheck.arg("--jobs=2"));
    }

    /// Asserts that every block of a directory authenticates.
    ///
    /// # Panics
    /// With what `pgseal verify` found.
    #[track_caller]
    pub fn assert_authentic_at(&self, dir: &Path) {
        let verify = self.verify_dir(dir);
        assert_eq!(verify.code, 0, "{}", verify.text);
        assert!(verify.text.contains("Sound."), "{}", verify.text);
    }

    /// Asserts that every block of the data directory authenticates.
    ///
    /// # Panics
    /// With what `pgseal verify` found.
    #[track_caller]
    pub fn assert_authentic(&self) {
        self.assert_authentic_at(self.data());
    }

    /// Asserts that every block of a directory authenticates and that no file in it contains the
    /// marker.
    ///
    /// # Panics
    /// With what is wrong.
    #[track_caller]
    pub fn assert_sound_at(&self, dir: &Path, marker: &str) {
        self.assert_authentic_at(dir);
        assert_hidden(&[dir], marker);
    }

    /// Asserts that every block of the data directory authenticates and that no file contains the
    /// marker.
    ///
    /// # Panics
    /// With what is wrong.
    #[track_caller]
    pub fn assert_sound(&self, marker: &str) {
        self.assert_sound_at(self.data(), marker);
    }

    /// Ends a scenario for this node: the running server's tables and indexes are undamaged; after
    /// its shutdown every block authenticates and no file contains the marker.
    ///
    /// # Panics
    /// When one of these checks fails.
    #[track_caller]
    pub fn stop_sound(&mut self, marker: &str) {
        self.amcheck();
        self.stop();
        self.assert_sound(marker);
    }
}
