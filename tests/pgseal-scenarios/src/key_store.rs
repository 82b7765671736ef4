//! Helpers of the scenarios about key stores: the shell commands of docs/key-stores.md, and a node
//! whose cluster lies under a key of a store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_testkit::{bindir, install};

use crate::backup::shell;
use crate::node::Node;
use crate::outcome::{Outcome, succeeds};
use crate::pages::blocks;
use crate::programs::programs;
use crate::sound::assert_hidden;

/// The marker in every row of the table that [`StoreNode::new_cluster`] makes.
pub const MARKER: &str = "canary-store-Kj4w";

/// The library of SoftHSM.
pub const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// The shell commands of docs/key-stores.md, from the heading `from` up to the heading `to`.
///
/// # Panics
/// When the page has no such headings.
#[must_use]
pub fn commands(from: &str, to: &str) -> Vec<String> {
    blocks(include_str!("../../../docs/key-stores.md"), from, to)
}

/// A node with a plugin where `pgseal` looks for it.
#[derive(Debug)]
pub struct StoreNode {
    /// The node. Its cluster is under a key file until [`StoreNode::new_cluster`].
    pub node: Node,
    /// The environment of scripts.
    env: Vec<(String, String)>,
}

impl StoreNode {
    /// A node with the plugin for this name. Nothing is waited for (`PGSEAL_PROVIDER_WAIT`).
    ///
    /// # Panics
    /// When the plugin is not built.
    #[must_use]
    pub fn new(name: &str) -> StoreNode {
        // The page's initdb makes WAL segments of 16 MB.
        let node = Node::sealed(&[("min_wal_size", "80MB"), ("max_wal_size", "160MB")]);
        let program = node.pgseal_program();
        let bin = program.parent().expect("a directory");
        let bindir = bindir().expect("PostgreSQL");
        let path = format!("{}:{}:/usr/local/bin:/usr/bin:/bin", bin.display(), bindir.display());
        let env =
            vec![("PATH".to_owned(), path), ("HOME".to_owned(), node.home().display().to_string())];
        let mut store = StoreNode { node, env };
        let clusters = store.node.make_dir("clusters.d").display().to_string();
        store.set_env("PGSEAL_CLUSTERS_DIR", &clusters);
        store.set_env("PGSEAL_PROVIDER_WAIT", "0");
        store.add_plugin(name);
        store
    }

    /// Puts the plugin for this name where `pgseal` looks for it.
    ///
    /// # Panics
    /// When the plugin is not built.
    pub fn add_plugin(&self, name: &str) {
        let program = self.node.pgseal_program();
        let prefix = program.ancestors().nth(2).expect("a prefix");
        let providers = prefix.join("lib/pgseal/providers");
        fs::create_dir_all(&providers).expect("the directory of plugins");
        let file = format!("pgseal-provider-{name}");
        let plugin = programs().pgseal.with_file_name(&file);
        assert!(plugin.is_file(), "{}: run `make build` first", plugin.display());
        install(&plugin, &providers.join(&file)).expect("the plugin");
    }

    /// Makes a directory for the tokens of SoftHSM, and says so to its library.
    ///
    /// # Panics
    /// When SoftHSM is not installed.
    pub fn add_tokens(&mut self) -> PathBuf {
        for needed in [MODULE, "/usr/bin/pkcs11-tool", "/usr/bin/softhsm2-util"] {
            assert!(Path::new(needed).exists(), "{needed}: run scripts/setup.sh test");
        }
        let tokens = self.node.make_dir("tokens");
        let conf = self.node.home().join("softhsm.conf");
        let text = format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display());
        fs::write(&conf, text).expect("the configuration of SoftHSM");
        self.set_env("SOFTHSM2_CONF", &conf.display().to_string());
        tokens
    }

    /// Takes all tokens away: their directory is empty.
    ///
    /// # Panics
    /// When they are away already.
    pub fn tokens_away(&self) {
        let home = self.node.home();
        fs::rename(home.join("tokens"), home.join("away")).expect("the token goes");
        let _ = self.node.make_dir("tokens");
    }

    /// Brings the tokens back.
    ///
    /// # Panics
    /// When they are not away.
    pub fn tokens_back(&self) {
        let home = self.node.home();
        fs::remove_dir_all(home.join("tokens")).expect("the empty place goes");
        fs::rename(home.join("away"), home.join("tokens")).expect("the token is back");
    }

    /// Adds a variable to the environment of scripts, and of programs under the library.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
        self.node.set_env(name, value);
    }

    /// Runs a script as the server's user, in the environment that the page supposes. `DIR` after a
    /// space is the data directory.
    ///
    /// # Panics
    /// When there is no bash.
    #[must_use]
    pub fn script(&self, text: &str) -> Outcome {
        let text = text.replace(" DIR", &format!(" '{}'", self.node.data().display()));
        let mut command: Command = shell(&self.node, &text, &[]);
        command.envs(self.env.iter().cloned());
        command.output().expect("bash runs").into()
    }

    /// Replaces the cluster by one that `script` makes under the store, and leaves it running with
    /// a table of 1000 rows.
    ///
    /// # Panics
    /// With what the script said, when it fails.
    #[track_caller]
    pub fn new_cluster(&mut self, script: &str) {
        let data = self.node.data().to_owned();
        let config = fs::read(data.join("postgresql.conf")).expect("the configuration");
        fs::remove_dir_all(&data).expect("the first cluster goes");
        succeeds(&self.script(script));
        fs::write(data.join("postgresql.conf"), config).expect("the configuration");
        self.node.start();
        self.node.sql(&format!(
            "create table t (id int primary key, v text);;
             insert into t select g, '{MARKER}' || g from generate_series(1, 1000) g;; checkpoint"
        ));
    }

    /// `pgseal key check`.
    #[must_use]
    pub fn check(&self) -> Outcome {
        self.node.pgseal(&["key", "check", &self.node.data().display().to_string()])
    }

    /// Asserts that neither a start nor `pgseal key check` finds the key, and that both say why.
    ///
    /// # Panics
    /// With what they said.
    #[track_caller]
    pub fn refuses(&mut self, code: i32, words: &str) {
        let log = self.node.try_start().expect_err("a start without its key");
        assert!(log.contains(words), "{log}");
        let check = self.check();
        assert_eq!(check.code, code, "{}", check.text);
        assert!(check.text.contains(words), "{}", check.text);
    }

    /// Asserts that the server starts and has its rows, that no file shows a row, and that the log
    /// does not show `credential`. Stops the server.
    ///
    /// # Panics
    /// With what is wrong.
    #[track_caller]
    pub fn works(&mut self, credential: Option<&str>) {
        succeeds(&self.check());
        self.node.start();
        let count = format!("select count(*) from t where v like '{MARKER}%'");
        assert_eq!(self.node.sql(&count), "1000");
        self.node.sql("update t set v = v where id < 10;; checkpoint");
        self.node.stop();
        let log = self.node.log();
        assert!(!credential.is_some_and(|text| log.contains(text)), "the log shows a credential");
        assert_hidden(&[self.node.data()], MARKER);
    }
}
