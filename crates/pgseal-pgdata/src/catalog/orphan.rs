//! Whether a file belongs to no relation.
//!
//! A crash in `CREATE TABLE`, `CREATE INDEX`, `CREATE DATABASE` and the like leaves files that no
//! committed transaction has entered into the catalogs, and nobody removes them.

use super::{Catalogs, Path, PlainFiles, Row, Tuples, number_of, place_of, u32_at};
use super::{MAX_PAGES, PAGE_LEN, PG_CLASS, PG_DATABASE};
use crate::checkpoint::was_running;
use crate::listed::catalog_version;

/// Statuses in a page, and pages in a segment, of `pg_xact` (`access/transam/clog.c`,
/// `access/slru.h`).
const XACTS_PER_PAGE: u32 = 32_768;
const PAGES_PER_SEGMENT: u32 = 32;
/// The status of a transaction that has not ended, and of one that was aborted (`access/clog.h`).
const IN_PROGRESS: u8 = 0;
const ABORTED: u8 = 2;
/// `datconnlimit` in a row of `pg_database` (`catalog/pg_database.h`), and its value for a database
/// that is being dropped (`DATCONNLIMIT_INVALID_DB`).
const CONNECTION_LIMIT: usize = 80;
const INVALID_DATABASE: u32 = -2_i32 as u32;

/// Files that also tell when a read went wrong.
pub trait WatchedFiles: PlainFiles {
    /// Whether a read since the last call failed, or met a page that is damaged.
    fn has_failed(&mut self) -> bool;
}

/// Whether the catalogs on the disk show that the file at `rel`, a path relative to the root of a
/// data directory, belongs to no relation that a committed transaction made. `false` if a catalog
/// cannot be read as a whole, for every file that is not one of a relation, and for what a
/// transaction made that was running at the last checkpoint. `control`: the content of
/// `global/pg_control`.
///
/// The catalogs on the disk are those of the last checkpoint or newer, so `true` is also the answer
/// for a relation that was made after it; the WAL since then has all its pages.
pub fn is_orphan(files: &mut impl WatchedFiles, rel: &[u8], control: &[u8]) -> bool {
    let Some((directory, number)) = place_of(rel) else { return false };
    let Some(catalog_version) = catalog_version(control) else { return false };
    let mut catalogs = Catalogs { files, home: Path::new(), catalog_version, page: [0; PAGE_LEN] };
    catalogs.is_orphan(directory, number, control).unwrap_or(false)
}

impl<F: WatchedFiles> Catalogs<'_, F> {
    /// As [`is_orphan`]; `None`: not known.
    fn is_orphan(&mut self, directory: &[u8], number: u32, control: &[u8]) -> Option<bool> {
        if directory == b"global" {
            // The map lists all relations here.
            self.mapped_path_in(Path::joined(&[directory])?, PG_DATABASE)?;
            return Some(self.oid_of_mapped(directory, number).is_none());
        }
        let database = number_of(directory.rsplit(|byte| *byte == b'/').next()?)?;
        let databases = self.mapped_path_in(Path::joined(&[b"global"])?, PG_DATABASE)?;
        let is_listed = self.lists(&databases, control, &|row, data| {
            row.oid == database && u32_at(data, CONNECTION_LIMIT) != Some(INVALID_DATABASE)
        })?;
        if !is_listed {
            return Some(true);
        }
        self.enter(directory)?;
        if self.oid_of_mapped(directory, number).is_some() {
            return Some(false);
        }
        let classes = self.mapped_path(PG_CLASS)?;
        Some(!self.lists(&classes, control, &|row, _| row.file_number == number)?)
    }

    /// Whether a catalog has such a row that is committed, or may yet be. `None`: the catalog
    /// cannot be read as a whole.
    fn lists(
        &mut self,
        path: &Path,
        control: &[u8],
        is_wanted: &dyn Fn(&Row, &[u8]) -> bool,
    ) -> Option<bool> {
        // What went wrong before was another file.
        self.files.has_failed();
        for page in 0..MAX_PAGES {
            let off = page * PAGE_LEN as u64;
            let got = self.files.read(path.as_bytes(), off, &mut self.page);
            if self.files.has_failed() {
                return None;
            }
            if got < PAGE_LEN {
                return (page > 0).then_some(false);
            }
            for tuple in Tuples::of(&self.page) {
                let row = Row::of(tuple.data, self.catalog_version);
                if row.is_some_and(|row| is_wanted(&row, tuple.data))
                    && tuple.made_by.is_none_or(|xid| may_have_committed(self.files, control, xid))
                {
                    return Some(true);
                }
            }
        }
        None
    }
}

/// Whether `pg_xact` says that a transaction committed, or says nothing of it, or the transaction
/// was running at the last checkpoint.
fn may_have_committed(files: &mut impl WatchedFiles, control: &[u8], xid: u32) -> bool {
    let page = xid / XACTS_PER_PAGE;
    let Some(path) = segment(page / PAGES_PER_SEGMENT) else { return true };
    let off = page % PAGES_PER_SEGMENT * PAGE_LEN as u32 + xid % XACTS_PER_PAGE / 4;
    let mut statuses = [0; 1];
    let got = files.read(path.as_bytes(), off.into(), &mut statuses);
    if files.has_failed() || got == 0 {
        return true;
    }
    match statuses[0] >> (xid % 4 * 2) & 3 {
        ABORTED => false,
        IN_PROGRESS => was_running(control, xid),
        _ => true,
    }
}

/// The path of a segment of `pg_xact`: four hexadecimal digits.
fn segment(number: u32) -> Option<Path> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |shift: u32| DIGITS.get((number >> shift & 15) as usize).copied();
    let name = [digit(12)?, digit(8)?, digit(4)?, digit(0)?];
    Path::joined(&[b"pg_xact/", &name])
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::tests::{Files, LIVE, V15, V18, cluster, page, row};
    use super::*;

    /// Bits of a row whose page does not show how the transaction that made it has ended.
    const UNKNOWN: u16 = 0x0800;
    /// What [`page`] says who made a row.
    const MADE_BY: u32 = 1;

    impl WatchedFiles for Files {
        fn has_failed(&mut self) -> bool {
            core::mem::take(&mut self.failed)
        }
    }

    /// The cluster in which the transaction that made further rows has this status in `pg_xact`.
    fn with_status(version: u32, status: u8) -> Files {
        let mut files = cluster(version);
        let more = page(&[(row(17000, "late", 2200, 17000, b'r', version), UNKNOWN)]);
        files.all.get_mut("base/5/900").unwrap().extend(more);
        files.all.insert("pg_xact/0000".into(), std::vec![status << (2 * MADE_BY), 0]);
        files
    }

    /// `pg_control` of this catalog version; `oldest`: the oldest transaction that was running.
    fn control(version: u32, oldest: u32) -> [u8; 256] {
        let mut control = [0; 256];
        for (at, value) in [(8, 1300), (12, version), (64, 10), (120, oldest)] {
            control[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        control
    }

    #[test]
    fn what_no_committed_transaction_made_is_an_orphan() {
        for (version, status, late) in
            [(V15, 0, true), (V18, 1, false), (V15, 2, true), (V18, 3, false)]
        {
            let mut files = with_status(version, status);
            for (file, wanted) in [
                ("base/5/16384", false),
                ("base/5/16384_fsm.1", false),
                ("base/5/900", false),
                ("base/5/17000", late),
                ("base/5/17000.2", late),
                ("base/5/16999", true),
                // There is no such database.
                ("base/7/16384", true),
                ("pg_tblspc/17000/PG_15_202209061/5/16384", false),
                ("pg_tblspc/17000/PG_15_202209061/5/16999", true),
                ("global/1260", false),
                ("global/1299", true),
                ("base/5/t3_16384", false),
                ("base/5/pg_filenode.map", false),
                ("pg_xact/0000", false),
            ] {
                let control = control(version, 0);
                assert_eq!(is_orphan(&mut files, file.as_bytes(), &control), wanted, "{file}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_makes_no_orphan() {
        for lost in ["global/1262", "base/5/900", "base/5/pg_filenode.map"] {
            let mut files = with_status(V15, 0);
            files.all.remove(lost);
            assert!(!is_orphan(&mut files, b"base/5/16999", &control(V15, 0)), "{lost}");
            let mut files = with_status(V15, 0);
            files.all.get_mut(lost).unwrap().clear();
            assert!(!is_orphan(&mut files, b"base/5/16999", &control(V15, 0)), "{lost}");
        }
        // The transaction was running at the checkpoint: it may have committed since.
        let mut files = with_status(V15, 0);
        assert!(!is_orphan(&mut files, b"base/5/17000", &control(V15, MADE_BY)));
        assert!(is_orphan(&mut files, b"base/5/17000", &control(V15, MADE_BY + 1)));
        // Without the status of its transaction a relation may be there.
        let mut files = with_status(V15, 0);
        files.all.remove("pg_xact/0000");
        assert!(!is_orphan(&mut files, b"base/5/17000", &control(V15, 0)));
        assert!(is_orphan(&mut files, b"base/5/16999", &control(V15, 0)));
    }

    #[test]
    fn a_database_that_is_being_dropped_has_orphans_only() {
        let mut files = cluster(V15);
        let mut dropped = row(5, "app", 0, 0, 0, V15);
        dropped[CONNECTION_LIMIT..CONNECTION_LIMIT + 4]
            .copy_from_slice(&INVALID_DATABASE.to_le_bytes());
        files.all.insert("global/1262".into(), page(&[(dropped, LIVE)]));
        assert!(is_orphan(&mut files, b"base/5/16384", &control(V15, 0)));
    }
}
