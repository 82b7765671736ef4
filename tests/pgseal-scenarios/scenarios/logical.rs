//! Logical replication between sealed clusters with different keys and suites: initial copy,
//! spilling to disk, streamed and two-phase transactions, crashes, slots that survive a failover.

use std::fs;

use pgseal_scenarios::files::{names_in, wait_for};
use pgseal_scenarios::{Keys, Ledger, Node, assert_hidden, from_major};
use pgseal_testkit::{Cluster, Sealing};

const MARKER: &str = "canary-logical-Zq7x";
const CLIENTS: usize = 2;

const PUBLISHER: [(&str, &str); 4] = [
    ("wal_level", "logical"),
    ("logical_decoding_work_mem", "64kB"),
    ("max_prepared_transactions", "4"),
    ("wal_keep_size", "64MB"),
];

fn cluster(suite: &str, key: &str, settings: &[(&str, &str)]) -> Node {
    let sealing = Sealing { suite: suite.to_owned(), key: key.repeat(32) };
    let builder = Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs());
    let mut node = Node::create(builder, settings);
    node.start();
    node.sql("create extension amcheck");
    node
}

const TABLES: &str = "create table t (id int primary key, v text); \
                      create table u (id int primary key, v text)";

fn assert_equal(publisher: &Node, subscriber: &Node) {
    for table in ["t", "u"] {
        let sum = format!(
            "select count(*) || '/' || coalesce(md5(string_agg(id || v, ',' order by id)), '') from {table}"
        );
        subscriber.wait_until(&format!("select ({sum}) = '{}'", publisher.sql(&sum)));
    }
}

#[test]
#[ignore = "long: make test-scenarios"]
fn logical_replication_between_sealed_clusters_with_different_keys() {
    let mut publisher = cluster("aes-256-gcm", "1a", &PUBLISHER);
    let settings = [("max_prepared_transactions", "4"), ("logical_decoding_work_mem", "64kB")];
    let mut subscriber = cluster("aes-256-xts", "2b", &settings);
    publisher.sql(&format!(
        "{TABLES};; insert into t select g, '{MARKER} ' || g from generate_series(1, 20000) g;;
         create publication spilled for table t;; create publication streamed for table u"
    ));
    let info = publisher.conninfo();
    subscriber.sql(&format!(
        "{TABLES};;
         create subscription spilled connection '{info}' publication spilled \
           with (two_phase = true, streaming = off);;
         create subscription streamed connection '{info}' publication streamed \
           with (streaming = on)"
    ));
    assert_equal(&publisher, &subscriber);
    subscriber.wait_until(
        "select count(*) = 2 and count(*) filter (where subtwophasestate <> 'd') = 1 from pg_subscription",
    );

    // More changes than decoding may keep in memory, so it spills before the transaction ends.
    let mut open = publisher.session();
    open.sql(&format!(
        "begin; insert into t select 100000 + g, '{MARKER} spilled ' || g \
         from generate_series(1, 30000) g; update t set v = v || '.' where id < 5000"
    ));
    let dir = publisher.file("pg_replslot/spilled");
    wait_for("spilled changes", || names_in(&dir).iter().any(|name| name.ends_with(".spill")));
    assert_hidden(&[publisher.data()], MARKER);
    open.sql("commit");
    assert_equal(&publisher, &subscriber);
    let spilled = "select spill_bytes > 1000000 from pg_stat_replication_slots \
                   where slot_name = 'spilled'";
    publisher.wait_until(spilled);

    // A transaction that is streamed while it runs: the subscriber keeps it in files until the end.
    open.sql(&format!(
        "begin; insert into u select g, '{MARKER} streamed ' || g from generate_series(1, 30000) g"
    ));
    let temporary = subscriber.file("base/pgsql_tmp");
    wait_for("streamed changes", || !names_in(&temporary).is_empty());
    assert_hidden(&[publisher.data(), subscriber.data()], MARKER);
    open.sql("commit");
    assert_equal(&publisher, &subscriber);

    // A two-phase transaction is prepared on both sides, both sides crash, then it is committed.
    publisher.sql(&format!(
        "begin; insert into t values (-1, '{MARKER} prepared'); prepare transaction 'first'"
    ));
    subscriber.wait_until("select count(*) = 1 from pg_prepared_xacts");
    subscriber.sql("checkpoint");
    publisher.sql("checkpoint");
    assert_eq!(names_in(&subscriber.file("pg_twophase")).len(), 1);
    assert_hidden(&[publisher.data(), subscriber.data()], MARKER);
    drop(open);
    subscriber.kill9();
    publisher.sql("insert into u values (-1, 'while it was down')");
    publisher.kill9();
    publisher.start();
    subscriber.start();
    publisher.sql("commit prepared 'first'");
    assert_equal(&publisher, &subscriber);
    assert_eq!(subscriber.sql("select count(*) from t where id = -1"), "1");

    // The initial copy runs under a write load, which continues afterwards.
    let mut ledger = Ledger::create(&publisher, CLIENTS);
    let mut dump = publisher.bare("pg_dump");
    let schema = publisher.succeed(dump.args(["-s", "-t", "account", "-t", "ledger"]));
    fs::write(subscriber.home().join("schema.sql"), schema).expect("the schema can be written");
    subscriber.succeed(subscriber.bare("psql").args(["-q", "-f", "schema.sql"]));
    publisher.sql("create publication ledger for table account, ledger");
    ledger.start(&publisher);
    subscriber.sql(&format!("create subscription ledger connection '{info}' publication ledger"));
    subscriber.wait_until("select bool_and(srsubstate = 'r') from pg_subscription_rel");
    ledger.join();
    let lsn = publisher.sql("select pg_current_wal_flush_lsn()");
    publisher.wait_until(&format!(
        "select confirmed_flush_lsn >= '{lsn}' from pg_replication_slots where slot_name = 'ledger'"
    ));
    ledger.check(&publisher);
    ledger.check(&subscriber);
    subscriber.stop_sound(MARKER);
    publisher.stop_sound(MARKER);
}

/// From 17 on, slots of subscriptions are synchronised to a standby, so that a subscription
/// continues after a failover.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_logical_slot_outlives_a_failover() {
    if !from_major(17, "a_logical_slot_outlives_a_failover") {
        return;
    }
    let mut primary = cluster("aes-256-gcm", "1a", &PUBLISHER);
    let mut standby = primary.standby(&primary, "standby", Keys::Own("aes-128-gcm"));
    standby.configure(&format!(
        "sync_replication_slots = on\nhot_standby_feedback = on\nprimary_conninfo = '{}'",
        primary.conninfo()
    ));
    standby.start();
    // pg_basebackup wrote a primary_conninfo without dbname, which the slot synchronisation needs.
    standby.sql(&format!(
        "alter system set primary_conninfo = '{}';; select pg_reload_conf()",
        primary.conninfo()
    ));
    primary
        .sql("alter system set synchronized_standby_slots = 'standby';; select pg_reload_conf()");
    let mut subscriber = cluster("aes-256-xts", "2b", &[]);
    primary.sql(&format!(
        "{TABLES};; insert into t select g, '{MARKER} ' || g from generate_series(1, 5000) g;;
         create publication pub for all tables"
    ));
    subscriber.sql(&format!(
        "{TABLES};; create subscription sub connection '{}' publication pub with (failover = true)",
        primary.conninfo()
    ));
    assert_equal(&primary, &subscriber);
    standby.wait_until(
        "select count(*) = 1 from pg_replication_slots where slot_name = 'sub' and synced and not temporary",
    );
    primary.sql(&format!("insert into t values (-1, '{MARKER} last words')"));
    standby.catch_up(&primary);
    primary.kill9();
    standby.promote();
    standby.sql("alter system reset synchronized_standby_slots;; select pg_reload_conf()");
    let info = standby.conninfo();
    subscriber.sql(&format!("alter subscription sub connection '{info}'"));
    standby.sql(&format!("insert into u values (1, '{MARKER} from the new primary')"));
    assert_equal(&standby, &subscriber);
    assert_eq!(subscriber.sql("select count(*) from u"), "1");
    subscriber.stop_sound(MARKER);
    standby.stop_sound(MARKER);
    primary.assert_sound(MARKER);
}
