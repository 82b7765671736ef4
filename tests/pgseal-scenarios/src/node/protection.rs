//! A node with a locked configuration, an anchor, and a manifest in force.

use super::Node;
use crate::backup::text;

impl Node {
    fn pgseal_done(&self, arguments: &[&str]) {
        let dir = text(self.data());
        let outcome = self.pgseal(&[arguments, &[dir.as_str()]].concat());
        assert_eq!(outcome.code, 0, "{arguments:?}: {}", outcome.text);
    }

    /// `pgseal config lock`; from now on the environment demands a locked directory.
    ///
    /// # Panics
    /// With what pgseal said.
    #[track_caller]
    pub fn lock_configuration(&mut self) {
        self.pgseal_done(&["config", "lock"]);
        self.set_env("PGSEAL_CONFIG", "locked");
    }

    /// `pgseal config accept`.
    ///
    /// # Panics
    /// With what pgseal said.
    #[track_caller]
    pub fn accept_configuration(&self) {
        self.pgseal_done(&["config", "accept", "--yes"]);
    }

    /// Asserts that the configuration is locked and as recorded.
    ///
    /// # Panics
    /// With what pgseal said.
    #[track_caller]
    pub fn assert_locked(&self) {
        let status = self.pgseal(&["config", "status", &text(self.data())]);
        let is_so = status.code == 0 && status.text.contains("Locked, and as recorded");
        assert!(is_so, "{}", status.text);
    }

    /// Gives the server an anchor in a directory of this name beside the data directory, and
    /// accepts the data directory as it is.
    ///
    /// # Panics
    /// With what pgseal said.
    #[track_caller]
    pub fn use_anchor(&mut self, name: &str) {
        let mut dir = self.home().join(name);
        if !dir.exists() {
            dir = self.make_dir(name);
        }
        self.set_env("PGSEAL_ANCHOR", &format!("file:{}", dir.display()));
        self.accept_anchor();
    }

    /// `pgseal anchor accept`.
    ///
    /// # Panics
    /// With what pgseal said.
    #[track_caller]
    pub fn accept_anchor(&self) {
        self.pgseal_done(&["anchor", "accept"]);
    }

    /// Asserts that the server does not start, and says this.
    ///
    /// # Panics
    /// When it starts, or says something else.
    #[track_caller]
    pub fn assert_refused(&mut self, words: &str) {
        let log = self.try_start().expect_err("a start that must be refused");
        assert!(log.contains(words), "no \"{words}\" in:\n{log}");
    }

    /// Stops and starts the server. The manifest of the shutdown must fit, and be what the start
    /// compares with.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn restart_with_manifest(&mut self) {
        self.stop();
        self.pgseal_done(&["manifest", "check"]);
        self.start();
        let log = self.log();
        for words in ["there is no manifest", "while the server was stopped"] {
            assert!(!log.contains(words), "nothing was compared:\n{log}");
        }
    }
}
