//! Standbys: creating them, following a primary, and comparing contents with the primary.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::node::Node;
use crate::outcome::Outcome;
use crate::sound::assert_shown;

/// Which keys seal a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A copy of the primary's keyring.
    Same,
    /// A new key and keyring, and this suite.
    Own(&'static str),
    /// No keys: the copy is plain.
    Unsealed,
}

impl Node {
    /// Makes a standby of this running server with `pg_basebackup` and a physical slot called
    /// `name`; the standby is not started. The programs of `base` make the standby, below the home
    /// of `base`: usually this server itself, or a sealed cluster when a plain server gets a sealed
    /// standby.
    ///
    /// # Panics
    /// With what `pg_basebackup` said.
    #[must_use]
    pub fn standby(&self, base: &Node, name: &str, keys: Keys) -> Node {
        let target = base.home().join(name);
        let mut backup = base.command("pg_basebackup");
        self.connected(&mut backup);
        match keys {
            Keys::Same => {
                backup.env("PGSEAL_KEYRING_FROM", self.file("pgseal/keyring"));
            }
            Keys::Own(suite) => {
                let key = base.new_key(&format!("{name}.key"));
                backup.env("PGSEAL_PROVIDER", format!("file:{}", key.display()));
                backup.env("PGSEAL_SUITE", suite);
            }
            Keys::Unsealed => {
                backup.env("PGSEAL_UNSEALED_COPY", "yes");
            }
        }
        backup.args(["-X", "stream", "-c", "fast", "--no-sync", "-R", "-C", "-S", name, "-D"]);
        base.succeed(backup.arg(&target));
        let standby = Node::at(base, &target);
        standby.configure(&format!(
            "unix_socket_directories = '{}'\ncluster_name = '{name}'\nhot_standby = on\n\
             wal_retrieve_retry_interval = 100ms",
            base.home().display()
        ));
        standby
    }

    /// A new key file, `pgseal key new`.
    ///
    /// # Panics
    /// With what pgseal said.
    #[must_use]
    pub fn new_key(&self, name: &str) -> PathBuf {
        let path = self.home().join(name);
        let made = self.pgseal(&["key", "new", "-o", &path.display().to_string()]);
        assert_eq!(made.code, 0, "{}", made.text);
        path
    }

    /// The same, as the provider `file:PATH`.
    ///
    /// # Panics
    /// With what the command said.
    #[must_use]
    pub fn new_key_file(&self, name: &str) -> String {
        format!("file:{}", self.new_key(name).display())
    }

    /// Where clients find this server, as `primary_conninfo` and `--source-server` take it.
    #[must_use]
    pub fn conninfo(&self) -> String {
        format!(
            "host={} port={} user=postgres dbname=postgres",
            self.sockets().display(),
            self.port()
        )
    }

    /// Makes this running standby follow `upstream` through the slot `slot` of `upstream`.
    pub fn follow(&self, upstream: &Node, slot: &str) {
        upstream.sql(&format!(
            "select pg_create_physical_replication_slot('{slot}') where not exists \
             (select from pg_replication_slots where slot_name = '{slot}')"
        ));
        let info = upstream.conninfo();
        self.sql(&format!(
            "alter system set primary_conninfo = '{info}';;
             alter system set primary_slot_name = '{slot}';; select pg_reload_conf()"
        ));
    }

    /// Waits until this standby has replayed all that `upstream` has written or replayed.
    pub fn catch_up(&self, upstream: &Node) {
        let lsn = upstream.sql(
            "select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() \
             else pg_current_wal_flush_lsn() end",
        );
        self.wait_until(&format!("select pg_last_wal_replay_lsn() >= '{lsn}'"));
    }

    /// Promotes this standby and waits until it takes writes.
    pub fn promote(&self) {
        self.sql("select pg_promote()");
        self.wait_until("select not pg_is_in_recovery()");
    }

    /// For each table of every database, without tables that a crash empties: the number of rows
    /// and a hash of them. Sequences are left out, since their WAL runs ahead of their values.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let databases = self.sql("select datname from pg_database where datallowconn");
        for database in databases.lines() {
            let relations = self.sql_in(
                database,
                "select c.oid::regclass from pg_class c \
                 where c.relkind in ('r', 'm') and c.relpersistence = 'p' \
                 and c.relnamespace <> 'information_schema'::regnamespace \
                 and (c.oid >= 16384 or c.relname in ('pg_class', 'pg_attribute', 'pg_proc'))",
            );
            for name in relations.lines() {
                let query = format!(
                    "select count(*), sum(hashtextextended(t::text, 7)::numeric) from {name} t"
                );
                all.insert(format!("{database}: {name}"), self.sql_in(database, &query));
            }
        }
        assert!(all.len() >= 6, "too few tables: {all:?}");
        all
    }

    /// Asserts that the files of a plain node contain the marker, which also proves that the search
    /// works.
    ///
    /// # Panics
    /// When the marker is not found.
    #[track_caller]
    pub fn assert_shows(&self, marker: &str) {
        assert_shown(self.data(), marker);
    }

    /// Rewinds this stopped node with `pg_rewind` and these options, as `postgres` under the
    /// library. `pg_rewind` copies the configuration of the source; this restores the node's own
    /// configuration afterwards.
    ///
    /// # Panics
    /// When the configuration cannot be saved or restored.
    pub fn rewind(&self, options: &[&str]) -> Outcome {
        let conf = self.file("postgresql.conf");
        let kept = fs::read(&conf).expect("postgresql.conf is there");
        let mut rewind = self.command("pg_rewind");
        rewind.arg("--target-pgdata").arg(self.data()).args(options);
        let outcome = rewind.output().expect("pg_rewind runs").into();
        fs::write(&conf, kept).expect("postgresql.conf can be written");
        outcome
    }

    /// Makes this stopped node a standby of `upstream`.
    ///
    /// # Panics
    /// When its configuration cannot be written.
    pub fn become_standby_of(&self, upstream: &Node, slot: &str) {
        let path = self.file("postgresql.auto.conf");
        let auto = fs::read_to_string(&path).expect("postgresql.auto.conf is there");
        let info = upstream.conninfo();
        let lines = format!("primary_conninfo = '{info}'\nprimary_slot_name = '{slot}'\n");
        fs::write(&path, auto + &lines).expect("postgresql.auto.conf can be written");
        upstream.sql(&format!(
            "select pg_create_physical_replication_slot('{slot}') where not exists \
             (select from pg_replication_slots where slot_name = '{slot}')"
        ));
        self.succeed(&mut self.touch("standby.signal"));
    }
}

/// Asserts that all nodes hold the same as the first.
///
/// # Panics
/// With the tables that differ.
#[track_caller]
pub fn assert_same_contents(first: &Node, others: &[&Node]) {
    let want = first.contents();
    for other in others {
        let have = other.contents();
        let names: Vec<&String> = want.keys().chain(have.keys()).collect();
        let differ: Vec<_> = names
            .iter()
            .filter(|name| want.get(**name) != have.get(**name))
            .map(|name| (name, want.get(*name), have.get(*name)))
            .collect();
        assert!(differ.is_empty(), "{}: {differ:#?}", other.data().display());
    }
}
