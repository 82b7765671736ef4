//! Files that kept their length but lost their bytes in a power cut. The tests make such images
//! from a server that was killed, and start a server on them.

use std::fs;

use pgseal_scenarios::backup::base_backup_command;
use pgseal_scenarios::files::{leave_zeros, len, replace, zero};
use pgseal_scenarios::{Node, Outcome, server_major};

const SUM: &str = "select count(*), sum(hashtext(v)) from t";

/// A server with a table, its free space map and visibility map, and a slot for logical decoding.
fn node() -> Node {
    let mut node = Node::sealed(&[("wal_level", "logical"), ("checkpoint_timeout", "1d")]);
    node.start();
    node.sql(
        "create table t (id int primary key, v text);;
         insert into t select g, repeat(md5(g::text), 3) from generate_series(1, 3000) g;;
         delete from t where id % 3 = 0;; vacuum t;;
         select pg_create_logical_replication_slot('s', 'pgoutput');; checkpoint",
    );
    node
}

/// A table that was empty at the last sync, and was extended by a transaction whose WAL is lost,
/// may have only zeros. It is an empty table, as on a plain server.
#[test]
fn a_relation_of_nothing_but_zeros_is_empty() {
    let mut node = node();
    node.sql("create table empty (id int primary key, v text);; checkpoint");
    let (table, full) = (node.relation("empty"), node.relation("t"));
    node.kill9();
    leave_zeros(&node.file(&table), 16384);
    node.start();
    assert_eq!(node.sql("select count(*) from empty"), "0");
    let verify = node.verify();
    let note = format!("note    {table}: 16384 bytes of zeros and no header: it reads as an empty");
    assert!(verify.code == 0 && verify.text.contains(&note), "{}", verify.text);
    backup_works(&node);
    // Nothing that was not written changes that, neither a stop.
    node.stop();
    node.start();
    assert_eq!(node.sql("select count(*) from empty"), "0");
    node.sql("insert into empty values (1, 'x')");
    node.kill9();
    node.start();
    assert_eq!(node.sql("select v from empty"), "x");
    assert!(!node.log().contains("ERROR"), "{}", node.log());
    node.stop();
    node.assert_authentic();
    // One byte behind the zeros, and it is damage.
    node.start();
    node.kill9();
    zero(&node.file(&full), 0, 8192);
    node.start();
    node.try_sql(SUM).expect_err("its header is lost");
    node.stop();
}

/// The visibility map and free space map of a table that redo does not change.
#[test]
fn maps_of_a_live_table_are_made_anew() {
    for crashed in [false, true] {
        let mut node = node();
        let truth = node.sql(SUM);
        let main = node.relation("t");
        if crashed {
            node.stop_at_once()
        } else {
            node.stop()
        }
        for fork in ["_vm", "_fsm"] {
            zero(&node.file(&format!("{main}{fork}")), 0, 8192);
        }
        let verify = node.verify();
        assert_eq!(verify.code, 0, "{}", verify.text);
        assert!(verify.text.contains(&format!("{main}_vm")), "{}", verify.text);
        assert!(verify.text.contains("does not matter"), "{}", verify.text);

        node.start();
        assert_eq!(node.sql(SUM), truth);
        node.sql("insert into t select g, 'x' from generate_series(10001, 10500) g;; vacuum t");
        let log = node.log();
        assert!(log.contains("never reached the disk; PostgreSQL makes it anew"), "{log}");
        assert!(!log.contains("restore"), "{log}");
        backup_works(&node);
        node.stop();
        let checksums = node.command("pg_checksums").arg("-D").arg(node.data()).output();
        let checksums = Outcome::from(checksums.expect("it runs"));
        assert_eq!(checksums.code, 0, "{}", checksums.text);
        let verify = node.verify();
        assert!(verify.text.ends_with("Sound.\n"), "{}", verify.text);
        assert!(!verify.text.contains("does not matter"), "{}", verify.text);
    }
}

/// A torn page of a map reads as zeros. The log does not advise a restore, and `verify` does not
/// count the page as damage.
#[test]
fn torn_pages_of_maps_do_not_matter() {
    let mut node = node();
    let main = node.relation("t");
    node.stop();
    for fork in ["_vm", "_fsm"] {
        let path = node.file(&format!("{main}{fork}"));
        zero(&path, len(&path) - 4096, 4096);
    }
    let verify = node.verify();
    assert_eq!(verify.code, 0, "{}", verify.text);
    assert_eq!(verify.text.matches("does not matter").count(), 2, "{}", verify.text);
    node.start();
    backup_works(&node);
    node.sql("insert into t select g, 'x' from generate_series(10001, 10500) g;; vacuum t");
    let log = node.log();
    assert!(!log.contains("restore it from a backup"), "{log}");
    assert!(log.contains("PostgreSQL makes it anew"), "{log}");
    node.stop();
    assert!(node.verify().text.ends_with("Sound.\n"));
}

fn backup_works(node: &Node) {
    backup_works_with(node, &[]);
}

fn backup_works_with(node: &Node, options: &[&str]) {
    let target = node.home().join("backup");
    node.succeed(base_backup_command(node, &target).args(options));
    fs::remove_dir_all(target).expect("it can be removed");
}

/// What the checkpoint at the end of recovery writes or syncs, when `pg_control` says "shutting
/// down" and not "in recovery".
#[test]
fn the_server_starts_without_the_headers_of_subtransactions_and_mappings() {
    let mut node = node();
    node.sql("insert into t values (20000, 'late')");
    let truth = node.sql(SUM);
    node.stop_at_once();
    zero(&node.file("pg_subtrans/0000"), 0, 8192);
    leave_zeros(&node.file("pg_logical/mappings/map-5-4eb-F_0-2e7-2e7"), 40_000);
    node.start();
    assert_eq!(node.sql(SUM), truth);
    node.sql("checkpoint;; begin; savepoint a; insert into t values (20001, 'y'); commit");
    backup_works(&node);
    node.stop();
    node.start();
    node.stop();
}

/// A table and an index that were made after the last checkpoint: redo makes them anew, whatever is
/// there.
#[test]
fn redo_makes_anew_what_has_its_length_and_not_its_bytes() {
    let mut node = node();
    node.sql("create table late as select * from t;; create index i_late on late (v)");
    let truth = node.sql("select count(*), sum(hashtext(v)) from late");
    let files = ["late", "i_late"].map(|name| node.file(&node.relation(name)));
    // What is on the disk already, so that there is a length.
    node.sql("select pg_relation_size('late')");
    node.stop_at_once();
    for (file, keeps_blocks) in files.iter().zip([true, false]) {
        let len = len(file).max(9 * 8192);
        zero(file, 0, if keeps_blocks { 8192 } else { len });
    }
    node.start();
    assert_eq!(node.sql("select count(*), sum(hashtext(v)) from late"), truth);
    node.sql("create extension amcheck;; select bt_index_check('i_late', true);; checkpoint");
    node.stop();
    node.assert_authentic();
}

/// Files in the making, which PostgreSQL opens with `O_TRUNC` or never again.
#[test]
fn leftovers_stand_in_nobodys_way() {
    let mut node = node();
    let database = node.relation("t").rsplit_once('/').expect("a directory").0.to_owned();
    node.sql("select pg_stat_force_next_flush()");
    node.stop();
    for name in [
        format!("{database}/pg_filenode.map.tmp"),
        format!("{database}/pg_internal.init.4711"),
        "global/pg_internal.init".to_owned(),
        "pg_stat/pgstat.tmp".to_owned(),
        "pg_logical/replorigin_checkpoint.tmp".to_owned(),
    ] {
        leave_zeros(&node.file(&name), 9000);
    }
    let verify = node.verify();
    assert_eq!(verify.code, 0, "{}", verify.text);
    node.start();
    node.sql("vacuum full pg_class;; insert into t values (30000, 'z')");
    node.sql("select pg_stat_force_next_flush()");
    // PostgreSQL takes pg_filenode.map.tmp for a segment of a relation when it looks at checksums.
    backup_works_with(&node, &["--no-verify-checksums"]);
    let counted = "select n_tup_ins from pg_stat_user_tables where relname = 't'";
    let before = node.sql(counted);
    node.stop();
    node.start();
    assert_eq!(node.sql(counted), before, "PostgreSQL {}: {}", server_major(), node.log());
    node.stop();

    // A new key for everything, and then none.
    let data = node.data().display().to_string();
    let zeros = node.file(&format!("{database}/pg_internal.init.4712"));
    let torn = node.file(&format!("{database}/pg_internal.init.4713"));
    let programs = pgseal_testkit::bindir().expect("PostgreSQL is there").display().to_string();
    for command in [
        &["rekey", "--bindir", &programs, &data][..],
        &["decrypt", "--yes-write-plain", "--bindir", &programs, &data],
    ] {
        leave_zeros(&zeros, 9000);
        leave_zeros(&torn, 1);
        replace(&torn, &node.file(&format!("{database}/pg_internal.init")));
        zero(&torn, 8192 + 4096, 4096);
        let done = node.pgseal(command);
        assert_eq!(done.code, 0, "{command:?}: {}", done.text);
        assert!(!zeros.exists() && !torn.exists(), "{command:?}: {}", done.text);
    }
}
