//! Kills server processes with signal 9 while clients write. Afterwards every transaction that a
//! client saw committed is there, tables and indexes agree, and every sealed block authenticates.
//!
//! `PGSEAL_CRASH_ROUNDS` sets the number of rounds; the default is three.

use std::env;
use std::time::Duration;

use pgseal_scenarios::files::wait_for;
use pgseal_scenarios::{Ledger, Node};

const CLIENTS: usize = 4;
/// How long the clients write before a process is killed.
const LOAD: Duration = Duration::from_millis(1500);

fn rounds() -> u32 {
    env::var("PGSEAL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A cluster with frequent checkpoints, so that recovery has different work in each round.
fn node() -> Node {
    let mut node = Node::sealed(&[
        ("checkpoint_timeout", "30s"),
        ("max_wal_size", "8MB"),
        ("min_wal_size", "2MB"),
        ("shared_buffers", "1MB"),
        ("bgwriter_delay", "10ms"),
        ("restart_after_crash", "on"),
        // So that each recovery must reach what was acknowledged.
        ("fsync", "on"),
    ]);
    node.start();
    node.sql("create extension amcheck");
    node
}

#[test]
fn the_postmaster_is_killed_under_a_write_load() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for round in 1..=rounds() {
        let before = ledger.committed();
        ledger.start(&node);
        ledger.write_for(LOAD);
        node.kill9();
        ledger.join();
        assert!(ledger.committed() > before, "round {round}: nothing was written");

        node.start();
        assert!(node.log().contains("automatic recovery in progress"), "{}", node.log());
        ledger.check(&node);
        node.amcheck();
    }
    node.stop();
    node.assert_authentic();
}

#[test]
fn single_backends_are_killed_under_a_write_load() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for round in 1..=rounds() {
        let before = ledger.committed();
        ledger.start(&node);
        ledger.write_for(LOAD);
        let deaths = || node.log().matches("was terminated by signal 9").count();
        let deaths_before = deaths();
        // Kills a backend of a client; in odd rounds the checkpointer.
        let kind = if round % 2 == 1 { "client backend" } else { "checkpointer" };
        let victim = node.sql(&format!(
            "select pid from pg_stat_activity \
             where backend_type = '{kind}' and pid <> pg_backend_pid() limit 1"
        ));
        kill9(&victim);
        ledger.join();
        assert!(ledger.committed() > before, "round {round}: nothing was written");

        // The postmaster ends all other backends, recovers and goes on by itself.
        wait_for("what the postmaster says of it", || deaths() > deaths_before);
        node.wait_until("select true");
        assert!(node.is_running());
        ledger.check(&node);
        node.amcheck();
    }
    node.stop();
    node.assert_authentic();
}

/// A server that is killed while it replays WAL can be started again.
#[test]
fn the_server_is_killed_again_while_it_recovers() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for wait in [5, 60, 150] {
        ledger.start(&node);
        ledger.write_for(LOAD);
        node.kill9();
        ledger.join();
        node.start_and_kill9_after(Duration::from_millis(wait));
        node.start();
        ledger.check(&node);
    }
    node.amcheck();
    node.stop();
    node.assert_authentic();
}

fn kill9(pid: &str) {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a process number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
}
