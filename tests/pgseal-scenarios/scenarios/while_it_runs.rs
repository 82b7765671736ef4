//! What the server knows of its files while it runs (`spec/while-it-runs.md`): older pages and
//! files that were cut are noticed, the relation can be repaired, and there is no false alarm.

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgseal_core::{Layout, PlainLen, geometry};
use pgseal_scenarios::backup::base_backup_command;
use pgseal_scenarios::files::{page_off, truncate};
use pgseal_scenarios::{Keys, Node, programs, server_major};
use pgseal_testkit::{Cluster, Sealing};
use rustix::process::{Pid, Signal, kill_process};

/// Words of a line in the log that says that somebody changed a file.
const ALARMS: [&str; 4] =
    ["older version", "somebody cut", "does not authenticate", "invalid page"];

fn fill(node: &Node, table: &str) {
    node.sql(&format!(
        "create table {table} (id int, v text);;
         insert into {table} select g, repeat(md5(g::text), 3) from generate_series(1, 2500) g"
    ));
}

fn rows(table: &str) -> String {
    format!("select count(*), sum(hashtext(v)) from {table}")
}

/// Sealed with this suite, with buffers for 16 pages: what was read last throws the rest out.
fn node(suite: &str) -> Node {
    node_with(suite, &[])
}

fn node_with(suite: &str, settings: &[(&str, &str)]) -> Node {
    let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
    let builder = Cluster::builder().sealed(sealing).programs(programs());
    Node::create(builder, &[&[("shared_buffers", "128kB")], settings].concat())
}

const TABLES: [&str; 8] =
    ["t_read", "t_drop", "t_truncate", "t_full", "t_restore", "t_insert", "t_empty", "t_gone"];

/// Each change of a length is an error, and every way to repair the relation works.
fn check_cuts(mut node: Node, suite_has_tags: bool) {
    node.start();
    for table in TABLES.iter().chain(&["keep"]) {
        fill(&node, table);
    }
    node.sql("create index i_cut on keep (v);; vacuum;; checkpoint");
    let truth: Vec<String> = TABLES.iter().map(|table| node.sql(&rows(table))).collect();
    let keep = node.sql(&rows("keep"));
    let kept = node.home().join("kept");
    fs::copy(node.file(&node.relation("t_restore")), &kept).expect("a copy");
    let index = node.relation("i_cut");
    let scan = "set enable_seqscan = off;; set enable_bitmapscan = off;;
                select count(*) from keep where v > ''";
    node.sql(scan);
    node.sql(&rows("keep"));
    let files: Vec<String> = TABLES.iter().map(|table| node.relation(table)).collect();
    for (table, file) in TABLES.iter().zip(&files) {
        let len = match *table {
            "t_empty" => 0,
            "t_gone" => page_off(0),
            _ => page_off(9),
        };
        truncate(&node.file(file), len);
    }
    truncate(&node.file(&index), page_off(5));

    for table in TABLES {
        let error = node.try_sql(&rows(table)).expect_err("pages are missing");
        assert!(error.contains("invalid page in block"), "{table}: {error}");
        // The size is what it was.
        let pages = node.sql(&format!("select pg_relation_size('{table}') / 8192"));
        assert!(pages.parse::<u32>().is_ok_and(|pages| pages > 30), "{table}: {pages}");
    }
    let error = node.try_sql(scan).expect_err("pages of the index are missing");
    assert!(error.contains("invalid page in block"), "{error}");
    let log = node.log();
    for file in files.iter().chain([&index]) {
        let line = log.lines().find(|line| line.contains(file) && line.contains("somebody cut"));
        assert!(line.is_some(), "{file}\n{log}");
    }
    // Nothing hides what is missing: not a base backup, not a new row behind the end.
    let backup = node.home().join("backup");
    let output = base_backup_command(&node, &backup).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("checksum"), "{said}");
    let error = node.try_sql("insert into t_insert select g, 'x' from generate_series(1, 900) g");
    error.expect_err("the table is not lengthened");
    for table in ["t_insert", "t_read"] {
        node.try_sql(&rows(table)).expect_err("pages are still missing");
    }

    // A process that is killed changes nothing of what is known, and the recovery writes what the
    // WAL has: of one table all pages, of the other one the last page.
    for table in ["t_redo", "t_hole"] {
        fill(&node, table);
    }
    node.sql("vacuum t_redo, t_hole;; checkpoint");
    node.sql("update t_redo set v = 'n';; update t_hole set v = 'n' where id = 2500");
    let redone = node.sql(&rows("t_redo"));
    for table in ["t_redo", "t_hole"] {
        truncate(&node.file(&node.relation(table)), page_off(9));
    }
    let mut session = node.session();
    kill(&session.sql("select pg_backend_pid()"));
    let _ = session.run("select 1");
    node.wait_until("select true");
    node.try_sql(&rows("t_read")).expect_err("pages are missing after the recovery, too");
    assert_eq!(node.sql(&rows("t_redo")), redone);
    // Without tags a hole is zeros.
    let hole = node.try_sql(&rows("t_hole"));
    assert_eq!(hole.is_err(), suite_has_tags, "{hole:?}");
    node.sql("drop table t_hole");

    node.sql("drop table t_drop;; truncate t_truncate;; drop table t_insert;; drop table t_gone");
    assert_eq!(node.sql(&rows("t_truncate")), "0|");
    node.sql("insert into t_truncate values (1, 'anew');; reindex index i_cut");
    assert_eq!(node.sql(scan), "2500");
    assert_eq!(node.sql(&rows("keep")), keep);
    node.try_sql("vacuum full t_full").expect_err("its rows are not all there");
    node.sql("drop table t_full;; truncate t_empty;; checkpoint");
    // The file as it was, put back below the running server.
    fs::write(node.file(&files[4]), fs::read(&kept).expect("the copy")).expect("it is written");
    assert_eq!(node.sql(&rows("t_restore")), truth[4]);
    node.sql("drop table t_read;; vacuum;; checkpoint");
    // New tables under all names begin anew, and a new database has the same numbers.
    for table in ["t_drop", "t_read"] {
        fill(&node, table);
        assert_eq!(node.sql(&rows(table)), truth[0]);
    }
    node.sql(
        "create database again strategy file_copy;; drop database again;;
              create database again strategy wal_log;; drop database again",
    );
    node.clear_log();
    node.stop();
    node.start();
    assert_eq!(node.sql(&rows("keep")), keep);
    node.stop();
    assert_eq!(node.verify().code, 0);
    assert_calm(&node);
}

fn kill(pid: &str) {
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::KILL).expect("the process is there");
}

#[track_caller]
fn assert_calm(node: &Node) {
    let log = node.log();
    for alarm in ALARMS {
        let line = log.lines().find(|line| line.contains(alarm));
        assert!(line.is_none(), "{line:?}");
    }
}

#[test]
fn a_cut_is_noticed_and_repaired() {
    check_cuts(node("aes-256-gcm"), true);
}

#[test]
fn a_cut_is_noticed_and_repaired_in_xts() {
    check_cuts(node("aes-256-xts"), false);
}

/// A later segment that is removed below the running server is no shorter table. Its first segment
/// is full of pages that were never written: a hole, made while the server is down after a crash,
/// when no manifest lists the file's length.
#[test]
fn a_segment_that_was_removed_is_noticed() {
    // A process that has the file open reads on in it, as the I/O workers of PostgreSQL 18 do.
    let has_workers = server_major().parse::<u32>().is_ok_and(|major| major >= 18);
    let settings: &[(&str, &str)] = if has_workers { &[("io_method", "sync")] } else { &[] };
    let mut node = node_with("aes-256-gcm", settings);
    node.start();
    fill(&node, "t");
    node.sql("checkpoint");
    let file = node.file(&node.relation("t"));
    let second = file.with_extension("1");
    node.kill9();
    let full = geometry::sealed_len(Layout::Paged, PlainLen(1 << 30));
    OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|opened| opened.set_len(full.0))
        .expect("the hole");
    node.start();
    node.sql("insert into t select g, repeat('n', 900) from generate_series(1, 2000) g");
    node.sql("checkpoint");
    assert!(second.exists(), "{} is not there", second.display());
    let end = "select count(*) from t where ctid >= '(131072,0)'";
    assert_ne!(node.sql(end), "0");
    // The read set hint bits. A page that cannot be written would keep new connections out.
    node.sql("checkpoint");

    fs::remove_file(&second).expect("the second segment");
    for statement in [end, "select count(*) from t", "vacuum (disable_page_skipping) t"] {
        let error = node.try_sql(statement).expect_err("the second segment is missing");
        assert!(error.contains("invalid page in block"), "{statement}: {error}");
    }
    let insert = "insert into t select g, repeat('m', 900) from generate_series(1, 2000) g";
    let size = "select pg_relation_size('t')";
    for (statement, words) in [(insert, ""), (size, "Input/output error")] {
        let error = node.try_sql(statement).expect_err("the second segment is missing");
        assert!(error.contains(words), "{statement}: {error}");
    }
    assert!(!second.exists(), "{} was made anew", second.display());
    let log = node.log();
    let name = node.relation("t") + ".1";
    let told = |line: &str| line.contains(&name) && line.contains("was removed while the server");
    assert!(log.lines().any(told), "{log}");
    node.sql("drop table t");
    fill(&node, "t");
    assert_eq!(node.sql("select count(*) from t"), "2500");
    node.stop();
}

/// A standby notices what is done to its own files, replays on, and can be repaired.
#[test]
fn a_standby_notices_it_too() {
    let mut primary = Node::sealed(&[("shared_buffers", "128kB")]);
    primary.start();
    for table in ["t_cut", "t_older", "t_drop", "keep"] {
        fill(&primary, table);
    }
    primary.sql("vacuum;; checkpoint");
    let mut standby = primary.standby(&primary, "standby", Keys::Same);
    standby.start();
    standby.catch_up(&primary);
    for table in ["t_cut", "t_older", "t_drop", "keep"] {
        assert_eq!(standby.sql(&rows(table)), primary.sql(&rows(table)));
    }
    let older = standby.file(&primary.relation("t_older"));
    let old = fs::read(&older).expect("the file");
    primary.sql("update t_older set v = 'new';; checkpoint");
    standby.catch_up(&primary);
    // Written out, and out of the buffers.
    standby.sql("checkpoint");
    standby.sql(&rows("t_older"));
    standby.sql(&rows("keep"));
    // All pages of before; the new ones stay behind them.
    let mut file = fs::read(&older).expect("the file");
    file[..old.len()].copy_from_slice(&old);
    fs::write(&older, &file).expect("it can be written");
    for table in ["t_cut", "t_drop"] {
        truncate(&standby.file(&primary.relation(table)), page_off(9));
    }
    for table in ["t_cut", "t_older"] {
        let error = standby.try_sql(&rows(table)).expect_err("pages are older, or missing");
        assert!(error.contains("invalid page in block"), "{error}");
    }
    // What the WAL has of a page behind the cut is written, and the standby goes on.
    primary.sql("checkpoint;; update t_cut set v = 'n' where id > 2400");
    standby.catch_up(&primary);
    standby.sql(&rows("keep"));
    standby.sql("checkpoint");
    standby.try_sql(&rows("t_cut")).expect_err("pages are lost");
    primary.sql("drop table t_drop;; truncate t_cut;; vacuum full t_older;; delete from keep");
    primary.sql("vacuum keep");
    standby.catch_up(&primary);
    for table in ["t_cut", "t_older", "keep"] {
        assert_eq!(standby.sql(&rows(table)), primary.sql(&rows(table)));
    }
    standby.stop();
    primary.stop();
}

/// What the load does beside pgbench. Each statement may fail because the server restarts.
const STATEMENTS: [&str; 12] = [
    "vacuum full pgbench_accounts",
    "truncate pgbench_history",
    "vacuum pgbench_branches, pgbench_tellers, pgbench_accounts",
    "create table if not exists s as select g as id, repeat('x', 500) as v from generate_series(1, 5000) g",
    "delete from s where id > 100;; vacuum s;; insert into s select g, repeat('y', 500) from generate_series(1, 3000) g",
    "create index concurrently if not exists s_id on s (id)",
    "checkpoint",
    "truncate s",
    "drop table if exists s",
    "create database d strategy file_copy",
    "drop database if exists d",
    "create unlogged table if not exists u as select g from generate_series(1, 3000) g;; insert into u select * from u limit 3000;; create temp table x as select g, repeat('z', 900) from generate_series(1, 3000) g;; update x set g = 1;; drop table x",
];

/// Load of all kinds with few buffers and a small table, so that pages push each other out, while
/// processes are killed: there is no false alarm, neither in the log nor as an error.
fn check_load(time: Duration) {
    let mut node = Node::sealed(&[
        ("shared_buffers", "1MB"),
        ("checkpoint_timeout", "30s"),
        ("autovacuum", "on"),
        ("autovacuum_naptime", "1s"),
        ("bgwriter_delay", "10ms"),
    ]);
    node.set_env("PGSEAL_WATCHED_GB", "1");
    node.start();
    let pgbench_command = |words: &str| {
        let mut command = node.command("pgbench");
        node.connected(&mut command);
        command.args(words.split(' '));
        command
    };
    node.succeed(&mut pgbench_command("-i -q -s 3"));
    let (node, stop) = (&node, &AtomicBool::new(false));
    let pgbench = || {
        while !stop.load(Ordering::Relaxed) {
            // Ends with an error when the server restarts.
            let output = pgbench_command("-c 3 -T 3 -n").output();
            let output = output.expect("pgbench runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!ALARMS.iter().any(|alarm| said.contains(alarm)), "{said}");
        }
    };
    let statements = |first: usize| {
        let mut at = first;
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = node.try_sql(STATEMENTS[at % STATEMENTS.len()]) {
                assert!(!ALARMS.iter().any(|alarm| error.contains(alarm)), "{error}");
            }
            at += 1;
        }
    };
    thread::scope(|scope| {
        scope.spawn(pgbench);
        scope.spawn(move || statements(0));
        scope.spawn(move || statements(5));
        let end = Instant::now() + time;
        let mut kills = 0;
        while Instant::now() < end {
            thread::sleep(time / 5);
            // Whoever is busy: the checkpointer, too.
            let busy = "select pid from pg_stat_activity where pid <> pg_backend_pid()
                        and backend_type in ('client backend', 'checkpointer', 'background writer')
                        order by random() limit 1";
            if let Ok(pid) = node.try_sql(busy) {
                kill(&pid);
                kills += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(kills > 0, "nobody was killed");
    });
    assert_calm(node);
}

#[test]
fn there_is_no_false_alarm() {
    check_load(Duration::from_secs(12));
}

#[test]
#[ignore = "long: make test-scenarios"]
fn there_is_no_false_alarm_for_a_minute() {
    check_load(Duration::from_secs(60));
}
