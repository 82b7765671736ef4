//! Switchover, and the way back with `pg_rewind`, between nodes with different keys and suites.
//!
//! Both sides write after the timelines diverge. After the rewind, the changes of the old primary
//! must be gone, and its files must have the content of the new primary, sealed with its own keys.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pgseal_scenarios::files::{changes, fingerprint, names_in};
use pgseal_scenarios::{Keys, Ledger, Node, Outcome, assert_hidden, assert_same_contents};
use pgseal_testkit::{Cluster, Sealing};

const MARKER: &str = "canary-rewind-Zq7x";
const CLIENTS: usize = 2;

/// How `pg_rewind` gets the files of the new primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// From the running server.
    Server,
    /// From the directory of the stopped one.
    Directory,
}

/// How the old primary was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Shutdown,
    Kill9,
}

struct Pair {
    primary: Node,
    standby: Node,
    round: u32,
    /// Whether the old primary removes its archived WAL before it is stopped.
    forget_wal: bool,
    /// Whether there is a table of several segments.
    big: bool,
}

impl Pair {
    /// A primary of the suite, and a standby with keys of its own, another suite and a slot.
    fn new(suite: &str, other: &'static str, settings: &[(&str, &str)]) -> Pair {
        let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
        let builder = Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs());
        let mut all = vec![("wal_keep_size", "256MB"), ("wal_log_hints", "on")];
        all.extend(settings);
        let mut primary = Node::create(builder, &all);
        primary.start();
        fill(&primary);
        let mut standby = primary.standby(&primary, "standby", Keys::Own(other));
        standby.start();
        Pair { primary, standby, round: 0, forget_wal: false, big: false }
    }

    /// Promotes the standby while the primary continues; both write. Stops the old primary and
    /// rewinds it with `rewind`. It becomes a standby of the new primary, with the same content.
    fn fail_over(&mut self, end: End, source: Source, rewind: impl Fn(&Node, &[&str]) -> Outcome) {
        self.round += 1;
        let n = self.round;
        let Pair { primary: old, standby: new, .. } = self;
        new.catch_up(old);
        new.promote();
        // pg_rewind looks for the source's timeline in its control file.
        new.sql("checkpoint");
        diverge(old, n);
        go_on(new, n);
        if self.big {
            diverge_big(old);
            cut_big(new);
        }
        if self.forget_wal {
            old.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots");
            for _ in 0..3 {
                old.sql("select pg_switch_wal()");
                old.wait_until(
                    "select count(*) = 0 from pg_ls_archive_statusdir() where name like '%.ready'",
                );
                old.sql("checkpoint");
            }
        }
        match end {
            End::Shutdown => old.stop(),
            End::Kill9 => old.kill9(),
        }
        let info = format!("--source-server={}", new.conninfo());
        let outcome = match source {
            Source::Server => rewind(old, &[&info]),
            Source::Directory => {
                new.stop();
                let dir = format!("--source-pgdata={}", new.data().display());
                let outcome = rewind(old, &[&dir]);
                new.start();
                outcome
            }
        };
        assert_eq!(outcome.code, 0, "{end:?}, {source:?}: {}", outcome.text);
        assert!(outcome.text.contains("Done!"), "{}", outcome.text);
        old.become_standby_of(new, &format!("round{n}"));
        old.start();
        old.catch_up(new);
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.compare();
    }

    /// Checks that the dumps of both nodes are equal, and contain nothing that was undone.
    fn compare(&self) {
        let Pair { primary, standby, .. } = self;
        standby.catch_up(primary);
        assert_same_contents(primary, &[standby]);
        assert_eq!(dump(primary), dump(standby), "the dumps differ");
        for node in [primary, standby] {
            node.amcheck();
            for table in ["t", "kept"] {
                let lies = format!("select count(*) from pg_check_visible('{table}')");
                assert_eq!(node.sql(&lies), "0", "visibility map of {table}");
            }
        }
    }

    /// An ordinary switchover, in which nothing has to be undone.
    fn switch_over(&mut self) {
        self.round += 1;
        let Pair { primary: old, standby: new, .. } = self;
        old.stop();
        new.promote();
        old.become_standby_of(new, &format!("round{}", self.round));
        old.start();
        old.catch_up(new);
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.compare();
    }

    /// After the last comparison: every block of both authenticates and none shows the marker.
    fn end(mut self) {
        self.standby.stop();
        self.primary.stop();
        self.standby.assert_sound(MARKER);
        self.primary.assert_sound(MARKER);
    }
}

/// A hash of the output of `pg_dumpall`, which must not contain undone changes. Lines that differ
/// from dump to dump are left out: from 15.14 on, a random key for psql's \restrict.
fn dump(node: &Node) -> (usize, u64) {
    let mut command = node.bare("pg_dumpall");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("pg_dumpall runs");
    let mut hasher = DefaultHasher::new();
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        assert!(!line.contains("undone"), "something undone is still there: {line:.80}");
        if !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict") {
            line.hash(&mut hasher);
            count += 1;
        }
    }
    assert!(child.wait().expect("our own child").success(), "pg_dumpall");
    (count, hasher.finish())
}

/// The changes of the old primary that will be undone.
fn diverge(node: &Node, n: u32) {
    node.sql(&format!(
        "create table undone_{n} as select g, '{MARKER} undone' v from generate_series(1, 20000) g;;
         create index on undone_{n} (v);;
         drop table doomed;; truncate kept;; insert into kept select g, 'undone' \
         from generate_series(1, 30000) g;;
         update t set v = v || ' undone' where id % 3 = 0;;
         delete from t where id > 4000;; vacuum (analyze) t;;
         create unlogged table undone_too_{n} as select 1 as x;;
         create database undone_{n};; checkpoint;;
         insert into t values (-{n}, 'undone');; select pg_switch_wal()"
    ));
}

/// The changes of the new primary in the meantime.
fn go_on(node: &Node, n: u32) {
    node.sql(&format!(
        "create table new_{n} as select g, '{MARKER}' v from generate_series(1, 10000) g;;
         create index on new_{n} (g);;
         insert into t select 100000 * {n} + g, '{MARKER} later' from generate_series(1, 2000) g;;
         update t set v = v || '.' where id % 7 = 0;; delete from kept where g > 4000;;
         vacuum (analyze) t;; vacuum kept;;
         insert into doomed values ({n}, '{MARKER}');; checkpoint;;
         update t set v = v || '!' where id = 77"
    ));
}

fn fill(node: &Node) {
    node.sql(&format!(
        "create extension amcheck;; create extension pg_visibility;;
         create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, 5000) g;; vacuum (analyze) t;;
         create table doomed as select g, '{MARKER}' v from generate_series(1, 5000) g;;
         create table kept as select g, '{MARKER}' v from generate_series(1, 5000) g;;
         create index on kept (g);; vacuum kept"
    ));
}

/// A table of several segments grows by one on the side whose changes are undone.
fn diverge_big(node: &Node) {
    node.sql(
        "update big set v = 'undone' || v where id % 1000 < 3;;
         insert into big select g, 'undone' || repeat(md5(g::text), 60) \
         from generate_series(1000000, 1550000) g;; vacuum big;; checkpoint",
    );
}

/// On the other side the table is truncated, across a segment boundary if there is one.
fn cut_big(node: &Node) {
    node.sql(
        "delete from big where id > (select max(id) * 0.8 from big);; vacuum (analyze) big;;
         update big set v = v || '.' where id % 5000 = 7;; checkpoint",
    );
}

fn plainly(node: &Node, options: &[&str]) -> Outcome {
    node.rewind(options)
}

#[test]
fn pg_rewind_in_both_directions_between_nodes_with_other_keys_and_suites() {
    let mut pair = Pair::new("aes-256-gcm", "aes-256-xts", &[]);
    pair.fail_over(End::Kill9, Source::Server, plainly);
    pair.fail_over(End::Shutdown, Source::Directory, plainly);
    pair.end();
}

/// All ways to stop the old primary and to get the files, with switchovers in between, and the
/// other kinds of suites.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_rewind_round_after_round_with_switchovers_between() {
    for (suite, other) in [("aes-256-gcm", "aes-128-gcm"), ("aes-256-ctr", "aes-128-xts")] {
        let mut pair = Pair::new(suite, other, &[]);
        let mut ledger = Ledger::create(&pair.primary, CLIENTS);
        for (end, source) in [
            (End::Shutdown, Source::Server),
            (End::Kill9, Source::Directory),
            (End::Kill9, Source::Server),
            (End::Shutdown, Source::Directory),
        ] {
            ledger.start(&pair.primary);
            ledger.write_for(std::time::Duration::from_millis(500));
            ledger.join();
            pair.fail_over(end, source, plainly);
            ledger.check(&pair.primary);
            pair.switch_over();
            ledger.check(&pair.primary);
            ledger.check(&pair.standby);
        }
        pair.end();
    }
}

/// The WAL since the last common checkpoint is left only in the archive, sealed by the old primary.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_rewind_with_restore_target_wal() {
    let mut pair = Pair::new("aes-256-gcm", "aes-256-xts", &[("archive_mode", "on")]);
    let archive = pair.primary.make_dir("archive");
    let archive = archive.display().to_string();
    // Each node needs the other's keyring to use WAL that the other has archived.
    let both = format!("{}:{}", pair.primary.data().display(), pair.standby.data().display());
    for node in [&mut pair.primary, &mut pair.standby] {
        node.set_env("PGSEAL_DATA", &both);
        // Either may archive a segment of the first timeline; sealed with its own keys, the bytes
        // differ.
        node.sql(&format!(
            "alter system set archive_command = 'test -e {archive}/%f || cp %p {archive}/%f';;
             alter system set restore_command = 'cp {archive}/%f %p';;
             alter system set wal_keep_size = 0"
        ));
        node.stop();
        node.start();
    }
    let rewind = |node: &Node, options: &[&str]| {
        let short = node.rewind(options);
        assert_ne!(short.code, 0, "{}", short.text);
        assert!(short.text.contains("could not find previous WAL record"), "{}", short.text);
        node.rewind(&[options, &["--restore-target-wal"]].concat())
    };
    pair.forget_wal = true;
    for _ in 0..2 {
        pair.fail_over(End::Shutdown, Source::Server, rewind);
    }
    assert_hidden(&[&archive], MARKER);
    assert!(names_in(archive.as_ref()).len() > 20, "nothing was archived");
    pair.end();
}

/// Without the library or without a key, `pg_rewind` refuses before it changes anything.
#[test]
fn pg_rewind_without_library_or_without_a_key_changes_nothing() {
    let mut pair = Pair::new("aes-256-gcm", "aes-256-xts", &[]);
    let Pair { primary: old, standby: new, .. } = &mut pair;
    new.catch_up(old);
    new.promote();
    new.sql("checkpoint");
    diverge(old, 1);
    go_on(new, 1);
    old.stop();
    let before = fingerprint(old.data());
    let info = format!("--source-server={}", new.conninfo());
    let unchanged = |node: &Node, outcome: &Outcome, word: &str| {
        assert_ne!(outcome.code, 0, "{}", outcome.text);
        assert!(outcome.text.contains(word), "{}", outcome.text);
        assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());
    };
    let mut bare = old.bare("pg_rewind");
    bare.arg("--target-pgdata").arg(old.data()).arg(&info);
    let outcome = Outcome::from(bare.output().expect("it runs"));
    unchanged(old, &outcome, "could not");

    // The key of the target is missing.
    let (key, away) = (old.home().join("key"), old.home().join("away"));
    fs::rename(&key, &away).expect("it can be renamed");
    unchanged(old, &old.rewind(&[&info]), "key");
    fs::rename(&away, &key).expect("it can be renamed");

    // The key of the source is missing; the source is a directory.
    new.stop();
    let (key, away) = (new.home().join("standby.key"), new.home().join("away"));
    let dir = format!("--source-pgdata={}", new.data().display());
    fs::rename(&key, &away).expect("it can be renamed");
    unchanged(old, &old.rewind(&[&dir]), "standby.key");
    fs::rename(&away, &key).expect("it can be renamed");

    // With both it works.
    let outcome = old.rewind(&[&dir]);
    assert_eq!(outcome.code, 0, "{}", outcome.text);
    new.start();
    old.become_standby_of(new, "again");
    old.start();
    old.catch_up(new);
    std::mem::swap(&mut pair.primary, &mut pair.standby);
    pair.end();
}

/// A sealed server is rewound from a plain one: it receives plain chunks and seals them in its
/// files.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_sealed_server_is_rewound_from_a_plain_one() {
    let mut plain = Node::plain(&[("wal_keep_size", "256MB"), ("wal_log_hints", "on")]);
    plain.start();
    fill(&plain);
    let other = Node::sealed(&[]);
    let mut sealed = plain.standby(&other, "sealed", Keys::Own("aes-256-gcm"));
    sealed.configure(&format!(
        "shared_preload_libraries = '{}'",
        other.library().with_file_name("pgseal_guard.so").display()
    ));
    sealed.start();
    sealed.catch_up(&plain);
    sealed.promote();
    diverge(&sealed, 1);
    go_on(&plain, 1);
    sealed.kill9();
    let outcome = sealed.rewind(&[&format!("--source-server={}", plain.conninfo())]);
    assert_eq!(outcome.code, 0, "{}", outcome.text);
    sealed.become_standby_of(&plain, "back");
    sealed.start();
    let pair = Pair { primary: plain, standby: sealed, round: 1, forget_wal: false, big: false };
    pair.compare();
    let Pair { primary: mut plain, standby: mut sealed, .. } = pair;
    sealed.stop_sound(MARKER);
    plain.stop();
    plain.assert_shows(MARKER);
}

/// A table of several segments of 1 GB grows on the side that is undone, and is truncated on the
/// other.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_rewind_of_relations_of_several_segments() {
    let settings = [("shared_buffers", "256MB"), ("max_wal_size", "4GB"), ("wal_keep_size", "8GB")];
    let mut pair = Pair::new("aes-256-gcm", "aes-128-gcm", &settings);
    pair.big = true;
    pair.primary.sql(&format!(
        "create table big (id int, v text);; alter table big alter v set storage plain;;
         insert into big select g, repeat(md5(g::text), 60) || '{MARKER}' \
         from generate_series(1, 580000) g;; create index on big (id);; vacuum (analyze) big"
    ));
    let segments = |node: &Node, name: &str| {
        let first = node.file(&node.relation(name));
        (1..9).take_while(|n| first.with_extension(n.to_string()).exists()).count() + 1
    };
    assert_eq!(segments(&pair.primary, "big"), 2);
    pair.fail_over(End::Kill9, Source::Server, plainly);
    // The last third was deleted on the new primary, and the file cut.
    assert_eq!(segments(&pair.primary, "big"), segments(&pair.standby, "big"));
    pair.fail_over(End::Shutdown, Source::Directory, plainly);
    assert_eq!(segments(&pair.primary, "big"), segments(&pair.standby, "big"));
    pair.end();
}
