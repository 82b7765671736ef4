//! PostgreSQL's own tools on a sealed cluster. Each test ends with `pgseal verify` and a search for
//! the marker in all files that the tool has written.

use std::fs;
use std::path::{Path, PathBuf};

use pgseal_scenarios::backup::text;
use pgseal_scenarios::{Node, Outcome, assert_hidden, assert_shown};
use pgseal_testkit::{Cluster, Sealing};

const MARKER: &str = "canary-tools-Zq7x";

/// A sealed cluster with a table that holds the marker; not running.
fn node(settings: &[(&str, &str)]) -> Node {
    let mut node = Node::sealed(settings);
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 1000) g;;
         checkpoint"
    ));
    node.stop();
    node
}

#[test]
fn pg_controldata_and_pg_resetwal() {
    let node = node(&[]);
    // pg_control is plain, so the output is the same with and without the library.
    let sealed = node.succeed(node.command("pg_controldata").arg(node.data()));
    let bare = node.succeed(node.bare("pg_controldata").arg(node.data()));
    assert!(sealed.contains("Database cluster state:               shut down"), "{sealed}");
    assert!(sealed.contains("Data page checksum version:           1"), "{sealed}");
    assert_eq!(sealed, bare);

    let output = node.succeed(node.command("pg_resetwal").arg("-n").arg("-D").arg(node.data()));
    assert!(output.contains("Current pg_control values"), "{output}");
    node.assert_sound(MARKER);
}

#[test]
fn pg_checksums() {
    let mut node = node(&[]);
    let check =
        node.succeed(node.command("pg_checksums").arg("--check").arg("-D").arg(node.data()));
    assert!(check.contains("Bad checksums:  0"), "{check}");
    // Checksums can be switched off; the server then refuses to start (refusals.rs).
    // Switching them on again writes and seals every page.
    node.succeed(node.command("pg_checksums").arg("--disable").arg("-D").arg(node.data()));
    node.succeed(node.command("pg_checksums").arg("--enable").arg("-D").arg(node.data()));
    let check =
        node.succeed(node.command("pg_checksums").arg("--check").arg("-D").arg(node.data()));
    assert!(check.contains("Bad checksums:  0"), "{check}");
    node.assert_sound(MARKER);
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "1000");
    node.stop();

    // Without the library, the tool reads sealed bytes: no page is valid, and none is changed.
    let bare = node.bare("pg_checksums").arg("--check").arg("-D").arg(node.data()).output();
    assert_ne!(Outcome::from(bare.expect("it runs")).code, 0);
    node.assert_sound(MARKER);
}

#[test]
fn pg_waldump() {
    let mut node = node(&[]);
    node.start();
    // From the beginning of a segment, so that all of it is in one.
    node.sql("select pg_switch_wal();; create table filler (x int)");
    let segment = node.sql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    let start = node.sql("select pg_current_wal_insert_lsn()");
    node.sql("insert into t values (5000, 'one more')");
    let path = node.file("pg_wal").join(&segment);
    let mut waldump = node.command("pg_waldump");
    waldump.args(["--start", &start, "--limit", "20"]).arg(&path);
    // pg_waldump reports an error at the end of WAL, but prints the records before it.
    let outcome = Outcome::from(waldump.output().expect("it runs"));
    assert!(outcome.text.contains("INSERT"), "{}", outcome.text);
    assert!(outcome.text.contains("COMMIT"), "{}", outcome.text);
    let bare = Outcome::from(node.bare("pg_waldump").arg(&path).output().expect("it runs"));
    assert_ne!(bare.code, 0, "{}", bare.text);
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
fn pg_amcheck_pg_dump_and_pg_restore() {
    let mut node = node(&[]);
    node.start();
    node.sql("create extension amcheck");
    let mut amcheck = node.command("pg_amcheck");
    node.connected(&mut amcheck);
    node.succeed(amcheck.args(["--heapallindexed", "-d", "postgres"]));

    // A dump belongs to the client and is plain. The client must protect it.
    let dump = node.home().join("dump");
    node.succeed(node.bare("pg_dump").args(["-Fc", "-Z0", "-f"]).arg(&dump));
    assert_shown(&dump, MARKER);
    node.sql("create database copy");
    node.succeed(node.bare("pg_restore").args(["-d", "copy"]).arg(&dump));
    let mut count = node.bare("psql");
    count.args(["-XAt", "-d", "copy", "-c", "select count(*) from t"]);
    assert_eq!(node.succeed(&mut count).trim(), "1000");
    node.stop();
    node.assert_sound(MARKER);
}

/// A base backup with the keyring of its server starts with the same key.
fn base_backup(node: &Node, name: &str, options: &[&str]) -> PathBuf {
    let target = node.home().join(name);
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.env("PGSEAL_KEYRING_FROM", node.file("pgseal/keyring"));
    backup.args(["-X", "stream", "--no-sync", "-c", "fast", "-D"]).arg(&target).args(options);
    node.succeed(&mut backup);
    target
}

#[test]
fn pg_basebackup_and_pg_verifybackup() {
    let mut node = node(&[]);
    node.start();

    // With the library but without keys for the copy, the copy would be plain: refused.
    let target = node.home().join("unsealed");
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    let refused = backup.args(["-c", "fast", "-D"]).arg(&target).output().expect("it runs");
    let refused = Outcome::from(refused);
    assert_ne!(refused.code, 0, "{}", refused.text);
    assert!(refused.text.contains("would write an unsealed copy"), "{}", refused.text);
    assert_hidden(&[node.home()], MARKER);

    let backup = base_backup(&node, "backup", &[]);
    node.assert_sound_at(&backup, MARKER);
    let said = node.succeed(node.command("pg_verifybackup").arg(&backup));
    assert!(said.contains("backup successfully verified"), "{said}");

    // A sealed copy with a key and keyring of its own.
    let own = node.home().join("own");
    let mut command = node.command("pg_basebackup");
    node.connected(&mut command);
    command.env("PGSEAL_PROVIDER", format!("file:{}", text(&node.home().join("key"))));
    node.succeed(command.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&own));
    node.assert_sound_at(&own, MARKER);
    let keyring = |dir: &Path| fs::read(dir.join("pgseal/keyring")).expect("a keyring");
    assert_eq!(keyring(&backup), keyring(node.data()));
    assert_ne!(keyring(&own), keyring(node.data()));
    node.stop();

    // Both start and show the rows.
    for dir in [backup, own] {
        node.set_data(&dir);
        node.start();
        assert_eq!(node.sql(&format!("select count(*) from t where v like '{MARKER}%'")), "1000");
        node.stop();
        node.assert_sound_at(&dir, MARKER);
    }
}

/// The WAL of a backup may lie elsewhere. `pg_verifybackup` runs `pg_waldump` on it, without
/// telling it where the backup with the keyring is.
#[test]
fn pg_verifybackup_finds_the_keys_of_wal_that_lies_elsewhere() {
    let mut node = node(&[]);
    node.start();
    let backup = node.home().join("own");
    let mut command = node.command("pg_basebackup");
    node.connected(&mut command);
    command.env("PGSEAL_PROVIDER", format!("file:{}", text(&node.home().join("key"))));
    node.succeed(command.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&backup));
    node.stop();
    let wal = node.home().join("wal");
    fs::rename(backup.join("pg_wal"), &wal).expect("a move");
    let verify = |dir: &Path, more: &str| -> Outcome {
        let mut command = node.command("pg_verifybackup");
        command.env_remove("PGSEAL_DATA").current_dir(node.home());
        if !more.is_empty() {
            command.env("PGSEAL_DATA", more);
        }
        command.arg("-w").arg(&wal).arg(dir).output().expect("it runs").into()
    };
    // The backup is given by its absolute path, by a relative path, and in a list with other paths.
    for (dir, more) in [(&*backup, ""), (Path::new("own"), ""), (&*backup, "/nowhere:/tmp")] {
        let said = verify(dir, more);
        assert_eq!(said.code, 0, "{}", said.text);
        assert!(said.text.contains("backup successfully verified"), "{}", said.text);
    }
}

#[test]
fn a_standby_is_promoted() {
    let mut primary = node(&[("max_wal_senders", "4"), ("wal_keep_size", "32MB")]);
    primary.start();
    let target = base_backup(&primary, "standby", &["-R"]);
    let mut standby = Node::at(&primary, &target);
    standby.configure("hot_standby = on");
    standby.start();

    primary.sql(&format!(
        "insert into t values (2000, '{MARKER} replicated');; create table later (x int)"
    ));
    let lsn = primary.sql("select pg_current_wal_flush_lsn()");
    let arrived = format!("select pg_last_wal_replay_lsn() >= '{lsn}'");
    standby.wait_until(&arrived);
    assert_eq!(standby.sql("select count(*) from t"), "1001");
    assert!(standby.try_sql("insert into t values (1, 'no')").is_err(), "a standby is read-only");

    primary.kill9();
    standby.sql("select pg_promote()");
    standby.wait_until("select not pg_is_in_recovery()");
    standby.sql(&format!("insert into t values (3000, '{MARKER} after');; checkpoint"));
    assert_eq!(standby.sql("select count(*) from t"), "1002");
    standby.stop();
    // The new timeline survives a start.
    standby.start();
    assert_eq!(standby.sql("select count(*) from t"), "1002");
    standby.stop();
    standby.assert_sound_at(&target, MARKER);
    primary.assert_sound(MARKER);
}

/// With the key, a plain copy of a sealed cluster can be made.
#[test]
fn an_unsealed_copy_is_written_only_when_asked_for() {
    let mut node = node(&[]);
    node.start();
    let target = node.home().join("plain");
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.env("PGSEAL_UNSEALED_COPY", "yes");
    node.succeed(backup.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&target));
    node.stop();
    assert_shown(&target, MARKER);
    assert!(!target.join("pgseal").exists());
    node.assert_sound(MARKER);
}

/// XTS and CTR clusters pass the same test.
#[test]
fn other_suites_live_and_crash_too() {
    for suite in ["aes-128-gcm", "aes-256-xts", "aes-256-ctr", "aegis-256x2"] {
        let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
        let builder = Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs());
        let mut node = Node::create(builder, &[]);
        node.start();
        node.sql(&format!(
            "create table t as select g, '{MARKER}' || g as v from generate_series(1, 5000) g;;
             create index on t (v);; checkpoint;; update t set v = v || 'x'"
        ));
        node.kill9();
        node.start();
        assert_eq!(node.sql("select count(*) from t where v like '%x'"), "5000", "{suite}");
        node.stop();
        node.assert_sound(MARKER);
    }
}
