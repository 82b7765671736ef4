//! From a plain server to a sealed one, online: docs/migrate.md, command by command.

use pgseal_scenarios::{Ledger, Node, Outcome, assert_hidden};
use pgseal_testkit::bindir;

const MARKER: &str = "canary-migrate-Zq7x";

#[test]
fn a_sealed_standby_of_a_plain_server_takes_over() {
    let mut plain = Node::plain(&[("wal_level", "replica"), ("max_wal_senders", "4")]);
    plain.bring_programs();
    plain.start_bare();
    plain.sql(&format!(
        "create table t as select g, '{MARKER}'::text as v from generate_series(1, 3000) g"
    ));
    let mut ledger = Ledger::create(&plain, 2);
    ledger.start(&plain);

    let key = format!("file:{}", plain.new_key("standby.key").display());
    let data = plain.home().join("standby");
    let mut backup = plain.command("pg_basebackup");
    plain.connected(&mut backup);
    backup.args(["-R", "-C", "-S", "sealed", "-c", "fast", "-D"]).arg(&data);
    plain.succeed(backup.env("PGSEAL_PROVIDER", &key));
    assert_hidden(&[&data], MARKER);

    // The configuration is that of the plain server: the refusal says that the guard module is
    // missing.
    let mut sealed = Node::at(&plain, &data);
    let log = sealed.try_start().expect_err("a server without the guard module");
    assert!(log.contains("add pgseal_guard to shared_preload_libraries"), "{log}");
    let programs = bindir().expect("PostgreSQL is there").display().to_string();
    let data_text = data.display().to_string();
    for _ in 0..2 {
        let outcome = sealed.pgseal(&["guard", "--bindir", &programs, &data_text]);
        assert_eq!(outcome.code, 0, "{}", outcome.text);
    }
    sealed.start();
    plain.wait_until("select count(*) = 1 from pg_stat_replication where state = 'streaming'");

    // Switchover: a fast shutdown sends all WAL to the standby first.
    ledger.join();
    plain.stop();
    let mut promote = sealed.command("pg_ctl");
    promote.arg("-D").arg(&data).args(["-w", "-t", "120", "promote"]);
    let outcome = Outcome::from(promote.output().expect("pg_ctl runs"));
    assert_eq!(outcome.code, 0, "{}", outcome.text);
    sealed.wait_until("select not pg_is_in_recovery()");
    ledger.check(&sealed);
    assert_eq!(sealed.sql(&format!("select count(*) from t where v = '{MARKER}'")), "3000");
    ledger.start(&sealed);
    ledger.write_for(std::time::Duration::from_millis(300));
    ledger.join();
    ledger.check(&sealed);
    sealed.stop();
    sealed.assert_sound(MARKER);
}
