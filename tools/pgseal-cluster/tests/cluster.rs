//! Throw-away clusters, plain and sealed, with the installed PostgreSQL.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use pgseal_cluster::{Cluster, ClusterError, Programs, Server, Stop, Tools, free_port, process};
use tempfile::TempDir;

/// A short directory of the servers' user, and the programs of this tree.
fn lab() -> (TempDir, Tools) {
    let dir = tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let built = pgseal_testkit::built_programs().unwrap();
    let bindir = pgseal_testkit::bindir().unwrap();
    let tools = Tools::new(&bindir, &built.pgseal).unwrap();
    let tools = tools.stage(&built, &dir.path().join("bin")).unwrap();
    tools.give(dir.path()).unwrap();
    (dir, tools)
}

fn holds(dir: &std::path::Path, marker: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, marker);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        bytes.windows(marker.len()).any(|window| window == marker)
    })
}

#[test]
fn plain_and_sealed_answer_alike_and_only_the_plain_one_shows_its_rows() {
    let (dir, tools) = lab();
    let marker = "nobody-must-read-this-row";
    let mut answers = Vec::new();
    for (name, suite, visible) in [("plain", None, true), ("sealed", Some("aes-256-gcm"), false)] {
        let cluster = Cluster::create(&tools, dir.path(), name, suite).unwrap();
        let server = cluster.start(&tools, &["shared_buffers=8MB"]).unwrap();
        let target = server.target(&tools, "postgres");
        let mut session = target.session().unwrap();
        session.script(&format!("CREATE TABLE t AS SELECT i, '{marker}' AS x FROM generate_series(1, 500) i; CHECKPOINT")).unwrap();
        answers.push(session.query("SELECT sum(i), max(x) FROM t").unwrap().rows);
        assert_eq!(target.rows("SHOW shared_buffers").unwrap(), "8MB");
        // The kernel counts in hundredths of a second: work that takes many of them.
        let before_s = server.cpu_seconds();
        session.query("SELECT count(md5(i::text)) FROM generate_series(1, 300000) i").unwrap();
        assert!(server.cpu_seconds() > before_s);
        drop(session);
        server.stop().unwrap();
        assert_eq!(holds(&cluster.data, marker.as_bytes()), visible, "{name}");
        // Again, with what it holds.
        let server = cluster.start::<&str>(&tools, &[]).unwrap();
        assert_eq!(
            server.target(&tools, "postgres").rows("SELECT count(*) FROM t").unwrap(),
            "500"
        );
    }
    assert_eq!(answers, [format!("125250|{marker}\n"), format!("125250|{marker}\n")]);
}

#[test]
fn a_session_times_copies_and_says_what_failed() {
    let (dir, tools) = lab();
    let cluster = Cluster::create(&tools, dir.path(), "c", None).unwrap();
    let port = free_port().unwrap();
    let settings = ["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")];
    let server = cluster.start(&tools, &settings).unwrap();
    assert_eq!(server.port(), port);
    let mut target = server.target(&tools, "postgres");
    target.host = "127.0.0.1".as_ref();
    let mut session = target.session().unwrap();
    session.script("CREATE TABLE t (i int, x text)").unwrap();
    let rows = |out: &mut dyn Write| (0..20_000).try_for_each(|i| writeln!(out, "{i}\trow {i}"));
    assert!(session.copy_in("COPY t FROM STDIN", rows).unwrap() > 0.0);
    session
        .feed(|out| (0..5_000).try_for_each(|i| writeln!(out, "INSERT INTO t VALUES ({i}, 'x');")))
        .unwrap();
    let answer = session.query("SELECT count(*), pg_sleep(0.05)::text FROM t;").unwrap();
    assert_eq!(answer.rows, "25000|\n");
    assert!(answer.seconds >= 0.05 && answer.wall_seconds >= answer.seconds, "{answer:?}");
    // Rows that look like psql's own lines stay rows; notices do not become rows.
    session.script("DROP TABLE IF EXISTS nothing").unwrap();
    let answer = session.query("SELECT 'Time: 1.000 ms' FROM generate_series(1, 2)").unwrap();
    assert_eq!(answer.rows, "Time: 1.000 ms\nTime: 1.000 ms\n");

    let error = session.query("SELECT 1/0").unwrap_err();
    assert!(matches!(error, ClusterError::Program { .. }), "{error:?}");
    assert!(error.to_string().contains("division by zero"), "{error}");
    let mut session = target.session().unwrap();
    let error =
        session.copy_in("COPY t FROM STDIN", |out| writeln!(out, "no number\tx")).unwrap_err();
    assert!(error.to_string().contains("invalid input syntax"), "{error}");

    let outcome = target.init(1).unwrap();
    assert!(outcome.value > 0.0 && outcome.client_cpu_s >= 0.0);
    let outcome = target.pgbench(&["-S", "-c", "2", "-t", "50"]).unwrap();
    assert_eq!(outcome.operations, 100.0);
    let outcome = target.sql(&["SELECT pg_sleep(0.02)", "SELECT pg_sleep(0.02)"]).unwrap();
    assert!(outcome.value >= 0.04);
    let database = "nowhere";
    let error = pgseal_cluster::Target { database, ..target }.session().unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_server_is_killed_stopped_at_once_and_ends_when_it_is_dropped() {
    let (dir, tools) = lab();
    let cluster = Cluster::create(&tools, dir.path(), "c", None).unwrap();
    let count =
        |server: &Server| server.target(&tools, "postgres").rows("SELECT count(*) FROM t").unwrap();
    let server = cluster.start::<&str>(&tools, &[]).unwrap();
    server.target(&tools, "postgres").sql(&["CREATE TABLE t AS SELECT 1 AS i"]).unwrap();
    assert!(server.processes().len() > 2);
    server.kill9().unwrap();
    assert_eq!(process::postmaster(&cluster.data), None);

    let server = cluster.start::<&str>(&tools, &[]).unwrap();
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
    assert_eq!(count(&server), "1");
    server.stop_with(Stop::Immediate).unwrap();
    let server = cluster.start::<&str>(&tools, &[]).unwrap();
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
    assert_eq!(count(&server), "1");
    assert_eq!(process::postmaster(&cluster.data), Some(server.postmaster()));
    drop(server);
    assert_eq!(process::all_in(&cluster.data), [] as [u32; 0]);
    let server = cluster.start::<&str>(&tools, &[]).unwrap();
    assert!(!server.log().contains("not properly shut down"), "{}", server.log());
}

#[test]
fn what_is_missing_or_does_not_start_is_named() {
    let (dir, tools) = lab();
    let error = Tools::new(dir.path(), &tools.pgseal).unwrap_err();
    assert!(error.to_string().contains("postgres: there is no such program"), "{error}");
    let cluster = Cluster::create(&tools, dir.path(), "c", None).unwrap();
    let error = cluster.start(&tools, &["shared_buffers=none"]).unwrap_err();
    assert!(error.to_string().contains("shared_buffers"), "{error}");
    let error = Cluster::create(&tools, dir.path(), "d", Some("rot13")).unwrap_err();
    assert!(error.to_string().contains("rot13"), "{error}");
}

#[test]
fn programs_that_are_staged_onto_themselves_stay_whole() {
    let (dir, tools) = lab();
    let bytes = fs::read(&tools.pgseal).unwrap();
    let bin = dir.path().join("bin");
    let library = Some(bin.join("libpgseal.so"));
    let programs = Programs { pgseal: tools.pgseal.clone(), library, guard: None };
    let again = tools.stage(&programs, &bin).unwrap();
    assert!(!bytes.is_empty() && fs::read(&again.pgseal).unwrap() == bytes);
}
