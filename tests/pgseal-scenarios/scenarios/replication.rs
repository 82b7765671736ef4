//! Streaming replication between servers that each seal their own storage: with the same keys, with
//! different keys, with another suite, or with a plain server. docs/replication.md shows the
//! commands.

use std::time::Duration;

use pgseal_scenarios::files::wait_for;
use pgseal_scenarios::{Keys, Ledger, Node, assert_hidden, assert_same_contents};

const MARKER: &str = "canary-replica-Zq7x";
const CLIENTS: usize = 3;

/// A primary with some rows that carry the marker, and the module that checks them.
fn prepare(primary: &Node) {
    primary.sql(&format!(
        "create extension amcheck;;
         create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, 5000) g;;
         create sequence s;; create unlogged table un as select g from generate_series(1, 10) g;;
         vacuum (analyze) t"
    ));
}

fn primary(settings: &[(&str, &str)]) -> Node {
    let mut primary = Node::sealed(settings);
    primary.start();
    prepare(&primary);
    primary
}

/// Runs statements whose replay on a standby writes all kinds of files.
fn churn(primary: &Node) {
    primary.sql(&format!(
        "update t set v = v || '.' where id % 5 = 0;; vacuum t;;
         create table more as select g, '{MARKER}' || g v from generate_series(1, 20000) g;;
         create index on more (v);; create index on more using gin (string_to_array(v, '1'));;
         alter table more add primary key (g);; truncate t;;
         insert into t select g, '{MARKER} anew' from generate_series(1, 3000) g;;
         create materialized view m as select count(*) from more;; vacuum full more;;
         create database other;; select nextval('s');; reindex table more;; checkpoint"
    ));
}

/// Writes enough WAL that segments are recycled.
fn churn_more(primary: &Node) {
    for _ in 0..4 {
        primary.sql("update t set v = v || '.';; update more set v = v || '.';; checkpoint");
    }
}

/// A synchronous standby with `remote_apply` and a cascading one behind it, with three keys and
/// three suites. The primary is killed, and no transaction that a client saw committed is lost.
#[test]
fn synchronous_and_cascading_standbys_with_keys_and_suites_of_their_own() {
    let mut primary = primary(&[("synchronous_commit", "remote_apply")]);
    let mut second = primary.standby(&primary, "second", Keys::Own("aes-256-xts"));
    second.start();
    let mut third = second.standby(&primary, "third", Keys::Own("aes-128-gcm"));
    third.start();
    primary.sql(
        "alter system set synchronous_standby_names = 'FIRST 1 (second)';; select pg_reload_conf()",
    );
    primary.wait_until(
        "select count(*) = 1 from pg_stat_replication where sync_state = 'sync' \
         and application_name = 'second'",
    );
    let mut ledger = Ledger::create(&primary, CLIENTS);
    ledger.start(&primary);
    churn(&primary);
    // A committed row can be read on the standby at once.
    primary.sql("insert into t values (10000, 'applied')");
    assert_eq!(second.sql("select v from t where id = 10000"), "applied");
    // The cascading standby is killed while it replays, and continues after a start.
    third.kill9();
    ledger.write_for(Duration::from_millis(300));
    third.start();
    primary.kill9();
    ledger.join();
    assert!(ledger.committed() > 0, "nothing was written");

    second.promote();
    ledger.check(&second);
    second.sql("alter system set synchronous_standby_names = '';; select pg_reload_conf()");
    ledger.start(&second);
    ledger.write_for(Duration::from_millis(500));
    ledger.join();
    // The third follows the change of timeline by itself.
    third.catch_up(&second);
    ledger.check(&third);
    assert_same_contents(&second, &[&third]);
    third.wait_until("select received_tli = 2 from pg_stat_wal_receiver");
    third.stop_sound(MARKER);
    second.stop_sound(MARKER);
    primary.assert_sound(MARKER);
    let suites: Vec<String> = [&primary, &second, &third].map(suite).into();
    assert_eq!(suites, ["aes-256-gcm", "aes-256-xts", "aes-128-gcm"]);
}

fn suite(node: &Node) -> String {
    let status = node.pgseal(&["status", "--json", &node.data().display().to_string()]);
    let at = status.text.find("\"suite\"").expect("a suite");
    status.text[at..].split('"').nth(3).expect("its name").to_owned()
}

/// A standby is killed repeatedly while it replays, with restart points in between.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_standby_is_killed_while_it_replays_and_makes_restartpoints() {
    let mut primary = primary(&[("wal_keep_size", "512MB"), ("max_wal_size", "32MB")]);
    let mut standby = primary.standby(&primary, "standby", Keys::Own("aes-256-gcm"));
    standby.configure("checkpoint_timeout = 30s\nshared_buffers = 2MB\nlog_checkpoints = on");
    standby.start();
    let mut ledger = Ledger::create(&primary, CLIENTS);
    let mut restartpoints = 0;
    for round in 1..=6 {
        ledger.start(&primary);
        if round == 2 {
            churn(&primary);
        }
        ledger.write_for(Duration::from_millis(700));
        if round % 2 == 0 {
            primary.sql("checkpoint");
            standby.catch_up(&primary);
            standby.sql("checkpoint");
            restartpoints += standby.log().matches("restartpoint complete").count();
        }
        standby.kill9();
        // Sometimes it is killed before it reaches a consistent state.
        standby.start_and_kill9_after(Duration::from_millis(40 * round));
        standby.start();
        ledger.join();
        standby.catch_up(&primary);
        ledger.check(&standby);
    }
    assert!(restartpoints >= 3, "only {restartpoints} restartpoints");
    ledger.check(&primary);
    assert_same_contents(&primary, &[&standby]);
    primary.kill9();
    standby.promote();
    ledger.check(&standby);
    standby.stop_sound(MARKER);
    primary.start();
    primary.stop_sound(MARKER);
}

/// The archive contains WAL that the primary sealed. The standby needs the primary's keyring only
/// while it restores from the archive.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_standby_with_other_keys_restores_from_the_archive_of_its_primary() {
    let mut primary = primary(&[("archive_mode", "on")]);
    let archive = primary.make_dir("archive");
    let archive = archive.display().to_string();
    primary.sql(&format!(
        "alter system set archive_command = 'cp %p {archive}/%f';; select pg_reload_conf()"
    ));
    let mut standby = primary.standby(&primary, "standby", Keys::Own("aes-256-gcm"));
    // From the archive alone.
    primary.sql("select pg_drop_replication_slot('standby')");
    std::fs::write(
        standby.file("postgresql.auto.conf"),
        format!("restore_command = 'cp {archive}/%f %p'\n"),
    )
    .expect("the configuration can be written");
    churn(&primary);
    let switched = || primary.sql("select pg_switch_wal()");
    let arrived = |lsn: String| format!("select pg_last_wal_replay_lsn() >= '{lsn}'");
    let lsn = switched();
    if standby.try_start().is_ok() {
        wait_for("a standby that gives up", || standby.log().contains("PGSEAL_DATA"));
        standby.kill9();
    }
    assert!(standby.log().contains("PGSEAL_DATA"), "{}", standby.log());

    standby.set_env("PGSEAL_DATA", &primary.data().display().to_string());
    standby.start();
    standby.wait_until(&arrived(lsn));
    churn_more(&primary);
    let lsn = switched();
    standby.wait_until(&arrived(lsn));
    assert_same_contents(&primary, &[&standby]);
    standby.promote();
    standby.stop();
    // The standby has sealed everything in its pg_wal with its own keys by now.
    standby.unset_env("PGSEAL_DATA");
    standby.start();
    let mut ledger = Ledger::create(&standby, CLIENTS);
    ledger.start(&standby);
    churn_more(&standby);
    standby.kill9();
    ledger.join();
    standby.start();
    ledger.check(&standby);
    standby.stop_sound(MARKER);
    primary.stop_sound(MARKER);
    assert_hidden(&[&archive], MARKER);
}

/// A plain primary with a sealed standby, which is the way to encrypt a cluster online; and back.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_plain_primary_with_a_sealed_standby_and_back() {
    let mut plain = Node::plain(&[("wal_keep_size", "64MB")]);
    plain.start();
    prepare(&plain);
    let other = Node::sealed(&[]);
    let mut sealed = plain.standby(&other, "sealed", Keys::Own("aes-256-gcm"));
    let guard = guard_line(&other);
    // Without the guard module, the standby does not start.
    let refused = sealed.try_start().expect_err("a start without the guard module");
    assert!(refused.contains("pgseal_guard"), "{refused}");
    sealed.configure(&guard);
    sealed.start();
    let mut ledger = Ledger::create(&plain, CLIENTS);
    ledger.start(&plain);
    churn(&plain);
    ledger.join();
    sealed.catch_up(&plain);
    assert_same_contents(&plain, &[&sealed]);
    // Switchover: the old primary shuts down cleanly, after it has sent its last record.
    plain.stop();
    sealed.promote();
    ledger.check(&sealed);
    plain.become_standby_of(&sealed, "plain");
    plain.start();
    ledger.start(&sealed);
    ledger.write_for(Duration::from_millis(500));
    ledger.join();
    plain.catch_up(&sealed);
    assert_same_contents(&sealed, &[&plain]);
    // And back.
    sealed.stop();
    plain.promote();
    ledger.check(&plain);
    plain.amcheck();
    plain.stop();
    plain.assert_shows(MARKER);
    sealed.assert_sound(MARKER);
}

/// The line that loads the guard module, as `pgseal initdb` wrote it.
fn guard_line(node: &Node) -> String {
    let conf = std::fs::read_to_string(node.file("postgresql.conf")).expect("postgresql.conf");
    let line = conf.lines().rfind(|line| line.starts_with("shared_preload_libraries"));
    line.expect("the guard module").to_owned()
}

/// A plain standby of a sealed primary is possible, but only if it is asked for.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_plain_standby_of_a_sealed_primary_only_when_asked_for() {
    let mut primary = primary(&[]);
    let target = primary.home().join("plain");
    let mut backup = primary.command("pg_basebackup");
    primary.connected(&mut backup);
    let refused = backup.args(["-R", "-c", "fast", "-D"]).arg(&target).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("would write an unsealed copy"), "{said}");
    let mut standby = primary.standby(&primary, "plain", Keys::Unsealed);
    // The guard module stays in the copied configuration; it asks for the library.
    let refused = standby.try_start_bare().expect_err("a start with the guard module alone");
    assert!(refused.contains("pgseal"), "{refused}");
    standby.configure("shared_preload_libraries = ''");
    standby.try_start_bare().expect("a plain server on plain files");
    churn(&primary);
    standby.catch_up(&primary);
    assert_same_contents(&primary, &[&standby]);
    standby.amcheck();
    standby.stop();
    standby.assert_shows(MARKER);
    primary.stop_sound(MARKER);
}
