//! Processes die with signal 9 while clients write. Afterwards every transaction that a client saw
//! committed is there, tables and indexes agree, and every sealed block authenticates.
//!
//! `PGSEAL_CRASH_ROUNDS` asks for more than the three rounds of every test run.

use std::env;
use std::thread;
use std::time::Duration;

use pgseal_scenarios::{Ledger, Node};

const CLIENTS: usize = 4;
/// How long the clients write before something dies.
const LOAD: Duration = Duration::from_millis(1500);

fn rounds() -> u32 {
    env::var("PGSEAL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Checkpoints come often, so that rounds differ in what recovery finds.
fn node() -> Node {
    let mut node = Node::sealed(&[
        ("checkpoint_timeout", "30s"),
        ("max_wal_size", "8MB"),
        ("min_wal_size", "2MB"),
        ("shared_buffers", "1MB"),
        ("bgwriter_delay", "10ms"),
        ("restart_after_crash", "on"),
    ]);
    node.start();
    node.sql("create extension amcheck");
    node
}

/// Heap and index pages, and that every row of a table is in its btrees.
fn amcheck(node: &Node) {
    let damaged = node.sql(
        "select count(*) from pg_class c, lateral verify_heapam(c.oid) v \
         where c.relkind in ('r', 'm', 't') and c.relpersistence = 'p'",
    );
    assert_eq!(damaged, "0", "verify_heapam");
    node.sql(
        "select bt_index_check(c.oid, heapallindexed => true) from pg_class c \
         join pg_index i on i.indexrelid = c.oid join pg_am a on a.oid = c.relam \
         where a.amname = 'btree' and c.relpersistence = 'p' and i.indisready and i.indisvalid",
    );
}

/// After a clean shutdown there is nothing left that does not authenticate.
fn stop_and_verify(mut node: Node) {
    node.stop();
    let verify = node.verify();
    assert_eq!(verify.code, 0, "{}", verify.text);
    assert!(verify.text.contains("Sound."), "{}", verify.text);
}

#[test]
fn the_postmaster_is_killed_under_a_write_load() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for round in 1..=rounds() {
        let before = ledger.committed();
        ledger.start(&node);
        thread::sleep(LOAD);
        node.kill9();
        ledger.join();
        assert!(ledger.committed() > before, "round {round}: nothing was written");

        node.start();
        assert!(node.log().contains("automatic recovery in progress"), "{}", node.log());
        ledger.check(&node);
        amcheck(&node);
    }
    stop_and_verify(node);
}

#[test]
fn single_backends_are_killed_under_a_write_load() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for round in 1..=rounds() {
        let before = ledger.committed();
        ledger.start(&node);
        thread::sleep(LOAD);
        // One of the clients' server processes; in odd rounds the checkpointer.
        let kind = if round % 2 == 1 { "client backend" } else { "checkpointer" };
        let victim = node.sql(&format!(
            "select pid from pg_stat_activity \
             where backend_type = '{kind}' and pid <> pg_backend_pid() limit 1"
        ));
        kill9(&victim);
        ledger.join();
        assert!(ledger.committed() > before, "round {round}: nothing was written");

        // The postmaster ends all other backends, recovers and goes on by itself.
        node.wait_until("select true");
        assert!(node.is_running());
        assert!(node.log().contains("was terminated by signal 9"), "{}", node.log());
        ledger.check(&node);
        amcheck(&node);
    }
    stop_and_verify(node);
}

/// The stages of recovery that write: a server that is killed while it replays starts again.
#[test]
fn the_server_is_killed_again_while_it_recovers() {
    let mut node = node();
    let mut ledger = Ledger::create(&node, CLIENTS);
    for wait in [5, 60, 150] {
        ledger.start(&node);
        thread::sleep(LOAD);
        node.kill9();
        ledger.join();
        node.start_and_kill9_after(Duration::from_millis(wait));
        node.start();
        ledger.check(&node);
    }
    amcheck(&node);
    stop_and_verify(node);
}

fn kill9(pid: &str) {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a process number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
}
