//! A sealed server without data checksums: with GCM each page is authenticated, so `wal_log_hints` is
//! all that it needs to survive torn pages.

use std::fs;

use pgseal_scenarios::backup::base_backup_command;
use pgseal_scenarios::files::{flip_bit, page_off};
use pgseal_scenarios::{Node, Outcome, programs};
use pgseal_testkit::{Cluster, Sealing};

fn node() -> Node {
    let builder = Cluster::builder().sealed(Sealing::default()).programs(programs());
    let mut node = Node::create(builder.without_checksums(), &[]);
    node.start();
    node.sql(
        "create table t (id int, v text);;
         insert into t select g, repeat(md5(g::text), 20) from generate_series(1, 2000) g;;
         create table intact as select * from t;; checkpoint",
    );
    node
}

/// The program, when it ends with an error.
fn fails(node: &Node, program: &str, arguments: &[&str]) -> String {
    let mut command = node.command(program);
    let output = command.args(arguments).arg("-D").arg(node.data()).output();
    let outcome = Outcome::from(output.expect("it runs"));
    assert_ne!(outcome.code, 0, "{program}: {}", outcome.text);
    outcome.text
}

#[test]
fn gcm_does_without_checksums() {
    let mut node = node();
    assert_eq!(node.sql("show data_checksums"), "off");
    assert_eq!(node.sql("show wal_log_hints"), "on");
    let truth = node.sql("select count(*), md5(string_agg(v, '' order by id)) from t");
    // Hint bits of pages that are on the disk, and a crash.
    node.sql("update t set v = v || '.' where id % 7 = 0");
    node.sql("begin;; delete from t where id % 7 = 0;; rollback;; select count(*) from t");
    node.kill9();
    node.start();
    assert_eq!(
        node.sql("select count(*), md5(string_agg(rtrim(v, '.'), '' order by id)) from t"),
        truth
    );

    // The server does not start without the setting.
    node.stop();
    node.configure("wal_log_hints = off");
    let log = node.try_start().expect_err("it must not start");
    assert!(log.contains("needs wal_log_hints or data checksums, and both are off"), "{log}");
    node.configure("wal_log_hints = on");
    node.start();
    node.stop();
    node.assert_authentic();
    let doctor = node.pgseal(&["doctor", &node.data().display().to_string()]).text;
    assert!(doctor.contains("off, and wal_log_hints is on"), "{doctor}");
}

/// Nothing hands on a page that does not authenticate without an error.
#[test]
fn a_changed_page_is_an_error_without_checksums() {
    let mut node = node();
    let path = node.file(&node.relation("t"));
    node.kill9();
    flip_bit(&path, page_off(3) + 5000);
    let changed = fs::read(&path).expect("the file can be read");
    node.start();

    let error = node.try_sql("select count(v) from t").expect_err("the page is damaged");
    assert!(error.contains("invalid page in block 3"), "{error}");
    node.sql("select count(v) from intact");

    // A plain server without checksums would copy the page.
    let target = node.home().join("backup");
    let output = base_backup_command(&node, &target).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    let log = node.log();
    assert!(log.contains("could not read file") && log.contains("Input/output error"), "{log}");
    assert!(log.contains(": block 3 "), "{log}");

    // pg_checksums would seal what it read.
    node.stop();
    assert_eq!(fs::read(&path).expect("the file can be read"), changed, "nobody wrote the page");
    let said = fails(&node, "pg_checksums", &["--enable"]);
    assert!(said.contains("Input/output error"), "{said}");
    let after = fs::read(&path).expect("the file can be read");
    assert_eq!(page(&after, 3), page(&changed, 3), "the damaged page is as it was");

    node.start();
    let kept = "set zero_damaged_pages = on;; select count(v) > 1900 from t";
    assert_eq!(node.sql(kept), "t");
    node.sql("vacuum full t");
    assert!(base_backup_command(&node, &target).status().expect("it runs").success());
    node.stop();
    node.succeed(node.command("pg_checksums").arg("--enable").arg("-D").arg(node.data()));
    node.configure("wal_log_hints = off");
    node.start();
    assert_eq!(node.sql("show data_checksums"), "on");
    node.stop();
    node.assert_authentic();
}

/// The sealed bytes of a page.
fn page(file: &[u8], block: u64) -> &[u8] {
    let at = usize::try_from(page_off(block)).expect("a small file");
    &file[at..at + 8192]
}
