//! A sealed server without data checksums: with GCM each page is authenticated, so `wal_log_hints`
//! is all that it needs to survive torn pages.

use std::fs;
use std::path::Path;

use pgseal_scenarios::backup::base_backup_command;
use pgseal_scenarios::files::{flip_bit, page_off, zero};
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
    let relation = node.relation("t");
    let path = node.file(&relation);
    node.kill9();
    flip_bit(&path, page_off(3) + 5000);
    let changed = fs::read(&path).expect("the file can be read");
    node.start();

    assert_eq!(failed_blocks(&node), 0);
    let error = node.try_sql("select count(v) from t").expect_err("the page is damaged");
    assert!(error.contains("invalid page in block 3"), "{error}");
    node.sql("select count(v) from intact");
    // PostgreSQL itself counts nothing without checksums.
    let by_postgres =
        "select checksum_failures is null from pg_stat_database where datname = 'postgres'";
    assert_eq!(node.sql(by_postgres), "t");
    let by_query = failed_blocks(&node);
    assert_ne!(by_query, 0);

    // A plain server without checksums would copy the page.
    let target = node.home().join("backup");
    let output = base_backup_command(&node, &target).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    let log = node.log();
    let named = format!("could not read file \"./{relation}\": Input/output error");
    assert!(log.contains(&named), "{named}: {log}");
    let line = format!(
        "ERROR: block 3 of \"./{relation}\" (table public.t of database postgres) does not authenticate; the read fails"
    );
    assert!(log.contains(&line), "{line}: {log}");
    assert!(failed_blocks(&node) > by_query);

    // So would a program that is named to read plain content.
    let copy = node.home().join("copy");
    let mut cp = node.command_at(Path::new("/bin/cp"));
    cp.env("PGSEAL_PROGRAMS", "cp").env("PGSEAL_UNSEALED_COPY", "yes");
    let copied = Outcome::from(cp.arg(&path).arg(&copy).output().expect("it runs"));
    assert!(copied.code != 0 && copied.text.contains("Input/output error"), "{}", copied.text);

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

/// `pg_upgrade` refuses two clusters of which only one has checksums.
#[test]
fn a_cluster_for_pg_upgrade_is_as_the_old_one() {
    let programs = pgseal_testkit::bindir().expect("PostgreSQL is there").display().to_string();
    for has_checksums in [false, true] {
        let mut node = if has_checksums { Node::sealed(&[]) } else { node() };
        if node.is_running() {
            node.stop();
        }
        let new = node.home().join("new");
        let (old, dir) = (node.data().display().to_string(), new.display().to_string());
        let made = node.pgseal(&[
            "initdb",
            "--keyring-of",
            &old,
            "--bindir",
            &programs,
            &dir,
            "--",
            "-A",
            "trust",
            "-N",
        ]);
        assert_eq!(made.code, 0, "{}", made.text);
        let conf = fs::read_to_string(new.join("postgresql.conf")).expect("it is there");
        assert_eq!(conf.contains("\nwal_log_hints = on"), !has_checksums, "{conf}");
        let new = Node::at(&node, &new);
        let control = new.succeed(new.command("pg_controldata").arg("-D").arg(new.data()));
        let version = format!("Data page checksum version:           {}", u8::from(has_checksums));
        assert!(control.contains(&version), "{control}");
    }
}

/// A crash leaves the file of a table that was never committed, and may tear it. Nobody removes the
/// file, and no base backup fails because of it.
#[test]
fn what_a_crash_leaves_stops_no_base_backup() {
    let mut node = node();
    let mut session = node.session();
    let begun = session.sql(
        "begin; create table lost as select g, repeat('x', 900) v from generate_series(1, 200) g; \
         create table torn as select * from lost; \
         select pg_relation_filepath('lost') || ' ' || pg_relation_filepath('torn')",
    );
    let files =
        begun.lines().find_map(|line| line.split_once(' ').filter(|_| line.contains("base/")));
    let (lost, torn) = files.expect("two paths");
    node.sql("checkpoint");
    // No process removes what its transaction made.
    node.stop_at_once();
    drop(session);
    zero(&node.file(lost), 0, 8192);
    flip_bit(&node.file(torn), page_off(1) + 5000);
    node.start();
    let target = node.home().join("backup");
    node.succeed(&mut base_backup_command(&node, &target));
    let log = node.log();
    for (file, what) in [
        (lost, "has blocks but its header is all zeros; its pages are handed on as invalid pages"),
        (torn, "does not authenticate (1 in this read); it is handed on as an invalid page"),
    ] {
        let line = log.lines().find(|line| line.contains(file) && line.contains(what));
        assert!(line.is_some(), "{file}: {what}: {log}");
    }

    // So may be the table of a transaction that goes on.
    let mut session = node.session();
    let path = session.sql(
        "begin; create table later as select g, repeat('x', 900) v from generate_series(1, 200) g; \
         select pg_relation_filepath('later')",
    );
    let later = path.lines().find(|line| line.starts_with("base/")).expect("a path");
    node.sql("checkpoint");
    flip_bit(&node.file(later), page_off(1) + 5000);
    fs::remove_dir_all(&target).expect("it can be removed");
    let said = Outcome::from(base_backup_command(&node, &target).output().expect("it runs"));
    assert_ne!(said.code, 0, "{}", said.text);
    session.sql("rollback");

    // A table that is there stops it, whatever happened to the file.
    let there = node.file(&node.relation("t"));
    node.kill9();
    zero(&there, 0, 8192);
    node.start();
    let said = Outcome::from(base_backup_command(&node, &target).output().expect("it runs"));
    assert_ne!(said.code, 0, "{}", said.text);
    assert!(node.log().contains("its pages are not handed on, restore it"), "{}", node.log());
    node.sql("drop table t");
    node.stop();
}

/// How many blocks of relations did not authenticate since the server started.
fn failed_blocks(node: &Node) -> u64 {
    let said = node.pgseal(&["status", "--prometheus", &node.data().display().to_string()]).text;
    let mut lines = said.lines().filter(|line| line.starts_with("pgseal_failed_blocks_total{"));
    let line = lines.find(|line| line.contains("class=\"relation\"")).expect("the metric");
    let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
    value.expect("a number")
}

/// The sealed bytes of a page.
fn page(file: &[u8], block: u64) -> &[u8] {
    let at = usize::try_from(page_off(block)).expect("a small file");
    &file[at..at + 8192]
}
