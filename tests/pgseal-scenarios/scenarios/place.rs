//! Each file is bound to its place in the cluster: an attacker who can write to the storage cannot
//! put one file in the place of another. Also, a sector of zeros in `pg_xact` is damage, and does
//! not mean "in progress".

use std::fs;
use std::path::Path;

use pgseal_scenarios::Node;
use pgseal_scenarios::backup::{assert_sound, base_backup};
use pgseal_scenarios::files::{
    HEADER, copy_tree, leave_zeros, len, own_as_parent, read, replace, restore_tree, truncate,
    wait_for, write, zero,
};

const SECRET: &str = "the salary of the director";

/// Starts the server, runs a query and stops the server immediately. Returns the answer or the
/// error.
fn ask(node: &mut Node, sql: &str) -> Result<String, String> {
    node.try_start()?;
    let answer = node.try_sql(sql);
    node.stop_at_once();
    answer
}

#[test]
fn a_secret_table_cannot_be_read_through_another_ones_file() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql(&format!(
        "create role mallory login;;
         create table secret (v text);; insert into secret values ('{SECRET}');;
         create table own (v text);; insert into own values ('mine');;
         create index on own (v);; alter table own owner to mallory;; checkpoint"
    ));
    let (secret, own) = (node.relation("secret"), node.relation("own"));
    node.stop();
    replace(&node.file(&own), &node.file(&secret));

    // "pgseal verify" says whose file it is.
    let verify = node.verify();
    assert_eq!(verify.code, 1, "{}", verify.text);
    let said = format!("the file of \"{secret}\"");
    assert!(verify.text.contains(&said), "{}", verify.text);

    node.start();
    let error = node.try_sql("set role mallory;; select * from own").expect_err("it is not his");
    assert!(error.contains("invalid page in block 0"), "{error}");
    let log = node.log();
    assert!(log.contains(&format!("this is the file of \"{secret}\"")), "{log}");
    assert!(!log.contains(SECRET) && !error.contains(SECRET));
    // The file cannot be written to either, but the table can be dropped, as any damaged table.
    node.try_sql("set enable_indexscan = off;; insert into own values ('more')")
        .expect_err("writing means reading first");
    node.sql("drop table own");
    assert_eq!(node.sql("select v from secret"), SECRET);
    node.stop();
    assert_sound(&node, node.data());
}

#[test]
fn a_file_of_ones_own_does_not_become_pg_authid() {
    let mut node = Node::sealed(&[]);
    node.start();
    // A table with the columns of pg_authid, to which an attacker could add a superuser.
    node.sql("create table mine as select * from pg_authid;; checkpoint");
    let (mine, authid) = (node.relation("mine"), node.relation("pg_authid"));
    assert_eq!(authid, "global/1260");
    node.stop();
    let kept = node.home().join("authid");
    fs::copy(node.file(&authid), &kept).expect("it can be copied");
    replace(&node.file(&authid), &node.file(&mine));
    let answer = ask(&mut node, "select 1");
    assert!(answer.is_err(), "nobody can log in with the attacker's roles");
    assert!(node.log().contains(&format!("this is the file of \"{mine}\"")), "{}", node.log());

    replace(&node.file(&authid), &kept);
    node.start();
    node.stop();
    assert_sound(&node, node.data());
}

/// Each of these files is an authentic file of this cluster, but in the place of another one.
#[test]
fn files_of_other_classes_and_layouts_are_refused() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t as select 1 as v;; checkpoint");
    let table = node.relation("t");
    node.stop();
    let wal = fs::read_dir(node.file("pg_wal"))
        .expect("pg_wal is there")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.len() == 24))
        .expect("a segment");
    for (place, other) in [
        (table.as_str(), node.file("pg_xact/0000")),
        (table.as_str(), node.file("pg_stat/pgstat.stat")),
        (table.as_str(), wal.clone()),
        ("pg_xact/0000", node.file("pg_subtrans/0000")),
        ("pg_xact/0000", wal),
        ("pg_multixact/offsets/0000", node.file("pg_subtrans/0000")),
        ("base/5/pg_filenode.map", node.file("base/1/pg_filenode.map")),
        ("global/pg_filenode.map", node.file("base/5/pg_filenode.map")),
    ] {
        let path = node.file(place);
        let kept = node.home().join("kept");
        fs::copy(&path, &kept).expect("it can be copied");
        replace(&path, &other);
        let verify = node.verify();
        assert_eq!(verify.code, 1, "{place}: {}", verify.text);
        assert!(verify.text.contains(place), "{place}: {}", verify.text);
        assert!(verify.text.contains("somebody put it here"), "{place}: {}", verify.text);
        let found = node.pgseal_command(&["rekey", "--check"]).arg(node.data()).output();
        let found = found.expect("it runs");
        assert!(!found.status.success(), "rekey would write {place} anew as what it is not");
        replace(&path, &kept);
    }
    node.start();
    assert_eq!(node.sql("select v from t"), "1");
}

#[test]
fn zeros_in_the_transaction_status_are_damage() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (v int)");
    for v in 0..8 {
        node.sql(&format!("insert into t values ({v})"));
    }
    node.sql("checkpoint");
    let xid: u64 = node.sql("select txid_current()").parse().expect("a number");
    node.stop();
    let now = node.home().join("now");
    copy_tree(node.data(), &now);
    // 484 bytes in a sector of 512, behind nonce and tag.
    let sector = HEADER + xid / 4 / 484 * 512;
    // A whole sector, and only 16 bytes at its end: each is noticed.
    for (off, len) in [(sector, 512), (sector + 496, 16)] {
        restore_tree(&now, node.data());
        zero(&node.file("pg_xact/0000"), off, len);
        let verify = node.verify();
        assert_eq!(verify.code, 1, "{}", verify.text);
        assert!(verify.text.contains("pg_xact/0000"), "{}", verify.text);
        let answer = ask(&mut node, "select count(*) from t");
        let error = answer.expect_err("rows must not vanish in silence");
        assert!(error.contains("pg_xact"), "{error}");
    }
    restore_tree(&now, node.data());
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "8");
}

/// A power cut leaves files with their length but without their bytes. Recovery continues, and the
/// log says which sectors were filled.
#[test]
fn after_a_crash_sectors_that_never_reached_the_disk_are_filled_once() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (v int);; insert into t values (1);; checkpoint");
    node.sql("insert into t values (2)");
    node.kill9();
    // A second page of 17 sectors, as if the file had been extended and not written.
    let segment = node.file("pg_xact/0000");
    assert_eq!(len(&segment), HEADER + 17 * 512, "one page");
    truncate(&segment, HEADER + 2 * 17 * 512);
    node.start();
    assert!(
        node.log().contains("pg_xact/0000\": 17 sectors never reached the disk"),
        "{}",
        node.log()
    );
    assert_eq!(node.sql("select count(*) from t"), "2");
    node.stop();
    assert_sound(&node, node.data());
}

/// An attacker who overwrites transaction status with zeros cannot pass that off as a power cut:
/// the last checkpoint synced the page.
#[test]
fn after_a_crash_zeros_in_a_synced_page_are_damage() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (v int);; insert into t values (1);; checkpoint");
    node.sql("insert into t values (2)");
    node.kill9();
    let segment = node.file("pg_xact/0000");
    let kept = read(&segment, HEADER, 512);
    zero(&segment, HEADER, 512);
    let error = ask(&mut node, "select count(*) from t").expect_err("rows must not vanish");
    assert!(error.contains("pg_xact"), "{error}");
    assert!(!node.log().contains("never reached the disk"), "{}", node.log());
    write(&segment, HEADER, &kept);
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "2");
}

/// A power cut may leave the relation map of a database that was being created with its length and
/// without its bytes. A base backup copies it, as a plain server does.
#[test]
fn the_relation_map_of_an_unfinished_database_does_not_stop_a_backup() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (v int);; insert into t values (1);; checkpoint");
    node.kill9();
    fs::create_dir(node.file("base/99999")).expect("a directory");
    own_as_parent(&node.file("base/99999"));
    let map = node.file("base/99999/pg_filenode.map");
    leave_zeros(&map, len(&node.file("base/5/pg_filenode.map")));
    node.start();
    let copy = base_backup(&node, "copy", &[]);
    assert_eq!(len(&copy.join("base/99999/pg_filenode.map")), len(&map));
    // The map of a database that is in use is needed: zeros in it are an error.
    node.stop();
    let map = node.file("base/5/pg_filenode.map");
    let kept = read(&map, 0, len(&map));
    zero(&map, 0, HEADER);
    assert_eq!(node.verify().code, 1);
    let error = ask(&mut node, "select count(*) from t").expect_err("a map of zeros is refused");
    assert!(error.contains("pg_filenode.map"), "{error}");
    write(&map, 0, &kept);
    node.start();
    assert_eq!(node.sql("select v from t"), "1");
}

/// Files that PostgreSQL itself renames, copies and moves can still be opened.
#[test]
fn places_follow_tablespaces_databases_and_slots() {
    let mut node = Node::sealed(&[("wal_level", "logical"), ("max_prepared_transactions", "2")]);
    node.start();
    let (one, two) = (node.make_dir("one"), node.make_dir("two"));
    let path = |dir: &Path| dir.display().to_string();
    node.sql(&format!(
        "create tablespace one location '{}';; create tablespace two location '{}';;
         create table t tablespace one as select generate_series(1, 1000) as v;;
         select pg_create_physical_replication_slot('physical', true);;
         select pg_create_logical_replication_slot('logical', 'test_decoding')",
        path(&one),
        path(&two)
    ));
    node.sql("create table later (v int)");
    node.sql("begin; insert into later values (0); prepare transaction 'later'");
    node.sql("create database by_copy strategy file_copy");
    node.sql("create database by_log strategy wal_log");
    node.sql("alter database by_copy set tablespace two");
    node.sql("alter table t set tablespace two;; vacuum full pg_class;; vacuum full t");
    node.sql("checkpoint");

    // A base backup writes tablespaces to directories of which only the path is known.
    let mapped = |dir: &Path, name: &str| {
        format!("--tablespace-mapping={}={}", path(dir), node.home().join(name).display())
    };
    let options = [mapped(&one, "mapped-one"), mapped(&two, "mapped-two")];
    let backup = base_backup(&node, "backup", &options.each_ref().map(String::as_str));
    let mut copy = Node::at(&node, &backup);
    node.stop();
    assert_sound(&node, node.data());
    assert_sound(&copy, &backup);
    copy.start();
    assert_eq!(copy.sql("select count(*) from t"), "1000");
    copy.sql("commit prepared 'later'");
    assert_eq!(copy.sql_in("by_copy", "select 1"), "1");
    copy.stop();

    for _ in 0..2 {
        node.start();
        node.sql("commit prepared 'later';; begin; prepare transaction 'later'");
        assert_eq!(node.sql("select count(*) from pg_replication_slots"), "2");
        assert_eq!(node.sql_in("by_copy", "select 1"), "1");
        assert_eq!(node.sql_in("by_log", "select 1"), "1");
        node.sql("select count(*) from pg_logical_slot_get_changes('logical', null, null)");
        node.stop();
    }
    node.start();
    node.sql(
        "select pg_drop_replication_slot('logical');; select pg_drop_replication_slot('physical')",
    );
    wait_for("slots to go", || !node.file("pg_replslot/logical").exists());
    node.stop();
    assert_sound(&node, node.data());
}
