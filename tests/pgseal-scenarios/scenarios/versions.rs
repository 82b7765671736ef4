//! Features of single major versions: asynchronous I/O, WAL summaries, incremental backups,
//! `pg_createsubscriber`. Also checks that every file of a server of the version under test has a
//! class.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use pgseal_scenarios::files::{HEADER, changes, fingerprint, names_in, read, wait_for};
use pgseal_scenarios::mount::{Btrfs, is_shared};
use pgseal_scenarios::paths::{classes, unknown_files};
use pgseal_scenarios::{Node, Outcome, SUM, from_major, is_root, not_applicable, server_major};

const MARKER: &str = "canary-versions-Zq7x";

/// A table over some groups of pages, with a marker in each row.
fn fill(node: &Node) {
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, 40000) g;;
         vacuum (analyze) t;; checkpoint"
    ));
}

/// Makes files of every class, in one server.
#[test]
fn every_file_of_a_busy_server_has_a_class() {
    let major: u32 = server_major().parse().expect("a number");
    let mut settings = vec![
        ("wal_level", "logical"),
        ("track_commit_timestamp", "on"),
        ("max_prepared_transactions", "2"),
        ("logical_decoding_work_mem", "64kB"),
        ("archive_mode", "on"),
        ("archive_command", "true"),
        ("work_mem", "64kB"),
    ];
    if major >= 17 {
        settings.push(("summarize_wal", "on"));
    }
    let mut node = Node::sealed(&settings);
    node.preload_module("pg_stat_statements");
    let tablespace = node.make_dir("tablespace");
    node.start();
    node.sql(&format!(
        "create extension pg_stat_statements;;
         create tablespace ts location '{}';;
         create table t (id int primary key, v text);;
         create table u (v text) tablespace ts;;
         create unlogged table un (v text);;
         insert into t select g, g from generate_series(1, 100) g;;
         select pg_create_physical_replication_slot('physical', true);;
         select pg_create_logical_replication_slot('logical', 'test_decoding');;
         select pg_replication_origin_create('somewhere');;
         begin; select pg_replication_origin_session_setup('somewhere'); \
           select pg_replication_origin_xact_setup('0/1000', now()); \
           insert into t values (1000, ''); commit;;
         create table cat (v text) with (user_catalog_table = true);;
         insert into cat select g from generate_series(1, 100) g;;
         begin; insert into t values (1001, ''); prepare transaction 'later'",
        tablespace.display()
    ));
    // Two lockers of one row make a multixact; a serializable reader, a snapshot, a temporary
    // table, a spill stay open.
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut session = node.session();
        session.sql("begin; select * from t where id = 1 for share");
        open.push(session);
    }
    let mut session = node.session();
    session.sql(
        "create temporary table tmp as select g from generate_series(1, 10000) g; \
         begin isolation level serializable; select count(*) from t; select pg_export_snapshot()",
    );
    open.push(session);
    let mut session = node.session();
    session.sql(
        "begin; declare c cursor for select g from generate_series(1, 100000) g order by -g; \
         fetch 1 from c",
    );
    open.push(session);
    node.sql("vacuum full cat");
    node.sql("checkpoint;; select pg_switch_wal();; checkpoint");
    // Decoding a checkpoint's list of running transactions writes a snapshot file.
    node.sql("select count(*) from pg_logical_slot_peek_changes('logical', null, null)");
    if major >= 17 {
        let dir = node.file("pg_wal/summaries");
        wait_for("a WAL summary", || !summaries_in(&dir).is_empty());
    }
    let mut seen: BTreeSet<&str> = classes(node.data());
    assert_eq!(unknown_files(node.data()), Vec::<String>::new(), "while it runs");
    drop(open);
    node.sql("rollback prepared 'later'");
    node.stop();
    seen.extend(classes(node.data()));
    assert_eq!(unknown_files(node.data()), Vec::<String>::new(), "after shutdown");

    let mut wanted = vec![
        "relation",
        "temporary-relation",
        "temp-file",
        "wal",
        "archive-status",
        "slru",
        "relation-map",
        "control",
        "two-phase",
        "replication-slot-state",
        "logical-snapshot",
        "logical-mapping",
        "replication-origin",
        "exported-snapshot",
        "statistics",
        "statement-texts",
        "relcache-init",
        "version",
        "config",
        "postmaster",
        "own",
    ];
    if major >= 17 {
        wanted.push("wal-summary");
    }
    let missing: Vec<_> = wanted.iter().filter(|class| !seen.contains(**class)).collect();
    assert!(missing.is_empty(), "no file of these classes was made: {missing:?}");
    node.assert_authentic();
}

/// The guard module requires data checksums only when the server starts. If a version had a
/// function that switches them off, the guard module would have to refuse that function.
#[test]
fn no_function_switches_checksums_off() {
    let mut node = Node::sealed(&[]);
    node.start();
    assert_eq!(node.sql("show data_checksums"), "on");
    let functions = "select string_agg(proname, ' ') from pg_proc \
                     where proname ~ 'checksum' and proname !~ '^pg_stat_get_db_checksum'";
    assert_eq!(node.sql(functions), "");
    let set = node.try_sql("alter system set data_checksums = off");
    assert!(set.is_err_and(|text| text.contains("cannot be changed")), "ALTER SYSTEM");
    node.stop();
}

/// Asynchronous I/O of 18 and later, in the backend or in I/O workers.
#[test]
fn asynchronous_io_by_method() {
    if !from_major(18, "asynchronous_io_by_method") {
        return;
    }
    let mut node = Node::sealed(&[("shared_buffers", "2MB")]);
    node.start();
    assert_eq!(node.sql("show data_checksums"), "on");
    fill(&node);
    let truth = node.sql(SUM);
    node.stop();
    for method in ["sync", "worker"] {
        node.configure(&format!("io_method = {method}"));
        node.start();
        assert_eq!(node.sql("show io_method"), method);
        // Far more than the buffers hold, read and written: merged reads, prefetching, VACUUM,
        // an index built, a bitmap scan.
        assert_eq!(node.sql(SUM), truth, "{method}");
        node.sql(&format!(
            "update t set v = v where id % 3 = 0;; vacuum t;; checkpoint;;
             create index i_{method} on t (md5(v));; analyze t"
        ));
        let rows = node.sql(
            "set enable_seqscan = off;; set enable_indexscan = off;; \
             select count(*) from t where id between 500 and 30000",
        );
        assert_eq!(rows, "29501", "{method}");
        assert_eq!(node.sql(SUM), truth, "{method}");
        node.kill9();
        node.start();
        assert_eq!(node.sql(SUM), truth, "{method}, after a crash");
        node.stop();
        node.assert_sound(MARKER);
    }

    node.configure("io_method = io_uring");
    let before = fingerprint(node.data());
    let log = node.try_start().expect_err("a start with io_uring");
    // A server that was built without liburing does not accept this value.
    let built = !log.contains("invalid value for parameter \"io_method\"");
    if built {
        assert!(log.contains("cannot seal what is written with io_method = io_uring"), "{log}");
        assert!(log.contains("Set io_method = worker in postgresql.conf."), "{log}");
    }
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());
    // Without the guard module (initdb, single-user mode), the library refuses io_uring.
    if built {
        let dir = node.home().join("never-made");
        let mut command = node.command("initdb");
        command.args(["-c", "io_method=io_uring", "-D"]).arg(&dir);
        command.env("PGSEAL_KEYRING_FROM", node.data().join("pgseal/keyring"));
        let outcome = Outcome::from(command.output().expect("initdb"));
        assert_ne!(outcome.code, 0, "{}", outcome.text);
        let refusal = "io_uring would read and write sealed files past the seal";
        assert!(outcome.text.contains(refusal), "{}", outcome.text);
        let mut command = node.command("postgres");
        command.args(["--single", "-c", "shared_preload_libraries=", "-c", "io_method=io_uring"]);
        command.arg("-D").arg(node.data()).arg("postgres").stdin(Stdio::null());
        let outcome = Outcome::from(command.output().expect("postgres --single"));
        assert_ne!(outcome.code, 0, "{}", outcome.text);
        assert!(outcome.text.contains(refusal), "{}", outcome.text);
    }
    node.configure("io_method = worker");
    node.start();
    assert_eq!(node.sql(SUM), truth);
    node.stop();
}

/// The summaries in a directory, except the unfinished one.
fn summaries_in(dir: &Path) -> Vec<String> {
    let mut names = names_in(dir);
    names.retain(|name| name.ends_with(".summary") && name != "temp.summary");
    names
}

/// A base backup sealed with the keyring of its server.
fn base_backup(node: &Node, target: &Path, options: &[&str]) {
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.env("PGSEAL_KEYRING_FROM", node.file("pgseal/keyring"));
    backup.args(["-X", "stream", "--no-sync", "-c", "fast", "-D"]).arg(target).args(options);
    node.succeed(&mut backup);
}

#[test]
fn wal_summaries_incremental_backups_and_pg_combinebackup() {
    if !from_major(17, "wal_summaries_incremental_backups_and_pg_combinebackup") {
        return;
    }
    // From 18 on, --link is possible, which uses the backups up, so it comes last.
    let methods: &[&str] = match server_major().as_str() {
        "17" => &["--no-sync", "--copy-file-range"],
        _ => &["--copy", "--copy-file-range", "--link"],
    };
    let mut node = Node::sealed(&[("summarize_wal", "on"), ("wal_keep_size", "64MB")]);
    let place = node.make_dir("backups");
    incremental_backups(&mut node, &place, methods);
}

/// Where the file system can clone, files of the full backup that have not changed are clones.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_combinebackup_by_cloning() {
    let test = "pg_combinebackup_by_cloning";
    if !from_major(17, test) {
        return;
    }
    if !is_root() {
        return not_applicable(test, "mounting needs root");
    }
    let mut node = Node::sealed(&[("summarize_wal", "on"), ("wal_keep_size", "64MB")]);
    let btrfs = Btrfs::mount(&node.home().join("btrfs"));
    incremental_backups(&mut node, btrfs.path(), &["--copy-file-range", "--clone"]);
}

/// Backups in `place`, combined there by each of these methods.
fn incremental_backups(node: &mut Node, place: &Path, methods: &[&str]) {
    node.start();
    fill(node);
    node.sql("create table constant as select * from t;; vacuum constant");
    let constant = node.relation("constant");
    let full = place.join("full");
    base_backup(node, &full, &[]);
    node.sql("update t set v = v || ' more' where id % 400 = 0;; checkpoint");
    let first = place.join("first");
    let manifest = |dir: &Path| format!("--incremental={}", dir.join("backup_manifest").display());
    base_backup(node, &first, &[&manifest(&full)]);
    node.sql(&format!("insert into t select g, '{MARKER}' from generate_series(50000, 50100) g"));
    let second = place.join("second");
    base_backup(node, &second, &[&manifest(&first)]);
    let truth = node.sql(SUM);

    // pg_walsummary can read a summary under the library, and not without it.
    let summaries = node.file("pg_wal/summaries");
    wait_for("WAL summaries", || !summaries_in(&summaries).is_empty());
    let names = summaries_in(&summaries);
    let said: String = names
        .iter()
        .map(|name| node.succeed(node.command("pg_walsummary").arg(summaries.join(name))))
        .collect();
    assert!(said.contains("FORK main: block"), "{said}");
    let bare = node.bare("pg_walsummary").arg(summaries.join(&names[0])).output();
    assert_ne!(Outcome::from(bare.expect("it runs")).code, 0, "a sealed summary was read bare");
    node.stop();

    for dir in [&full, &first, &second] {
        node.assert_sound_at(dir, MARKER);
        let said = node.succeed(node.command("pg_verifybackup").arg(dir));
        assert!(said.contains("backup successfully verified"), "{said}");
    }
    for (index, method) in methods.iter().enumerate() {
        let combined = place.join(format!("combined{index}"));
        let mut combine = node.command("pg_combinebackup");
        combine.arg(method).arg("-o").arg(&combined).args([&full, &first, &second]);
        node.succeed(&mut combine);
        node.assert_sound_at(&combined, MARKER);
        // A linked file has its old header; a copied file has a new one.
        let file = combined.join(&constant);
        let as_it_is = matches!(*method, "--link" | "--clone");
        let same = read(&file, 0, HEADER) == read(&full.join(&constant), 0, HEADER);
        assert_eq!(same, as_it_is, "{method}: header");
        assert!(*method != "--clone" || is_shared(&file), "{method}: blocks on the disk");
        let said = node.succeed(node.command("pg_verifybackup").arg(&combined));
        assert!(said.contains("backup successfully verified"), "{said}");
        node.set_data(&combined);
        node.start();
        assert_eq!(node.sql(SUM), truth, "{method}");
        // Writing to a clone does not change the original.
        node.sql("update constant set v = v || ' again';; checkpoint");
        node.stop();
        node.assert_sound_at(&combined, MARKER);
        if *method != "--link" {
            node.assert_sound_at(&full, MARKER);
        }
    }
}

#[test]
fn pg_createsubscriber() {
    if !from_major(17, "pg_createsubscriber") {
        return;
    }
    let settings = [("wal_level", "logical"), ("max_wal_senders", "8"), ("wal_keep_size", "64MB")];
    let mut primary = Node::sealed(&settings);
    primary.start();
    fill(&primary);
    let target = primary.home().join("subscriber");
    base_backup(&primary, &target, &["-R"]);
    let mut standby = Node::at(&primary, &target);
    standby.configure("hot_standby = on");
    standby.start();
    standby.wait_until("select count(*) = 40000 from t");
    standby.stop();

    let mut create = standby.command("pg_createsubscriber");
    let server = format!(
        "host={} port={} user=postgres dbname=postgres",
        primary.home().display(),
        primary.sql("show port")
    );
    create.arg("-D").arg(&target).args(["-d", "postgres", "-P", &server, "-U", "postgres"]);
    create.arg("-s").arg(primary.home());
    primary.succeed(create.args(["--subscription=sub", "--publication=pub"]));
    primary.sql(&format!("insert into t values (90000, '{MARKER} by subscription')"));
    standby.start();
    standby.wait_until("select count(*) = 1 from t where id = 90000");
    assert_eq!(standby.sql(SUM), primary.sql(SUM));
    standby.stop();
    primary.stop();
    standby.assert_sound_at(&target, MARKER);
    primary.assert_sound(MARKER);
    assert!(fs::exists(target.join("pgseal/keyring")).is_ok_and(|there| there));
}
