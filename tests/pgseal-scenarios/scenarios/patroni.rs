//! Debian's Patroni with Debian's etcd: three nodes on three addresses of this machine, each sealed
//! with its own key, with the configuration of packaging/patroni as docs/patroni.md describes it.

use std::thread;
use std::time::Duration;

use pgseal_scenarios::{Ledger, Node, assert_same_contents};

#[path = "patroni/lab.rs"]
mod lab;
use lab::Lab;

const MARKER: &str = "canary-patroni-Zq7x";
const CLIENTS: usize = 2;

fn write_a_while(ledger: &mut Ledger, node: &Node) {
    ledger.start(node);
    thread::sleep(Duration::from_millis(1500));
    ledger.join();
}

/// A failover after kill -9 of the leader's server and of its Patroni. The old leader has commits
/// that no other node has, and comes back with `pg_rewind`. Then a planned switchover, and back.
#[test]
#[ignore = "long: make test-scenarios"]
fn patroni_bootstraps_sealed_fails_over_rewinds_and_switches() {
    let mut lab = Lab::new();
    for index in 0..3 {
        lab.start(index);
        // The first one bootstraps, the others are base backups of it.
        lab.wait_for_followers(index);
    }
    let leader = lab.leader();
    assert_eq!(leader, 0, "who started first leads");
    lab.node(0).sql(&format!(
        "create extension amcheck;; create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || g from generate_series(1, 20000) g;; vacuum t"
    ));
    let mut ledger = Ledger::create(lab.node(0), CLIENTS);
    write_a_while(&mut ledger, lab.node(0));

    // From here on, the leader's commits reach no standby, because its WAL senders are stopped.
    lab.freeze_senders(0);
    // Less WAL than maximum_lag_on_failover, or no standby would take over.
    lab.node(0).sql(
        "set synchronous_commit = local;; create table undone as select g from \
         generate_series(1, 1000) g;; update t set v = 'undone' where id % 1000 = 0",
    );
    lab.kill9(0);
    let second = lab.wait_for_new_leader(&[0]);
    ledger.check(lab.node(second));
    write_a_while(&mut ledger, lab.node(second));
    assert_eq!(lab.node(second).sql("select count(*) from t where v = 'undone'"), "0");

    lab.start(0);
    lab.wait_for_followers(2);
    assert!(lab.log(0).contains("running pg_rewind from"), "{}", lab.log(0));
    lab.node(0).catch_up(lab.node(second));
    ledger.check(lab.node(0));
    assert_eq!(lab.node(0).sql("select count(*) from pg_class where relname = 'undone'"), "0");

    // A planned switchover to the rewound node, and back.
    lab.let_go_of_synchronous_mode(second);
    lab.wait_for_followers(2);
    for (from, to) in [(second, 0), (0, second)] {
        lab.switch_over(from, to);
        write_a_while(&mut ledger, lab.node(to));
        ledger.check(lab.node(to));
        lab.wait_for_followers(2);
    }
    // Patroni reads timeline history without the library.
    lab.wait_for_history(second, 3);
    for index in 0..3 {
        assert!(!lab.log(index).contains("Failed to read and parse"), "{}", lab.log(index));
    }
    let others: Vec<usize> = (0..3).filter(|index| *index != second).collect();
    for index in &others {
        lab.node(*index).catch_up(lab.node(second));
        ledger.check(lab.node(*index));
    }
    let followers: Vec<&Node> = others.iter().map(|index| lab.node(*index)).collect();
    assert_same_contents(lab.node(second), &followers);
    for index in 0..3 {
        lab.node(index).amcheck();
    }
    lab.stop();
    let mut rings = Vec::new();
    for index in 0..3 {
        lab.node(index).assert_sound(MARKER);
        rings.push(std::fs::read(lab.node(index).file("pgseal/keyring")).expect("a keyring"));
    }
    assert!(rings[0] != rings[1] && rings[1] != rings[2] && rings[0] != rings[2]);
    lab.assert_shows_nothing(MARKER);
}

/// Three nodes with locked configurations. A wrapper accepts what Patroni writes before each start
/// and reload; what somebody else writes into `postgresql.auto.conf` stays refused.
#[test]
#[ignore = "long: make test-scenarios"]
fn patroni_with_locked_configurations() {
    let mut lab = Lab::with_wrapper();
    for index in 0..3 {
        lab.start(index);
        lab.wait_for_followers(index);
    }
    for index in 0..3 {
        lab.node_mut(index).lock_configuration();
    }
    lab.node(0).sql(&format!(
        "create extension amcheck;; create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || g from generate_series(1, 2000) g"
    ));
    let mut ledger = Ledger::create(lab.node(0), CLIENTS);
    write_a_while(&mut ledger, lab.node(0));

    // A failover, and the old leader comes back.
    lab.kill9(0);
    let second = lab.wait_for_new_leader(&[0]);
    ledger.check(lab.node(second));
    lab.start(0);
    lab.wait_for_followers(2);
    // A reload by Patroni (another setting), and a planned switchover.
    lab.let_go_of_synchronous_mode(second);
    lab.wait_for_followers(2);
    lab.switch_over(second, 0);
    write_a_while(&mut ledger, lab.node(0));
    lab.wait_for_followers(2);
    ledger.check(lab.node(0));
    for index in 0..3 {
        lab.node(index).assert_locked();
    }

    // Somebody writes settings while a standby is down.
    lab.stop_one(second);
    let auto = lab.node(second).file("postgresql.auto.conf");
    let before = std::fs::read(&auto).expect("it is there");
    let changed = [&before[..], b"archive_command = 'id'\n"].concat();
    std::fs::write(&auto, changed).expect("it can be written");
    lab.start(second);
    lab.wait_for_log(second, "the configuration of this data directory is locked");
    std::fs::write(&auto, before).expect("it can be written");
    lab.wait_for_followers(2);
    lab.node(second).catch_up(lab.node(0));
    ledger.check(lab.node(second));
    lab.stop();
    for index in 0..3 {
        lab.node(index).assert_locked();
        lab.node(index).assert_sound(MARKER);
    }
    lab.assert_shows_nothing(MARKER);
}
