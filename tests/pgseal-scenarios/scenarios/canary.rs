//! Canaries: strings that cannot occur by chance, written through every path by which PostgreSQL
//! writes user data to disk. No raw file may show one of them, in any of the usual encodings.
//!
//! On a plain server, the same SQL must show each canary in the expected file. Otherwise the search
//! would prove nothing.
//!
//! The server log is not searched. Here it lies outside of the data directory, and pgseal leaves it
//! plain wherever it lies (spec/threat-model.md).

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pgseal_scenarios::files::{self, names_in, wait_for};
use pgseal_scenarios::{Node, Session};
use pgseal_testkit::canary::{self, Hit};

/// A marker, and a part of the path of the file in which a plain server shows it.
struct Canary {
    kind: &'static str,
    marker: String,
    place: String,
}

/// The marker of a kind.
fn marker(kind: &str) -> String {
    format!("canary-{kind}-Zq7x")
}

/// The cluster with all markers in it, and with the sessions that keep temporary files open.
struct Planted {
    node: Node,
    archive: PathBuf,
    tablespace: PathBuf,
    canaries: Vec<Canary>,
    /// Cursors, temporary tables, open transactions.
    open: Vec<Session>,
    receiver: Option<Child>,
}

impl Planted {
    fn expect(&mut self, kind: &'static str, place: impl Into<String>) {
        self.canaries.push(Canary { kind, marker: marker(kind), place: place.into() });
    }

    /// Expects the marker in the file of a relation.
    fn expect_in(&mut self, kind: &'static str, relation: &str) {
        let path = self.node.relation(relation);
        // A relation in a tablespace is found by its real path.
        let place = match path.strip_prefix("pg_tblspc/") {
            Some(rest) => rest.split_once('/').expect("a path below the tablespace").1.to_owned(),
            None => format!("data/{path}"),
        };
        self.expect(kind, place);
    }
}

fn start(mut node: Node) -> Planted {
    let archive = node.make_dir("archive");
    let tablespace = node.make_dir("tablespace");
    node.preload_module("pg_stat_statements");
    node.configure(&format!("archive_command = 'cp %p {}/%f'", archive.display()));
    node.start();
    Planted { node, archive, tablespace, canaries: Vec::new(), open: Vec::new(), receiver: None }
}

const SETTINGS: [(&str, &str); 10] = [
    ("wal_level", "logical"),
    ("logical_decoding_work_mem", "64kB"),
    ("max_prepared_transactions", "4"),
    ("archive_mode", "on"),
    ("work_mem", "64kB"),
    ("temp_buffers", "800kB"),
    ("max_parallel_workers_per_gather", "0"),
    ("pg_stat_statements.max", "200"),
    ("default_statistics_target", "20"),
    ("wal_compression", "off"),
];

/// Tables, and the objects that belong to them.
fn plant_relations(planted: &mut Planted) {
    let node = &planted.node;
    let m = marker;
    node.sql(&format!(
        "create table t (id int, v text);;
         insert into t select g, '{}' from generate_series(1, 20) g;;
         create table big (v text);;
         alter table big alter v set storage external;;
         insert into big values (repeat(md5('noise'), 400) || '{}');;
         create unlogged table u (v text);;
         insert into u values ('{}');;
         vacuum full u;;
         create materialized view mv as select 'canary-' || 'matview-Zq7x' as v;;
         create type colour as enum ('red', '{}');;
         comment on table t is '{}';;
         alter table t add column d text default '{}';;
         create function f() returns text language sql as $$select '{}'::text$$;;
         select lo_from_bytea(4711, '{}'::bytea);;
         create tablespace ts location '{}';;
         create table in_ts (v text) tablespace ts;;
         insert into in_ts values ('{}');;
         create table \"{}\" (x int)",
        m("table"),
        m("toast"),
        m("unlogged"),
        m("enum"),
        m("comment"),
        m("default"),
        m("function"),
        m("largeobject"),
        planted.tablespace.display(),
        m("tablespace"),
        m("name"),
    ));
    planted.expect_in("table", "t");
    let toast =
        planted.node.sql("select reltoastrelid::regclass from pg_class where relname='big'");
    planted.expect_in("toast", &toast);
    planted.expect_in("unlogged", "u");
    planted.expect_in("matview", "mv");
    planted.expect_in("enum", "pg_enum");
    planted.expect_in("comment", "pg_description");
    // The value of the new column in existing rows.
    planted.expect_in("default", "pg_attribute");
    planted.expect_in("function", "pg_proc");
    planted.expect_in("largeobject", "pg_largeobject");
    planted.expect_in("tablespace", "in_ts");
    planted.expect_in("name", "pg_class");
}

/// Every index type. The indexes are on expressions, so that the values are only in the index. A
/// hash index contains only hash codes, so a plain server does not show its marker.
fn plant_indexes(planted: &mut Planted) {
    planted.node.sql("create extension btree_gist");
    for (kind, using) in [
        ("btree", "btree (VALUE)"),
        ("hash", "hash (VALUE)"),
        ("gin", "gin ((array[VALUE]))"),
        ("gist", "gist (VALUE)"),
        ("spgist", "spgist (VALUE)"),
        ("brin", "brin (VALUE)"),
    ] {
        // The expression joins two halves, so that the definition in the catalogs does not contain
        // the marker.
        let value = format!("('canary-{kind}' || repeat('-Zq7x', least(id, 1)))");
        let using = using.replace("VALUE", &value);
        planted.node.sql(&format!("create index on_{kind} on t using {using}"));
        if kind != "hash" {
            planted.expect_in(kind, &format!("on_{kind}"));
        }
    }
}

fn plant_statistics(planted: &mut Planted) {
    planted.node.sql(&format!(
        "create table s (a text, b text);;
         insert into s select '{}', '{}' from generate_series(1, 500);;
         insert into s select '{}', '{}' from generate_series(1, 500);;
         create statistics s_ext (mcv) on a, b from s;;
         analyze s",
        marker("statistic"),
        marker("mcv"),
        marker("statistic"),
        "another value"
    ));
    planted.expect_in("statistic", "pg_statistic");
    planted.expect_in("mcv", "pg_statistic_ext_data");
}

/// Queries that do not fit into `work_mem`, with a cursor that keeps their files.
fn plant_spills(planted: &mut Planted) {
    for (kind, query) in [
        ("sort", "select 'canary-sort-Zq7x' || g as v from generate_series(1, 30000) g order by v"),
        (
            "hash-join",
            "select * from (select 'canary-hash-join-Zq7x' || g as v from generate_series(1, 30000) g offset 0) a \
             join (select 'canary-hash-join-Zq7x' || g as v from generate_series(1, 30000) g offset 0) b using (v)",
        ),
        (
            "tuplestore",
            "select 'canary-tuplestore-Zq7x' || g as v from generate_series(1, 30000) g",
        ),
    ] {
        let mut session = planted.node.session();
        session.sql("set enable_mergejoin = off");
        session.sql("set enable_nestloop = off");
        let hold = if kind == "tuplestore" { "with hold" } else { "" };
        session.sql(&format!("begin; declare c cursor {hold} for {query}"));
        if kind == "tuplestore" {
            // A cursor WITH HOLD is materialised when the transaction ends.
            session.sql("commit");
        } else {
            session.sql("fetch 1 from c");
        }
        planted.open.push(session);
        planted.expect(kind, "base/pgsql_tmp/");
    }
}

fn plant_temporary_table(planted: &mut Planted) {
    let mut session = planted.node.session();
    session.sql(&format!(
        "create temporary table tmp as select '{}' || repeat('.', 400) as v \
         from generate_series(1, 5000)",
        marker("temptable")
    ));
    let path = session.sql("select pg_relation_filepath('tmp')");
    assert!(path.contains("/t"), "{path}");
    planted.expect("temptable", format!("data/{path}"));
    planted.open.push(session);
}

/// A large transaction that stays open while a slot is decoded: decoding spills its changes to
/// files.
fn plant_logical_spill(planted: &mut Planted) {
    planted.node.sql(
        "create table decoded (v text);;
         select pg_create_logical_replication_slot('slot', 'test_decoding')",
    );
    let mut receiver = planted.node.bare("pg_recvlogical");
    receiver.args(["-d", "postgres", "-S", "slot", "--start", "-f", "/dev/null"]);
    receiver.stdout(Stdio::null()).stderr(Stdio::null());
    planted.receiver = Some(receiver.spawn().expect("pg_recvlogical runs"));
    let mut session = planted.node.session();
    session.sql(&format!(
        "begin; insert into decoded select '{}' || g from generate_series(1, 5000) g",
        marker("logical")
    ));
    planted.open.push(session);
    // The commit of another session flushes the WAL, so that the decoder can read it.
    planted.node.sql("create table nudge (x int)");
    let dir = planted.node.file("pg_replslot/slot");
    wait_for("a spill file of logical decoding", || {
        let is_written = |name: &String| files::len(&dir.join(name)) > files::HEADER;
        names_in(&dir).iter().any(|name| name.ends_with(".spill") && is_written(name))
    });
    planted.expect("logical", "pg_replslot/slot/");
}

/// More notifications than the buffers hold, kept because a listener does not read them.
fn plant_notify(planted: &mut Planted) {
    let mut listener = planted.node.session();
    listener.sql("listen channel; begin; select 1");
    planted.open.push(listener);
    planted.node.sql(&format!(
        "select pg_notify('channel', '{}' || g || repeat('.', 3000)) from generate_series(1, 100) g",
        marker("notify")
    ));
    planted.expect("notify", "data/pg_notify/");
}

fn plant_the_rest(planted: &mut Planted) {
    let node = &planted.node;
    node.sql(&format!(
        "create table p (v text);;
         begin; insert into p values ('x'); prepare transaction '{}';;
         create extension pg_stat_statements;;
         select count(*) from pg_am as \"{}\";;
         create table w (v text);;
         insert into w values ('{}')",
        marker("prepared"),
        marker("statement"),
        marker("wal"),
    ));
    let mut exporter = planted.node.session();
    exporter.sql("begin isolation level repeatable read; select pg_export_snapshot()");
    planted.open.push(exporter);
    planted.expect("prepared", "data/pg_twophase/");
    planted.expect("statement", "pgss_query_texts.stat");
    planted.expect("wal", "data/pg_wal/");
    planted.canaries.push(Canary {
        kind: "archive",
        marker: marker("wal"),
        place: "/archive/0000".to_owned(),
    });
    // An exported snapshot contains no rows, but text that every snapshot has.
    planted.canaries.push(Canary {
        kind: "snapshot",
        marker: "dbid:5\niso:2\nro:0\nxmin:".to_owned(),
        place: "data/pg_snapshots/".to_owned(),
    });
}

fn plant(node: Node) -> Planted {
    let mut planted = start(node);
    plant_relations(&mut planted);
    plant_indexes(&mut planted);
    plant_statistics(&mut planted);
    plant_spills(&mut planted);
    plant_temporary_table(&mut planted);
    plant_logical_spill(&mut planted);
    plant_notify(&mut planted);
    plant_the_rest(&mut planted);
    planted.node.sql("select pg_switch_wal();;checkpoint");
    let archive = planted.archive.clone();
    wait_for("an archived segment", || !names_in(&archive).is_empty());
    planted
}

impl Planted {
    /// Everything that was found in the directories.
    fn scan(&self, dirs: &[&Path]) -> Vec<Hit> {
        let markers: Vec<&str> = self.canaries.iter().map(|canary| &*canary.marker).collect();
        canary::scan(dirs, &markers).expect("the files can be read")
    }

    /// Searches in each state of a server's life; returns the state with each hit.
    fn scan_through_life(&mut self) -> Vec<(&'static str, Hit)> {
        let data = self.node.data().to_owned();
        let (archive, tablespace) = (self.archive.clone(), self.tablespace.clone());
        let dirs = [&*data, &*archive, &*tablespace];
        let mut found = Vec::new();
        let mut note = |state, hits: Vec<Hit>| found.extend(hits.into_iter().map(|h| (state, h)));

        // The files must exist, or the search would prove nothing.
        assert!(!names_in(&data.join("base/pgsql_tmp")).is_empty());
        assert!(!names_in(&data.join("pg_notify")).is_empty());
        assert!(!names_in(&data.join("pg_snapshots")).is_empty());
        assert!(!names_in(&data.join("pg_twophase")).is_empty());
        note("running", self.scan(&dirs));

        let copy = self.node.home().join("copy");
        files::copy_tree(&data, &copy);
        note("raw copy of a running server", self.scan(&[&copy]));

        self.node.kill9();
        self.open.clear();
        self.end_receiver();
        note("after kill -9", self.scan(&dirs));

        self.node.start();
        self.node.sql(&format!("rollback prepared '{}'", marker("prepared")));
        self.node.stop();
        note("after shutdown", self.scan(&dirs));
        found
    }

    fn end_receiver(&mut self) {
        if let Some(mut receiver) = self.receiver.take() {
            let _ = receiver.kill();
            let _ = receiver.wait();
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.end_receiver();
    }
}

#[test]
fn a_plain_server_shows_every_canary() {
    let mut planted = plant(Node::plain(&SETTINGS));
    let found = planted.scan_through_life();
    let hidden = |canary: &&Canary| {
        !found.iter().any(|(_, hit)| {
            hit.marker == canary.marker && hit.path.to_string_lossy().contains(&canary.place)
        })
    };
    let blind: Vec<String> = planted
        .canaries
        .iter()
        .filter(hidden)
        .map(|canary| format!("{} (expected in {})", canary.kind, canary.place))
        .collect();
    assert!(
        blind.is_empty(),
        "the plain server hides them, so a leak would not be seen: {blind:?}"
    );
    let states: Vec<&str> = found.iter().map(|(state, _)| *state).collect();
    for state in ["running", "raw copy of a running server", "after kill -9", "after shutdown"] {
        assert!(states.contains(&state), "nothing is seen {state}");
    }
}

#[test]
fn a_sealed_server_shows_none() {
    let mut planted = plant(Node::sealed(&SETTINGS));
    let found = planted.scan_through_life();
    assert!(found.is_empty(), "{found:#?}");

    // The server used the files that were searched: all rows are there, and all blocks
    // authenticate.
    planted.node.assert_authentic();
    let keyring = planted.node.file("pgseal/keyring").display().to_string();
    let archive = planted.archive.display().to_string();
    let verify = planted.node.pgseal(&["verify", "--keyring", &keyring, &archive]);
    assert_eq!(verify.code, 0, "the archive: {}", verify.text);
    let copy = planted.node.home().join("copy");
    planted.node.assert_authentic_at(&copy);
    planted.node.start();
    assert_eq!(planted.node.sql("select v from w"), marker("wal"));
    assert_eq!(planted.node.sql("select v from in_ts"), marker("tablespace"));
    planted.node.stop();
}
