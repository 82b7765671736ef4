//! Operations on whole databases and tablespaces, and the tools for them. Each test ends by
//! checking the rows, running `pgseal verify` and searching all written files for the marker.

use std::fs;
use std::path::PathBuf;

use pgseal_scenarios::files::{HEADER, copy_tree, flip_bit, names_in, read};
use pgseal_scenarios::mount::{Btrfs, is_shared};
use pgseal_scenarios::{
    Node, Outcome, SUM, assert_hidden, assert_shown, from_major, is_root, not_applicable,
};

const MARKER: &str = "canary-operations-Zq7x";

/// A running sealed server with a table over some pages.
fn node(settings: &[(&str, &str)]) -> Node {
    let mut node = Node::sealed(settings);
    node.start();
    node.sql(&fill(5000));
    node
}

fn fill(rows: u32) -> String {
    format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, {rows}) g;;
         create index on t (v);; vacuum (analyze) t;; checkpoint"
    )
}

#[test]
fn create_database_with_both_strategies() {
    let mut node = node(&[]);
    let truth = node.sql(SUM);
    node.sql("create database template_of_ours");
    node.sql_in("template_of_ours", &fill(50));
    let of_template = node.sql_in("template_of_ours", SUM);
    assert!(of_template.starts_with("50|"), "{of_template}");
    for strategy in ["wal_log", "file_copy"] {
        node.sql(&format!(
            "create database {strategy} template template_of_ours strategy {strategy}"
        ));
        assert_eq!(node.sql_in(strategy, SUM), of_template, "{strategy}");
        node.sql_in(strategy, "insert into t values (1000, 'its own')");
    }
    // Recovery restores the copies from WAL, with the rows that were added to each.
    node.kill9();
    node.start();
    for strategy in ["wal_log", "file_copy"] {
        assert_eq!(node.sql_in(strategy, "select count(*) from t"), "51", "{strategy}");
        node.sql_in(strategy, "delete from t where id = 1000");
        assert_eq!(node.sql_in(strategy, SUM), of_template, "{strategy}");
    }
    assert_eq!(node.sql(SUM), truth);
    node.amcheck_with_parents();
    node.sql("drop database wal_log;; drop database file_copy with (force)");
    node.stop();
    node.assert_sound(MARKER);
}

/// From 18 on, CREATE DATABASE can clone files. If the file system cannot, the statement fails and
/// leaves no files.
#[test]
fn create_database_by_cloning_files() {
    if from_major(18, "create_database_by_cloning_files") {
        let _ = clone_database(&mut Node::sealed(&[("file_copy_method", "clone")]));
    }
}

/// The same where the file system can clone.
#[test]
#[ignore = "long: make test-scenarios"]
fn create_database_by_cloning_files_on_btrfs() {
    let test = "create_database_by_cloning_files_on_btrfs";
    if !from_major(18, test) {
        return;
    }
    if !is_root() {
        return not_applicable(test, "mounting needs root");
    }
    let mut node = Node::sealed(&[("file_copy_method", "clone")]);
    let btrfs = Btrfs::mount(&node.home().join("btrfs"));
    copy_tree(node.data(), &btrfs.path().join("data"));
    node.set_data(&btrfs.path().join("data"));
    for file in clone_database(&mut node) {
        assert!(!is_shared(&file), "{}", file.display());
    }
}

/// On Linux the server clones with `copy_file_range`. The library decrypts and encrypts again, so
/// no copy has the header of the original, and no blocks are shared. Returns the files of table `t`
/// in the copies.
fn clone_database(node: &mut Node) -> Vec<PathBuf> {
    node.start();
    node.sql("create database original");
    node.sql_in("original", &fill(500));
    let truth = node.sql_in("original", SUM);
    let path = |database: &str, name: &str| {
        let oid = node.sql(&format!("select oid from pg_database where datname = '{database}'"));
        node.file("base").join(oid).join(name)
    };
    let table = node.sql_in("original", "select pg_relation_filenode('t')");
    let names = ["pg_filenode.map", &table];
    let head = |database: &str, name: &str| read(&path(database, name), 0, HEADER);
    let databases = names_in(&node.file("base")).len();
    let clone = "create database cloned template original strategy file_copy";
    let mut copies = vec!["copied"];
    match node.try_sql(clone) {
        Ok(_) => copies.push("cloned"),
        Err(error) => {
            assert!(error.contains("could not clone file"), "{error}");
            assert_eq!(names_in(&node.file("base")).len(), databases, "something was left");
        }
    }
    node.sql("alter system set file_copy_method = copy;; select pg_reload_conf()");
    node.wait_until("select current_setting('file_copy_method') = 'copy'");
    node.sql("create database copied template original strategy file_copy");
    for copy in &copies {
        assert_eq!(node.sql_in(copy, SUM), truth, "{copy}");
        for name in names {
            assert_ne!(head("original", name), head(copy, name), "{copy}: {name}");
        }
        node.sql_in(copy, "update t set v = v || ' more';; checkpoint");
        assert_eq!(node.sql_in("original", SUM), truth, "{copy}");
    }
    let files = copies.iter().map(|copy| path(copy, &table)).collect();
    node.stop();
    node.assert_sound(MARKER);
    files
}

#[test]
fn set_tablespace_of_tables_indexes_and_databases() {
    let mut node = node(&[]);
    let truth = node.sql(SUM);
    let dirs = [node.make_dir("first"), node.make_dir("second")];
    for (name, dir) in ["first", "second"].iter().zip(&dirs) {
        node.sql(&format!("create tablespace {name} location '{}'", dir.display()));
    }
    node.sql(
        "alter table t set tablespace first;; alter index t_pkey set tablespace second;;
         create materialized view m tablespace first as select * from t;;
         create database d tablespace first",
    );
    node.sql_in(
        "d",
        &format!(
            "create table t as select g as id, '{MARKER}' as v from generate_series(1, 100) g"
        ),
    );
    let in_d = node.sql_in("d", SUM);
    let rel = node.relation("t");
    assert!(rel.starts_with("pg_tblspc/"), "{rel}");
    // All of this happened after the last checkpoint, so recovery repeats it from WAL.
    node.kill9();
    node.start();
    assert_eq!(node.sql(SUM), truth);
    node.sql("alter database d set tablespace second");
    node.kill9();
    node.start();
    assert_eq!(node.sql_in("d", SUM), in_d);
    assert_eq!(
        node.sql("set enable_seqscan = off;; select v like '%x%' from t where id = 77"),
        "t"
    );
    for dir in &dirs {
        assert!(!names_in(dir).is_empty(), "{}", dir.display());
        assert_hidden(&[dir], MARKER);
    }
    node.amcheck_with_parents();
    node.stop();
    node.assert_sound(MARKER);

    // Move everything back; the empty tablespaces can be dropped.
    node.start();
    node.sql(
        "alter materialized view m set tablespace pg_default;;
         alter table all in tablespace first set tablespace pg_default;;
         alter index all in tablespace second set tablespace pg_default;;
         alter database d set tablespace pg_default;; checkpoint;;
         drop tablespace first;; drop tablespace second",
    );
    for dir in &dirs {
        assert_eq!(names_in(dir), Vec::<String>::new());
    }
    assert_eq!(node.sql(SUM), truth);
    assert_eq!(node.sql("select count(*) from m"), "5000");
    assert_eq!(node.sql_in("d", SUM), in_d);
    node.sql("drop database d");
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_dump_and_pg_restore_in_each_format() {
    let mut node = node(&[]);
    node.sql(&format!(
        "select lo_from_bytea(4711, '{MARKER}'::bytea);;
         create table wide (id int, v text);; alter table wide alter v set storage external;;
         insert into wide select g, repeat(md5(g::text), 400) from generate_series(1, 50) g"
    ));
    let truth = node.sql(SUM);
    for (format, jobs) in
        [("plain", None), ("custom", Some("2")), ("directory", Some("2")), ("tar", None)]
    {
        let dump = node.home().join(format!("dump.{format}"));
        // Also with the library, a dump outside of the data directory belongs to the client and is
        // plain.
        let mut command = node.command("pg_dump");
        node.connected(&mut command);
        command.arg("-F").arg(format).args(["-Z0", "-f"]).arg(&dump);
        if format == "directory" {
            command.args(["-j", "2"]);
        }
        node.succeed(&mut command);
        assert_shown(&dump, MARKER);

        let database = format!("from_{format}");
        node.sql(&format!("create database {database}"));
        let mut restore = if format == "plain" {
            let mut psql = node.bare("psql");
            psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&dump);
            psql
        } else {
            let mut restore = node.bare("pg_restore");
            restore.arg("--exit-on-error").args(jobs.map(|jobs| format!("-j{jobs}"))).arg(&dump);
            restore
        };
        node.succeed(restore.args(["-d", &database]));
        assert_eq!(node.sql_in(&database, SUM), truth, "{format}");
        let lo = "select convert_from(lo_get(4711), 'UTF8')";
        assert_eq!(node.sql_in(&database, lo), MARKER, "{format}");
        assert_eq!(node.sql_in(&database, "select sum(length(v)) from wide"), "640000");
    }
    // Everything, roles included, into another cluster.
    let all = node.home().join("all.sql");
    node.sql("create role somebody");
    node.succeed(node.bare("pg_dumpall").arg("-f").arg(&all));
    let mut other = Node::sealed(&[]);
    other.start();
    let mut psql = other.bare("psql");
    // The only error is that the role postgres exists already.
    let said = other.succeed(psql.args(["-Xq", "-f"]).arg(&all));
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors.len(), 1, "{said}");
    assert_eq!(other.sql(SUM), truth);
    assert_eq!(other.sql_in("from_tar", SUM), truth);
    for node in [&mut node, &mut other] {
        node.stop();
        node.assert_sound(MARKER);
    }
}

/// The last resort after the WAL is lost: the cluster starts with the state of its last checkpoint.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_resetwal_after_the_wal_was_lost() {
    let mut node = node(&[]);
    let truth = node.sql(SUM);
    node.sql("checkpoint");
    node.kill9();
    for name in names_in(&node.file("pg_wal")) {
        let path = node.file("pg_wal").join(name);
        if path.is_file() {
            fs::remove_file(path).expect("it is there");
        }
    }
    let log = node.try_start().expect_err("a start without WAL");
    assert!(log.contains("could not locate a valid checkpoint record"), "{log}");
    let refused = node.command("pg_resetwal").arg(node.data()).output().expect("it runs");
    let refused = Outcome::from(refused);
    assert_eq!(refused.code, 1, "{}", refused.text);
    node.succeed(node.command("pg_resetwal").arg("-f").arg(node.data()));
    node.start();
    assert_eq!(node.sql(SUM), truth);
    node.sql("update t set v = v where id < 100;; checkpoint");
    node.amcheck_with_parents();
    node.stop();
    // Another segment size: pg_resetwal writes new, sealed WAL.
    node.succeed(node.command("pg_resetwal").args(["--wal-segsize", "4"]).arg(node.data()));
    node.configure("min_wal_size = 16MB");
    node.start();
    assert_eq!(node.sql("show wal_segment_size"), "4MB");
    assert_eq!(node.sql(SUM), truth);
    node.stop();
    node.assert_sound(MARKER);
}

/// `pg_checksums` and `pg_amcheck` find a page that was changed on disk.
#[test]
fn pg_checksums_and_pg_amcheck_find_a_changed_page() {
    let mut node = node(&[]);
    node.sql("create extension amcheck");
    let path = node.file(&node.relation("t"));
    node.stop();
    flip_bit(&path, pgseal_scenarios::files::page_off(3) + 5000);
    let check = node.command("pg_checksums").arg("--check").arg("-D").arg(node.data()).output();
    let check = Outcome::from(check.expect("it runs"));
    assert_eq!(check.code, 1, "{}", check.text);
    assert!(check.text.contains("Bad checksums:  1"), "{}", check.text);
    node.start();
    let mut amcheck = node.command("pg_amcheck");
    node.connected(&mut amcheck);
    let found =
        Outcome::from(amcheck.args(["-d", "postgres", "-t", "t"]).output().expect("it runs"));
    assert_ne!(found.code, 0, "{}", found.text);
    assert!(found.text.contains("invalid page in block 3"), "{}", found.text);
    node.stop();
    assert_hidden(&[node.data()], MARKER);
}
