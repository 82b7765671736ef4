//! Sharding: `postgres_fdw` distributes a table over sealed servers, each with its own keys.
//! docs/sharding.md shows the statements.

use std::fs;
use std::path::PathBuf;

use pgseal_scenarios::backup::{
    archive_by_cp, archived, base_backup, prepared, restore_by_cp, text,
};
use pgseal_scenarios::{Node, Session, assert_hidden, escrow_lock, succeeds};

use self::spread::{COLUMNS, MARKER, SUM, Spread, Transfers, create_part, create_server, server};

#[path = "sharding/spread.rs"]
mod spread;

#[test]
#[ignore = "long: make test-scenarios"]
fn a_table_is_spread_over_sealed_servers_by_postgres_fdw() {
    let Spread { mut front, mut shards } = Spread::new(|_| String::new());
    front.sql(
        "update orders set note = note || ' paid' where customer % 10 = 0;;
         delete from orders where id % 100 = 0",
    );
    let truth = front.sql(SUM);
    assert!(truth.starts_with("3960|"), "{truth}");
    let counts: Vec<u64> = shards
        .iter()
        .enumerate()
        .map(|(n, shard)| {
            shard.sql(&format!("select count(*) from orders_{n}")).parse().expect("a number")
        })
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 3960);
    assert!(counts.iter().all(|count| *count > 1500), "{counts:?}");
    // A query about one customer uses one shard; a query about all customers uses both.
    let plan = front.sql("explain (costs off) select * from orders where customer = 7");
    assert_eq!(plan.matches("Foreign Scan").count(), 1, "{plan}");
    let joined = front.sql(
        "select count(*), sum(o.amount) from orders o join customers c on c.id = o.customer \
         where c.name like '% 7%'",
    );
    let by_hand =
        front.sql("select count(*), sum(amount) from orders where customer::text like '7%'");
    assert_eq!(joined, by_hand);

    // A shard is killed during a transaction, which is rolled back.
    let mut open = front.session();
    open.sql("begin; update orders_1 set amount = amount + 1");
    shards[1].kill9();
    let said = open.run("commit").unwrap_or_default();
    assert!(said.contains("ERROR") || said.contains("WARNING"), "{said}");
    drop(open);
    assert!(front.try_sql("select count(*) from orders").is_err(), "a shard is missing");
    shards[1].start();
    assert_eq!(front.sql(SUM), truth);

    front.kill9();
    front.start();
    assert_eq!(front.sql(SUM), truth);
    front.stop_sound(MARKER);
    for shard in &mut shards {
        shard.stop_sound(MARKER);
    }
}

/// The name of the point that all servers are restored to.
const POINT: &str = "one-point-Zq7x";

/// The archive of a server, beside its data directory.
fn archive(node: &Node) -> PathBuf {
    node.home().join("archive")
}

/// Base backups and archives of three servers under load are restored to one named point. A commit
/// of `postgres_fdw` is not atomic over the shards, so a lock keeps writers out while the point is
/// set; a client that commits in two phases needs it for its table of decisions only. One shard has
/// lost its key: the escrow copy opens its backup.
#[test]
fn all_servers_are_restored_to_one_point_and_one_of_them_without_its_key() {
    let mut all = Spread::new(|node| archive_by_cp(&node.make_dir("archive")));
    all.front.sql("create table decisions (gid text primary key)");
    for shard in &all.shards {
        shard.sql("create table payments (amount int)");
    }
    let escrow = text(&all.shards[1].home().join("escrow.txt"));
    let lock = escrow_lock();
    let data = text(all.shards[1].data());
    succeeds(&all.shards[1].pgseal(&["key", "backup", &data, "--lock", lock, "-o", &escrow]));

    let transfers = Transfers::start(&all.front);
    let backups: Vec<_> =
        all.nodes().map(|node| base_backup(node, "backup", &["-X", "none"])).collect();
    transfers.wait_for(20);

    let mut two_phase = TwoPhase::new(&all);
    two_phase.whole("committed");
    two_phase.prepare(0, "decided");
    two_phase.prepare(1, "decided");
    two_phase.decide("decided");
    two_phase.shards[0].sql("commit prepared 'decided'");
    two_phase.prepare(0, "undecided");
    two_phase.prepare(1, "undecided");
    two_phase.prepare(0, "begun");

    // The point: nobody writes to orders and nobody decides, but readers and preparations go on.
    let mut locked = all.front.session();
    locked.sql("begin");
    locked.sql("lock table orders, decisions in share mode");
    let truth = all.front.sql(SUM);
    two_phase.front.sql("set lock_timeout = '200ms'");
    let said = two_phase.front.run("insert into decisions values ('undecided')");
    assert!(said.is_some_and(|said| said.contains("lock timeout")), "a decision did not wait");
    for node in all.nodes() {
        node.sql(&format!("select pg_create_restore_point('{POINT}')"));
    }
    two_phase.prepare(1, "begun");
    locked.sql("commit");
    transfers.wait_for(20);
    two_phase.shards[1].sql("commit prepared 'decided'");
    two_phase.decide("undecided");
    for shard in &mut two_phase.shards {
        shard.sql("commit prepared 'undecided'");
        shard.sql("rollback prepared 'begun'");
    }
    drop(two_phase);
    transfers.stop();
    assert_ne!(all.front.sql(SUM), truth, "nothing was written behind the point");
    for node in all.nodes() {
        archived(node);
    }
    all.nodes_mut().for_each(Node::kill9);

    // All machines are lost; what is left are backups, archives and keys, but not one of the keys.
    fs::remove_file(all.shards[1].home().join("key")).expect("the key file");
    let mut restored = Vec::new();
    for (node, backup) in all.nodes().zip(&backups) {
        let restore = restore_by_cp(&archive(node));
        let target = format!("recovery_target_name = '{POINT}'");
        restored.push(prepared(node, backup, "restored", &restore, &target));
    }
    let said = restored[2].try_start().expect_err("a server started without its key");
    assert!(said.contains("no key"), "{said}");
    let key = restored[2].new_key_file("new.key");
    let copy = text(restored[2].data());
    let unlock = ["key", "restore", &copy, &escrow, "--unlock", lock, "-K", &key, "--force"];
    succeeds(&restored[2].pgseal(&unlock));
    for node in &mut restored {
        node.start();
        node.wait_until("select not pg_is_in_recovery()");
    }
    let [front, shards @ ..] = restored.as_mut_slice() else { panic!("three servers") };
    for (n, shard) in shards.iter().enumerate() {
        front.sql(&format!("alter server shard_{n} options (set port '{}')", shard.port()));
    }
    assert_eq!(front.sql(SUM), truth, "the shards are not at one point");

    // What was prepared is committed where the coordinator had decided so.
    for shard in shards.iter() {
        for gid in shard.sql("select gid from pg_prepared_xacts").lines() {
            let decided = front.sql(&format!("select count(*) from decisions where gid = '{gid}'"));
            let end = if decided == "1" { "commit" } else { "rollback" };
            shard.sql(&format!("{end} prepared '{gid}'"));
        }
    }
    let amounts: Vec<String> =
        shards.iter().map(|shard| shard.sql("select sum(amount) from payments")).collect();
    assert_eq!(amounts, ["-2", "2"], "two transactions are decided, each on both shards");
    for node in &mut restored {
        node.stop_sound(MARKER);
    }
    for node in all.nodes() {
        assert_hidden(&[archive(node), node.home().join("backup")], MARKER);
    }
}

/// A client that commits on two shards in two phases, and records each decision on the front first.
struct TwoPhase {
    front: Session,
    shards: Vec<Session>,
}

impl TwoPhase {
    fn new(all: &Spread) -> TwoPhase {
        TwoPhase {
            front: all.front.session(),
            shards: all.shards.iter().map(Node::session).collect(),
        }
    }

    /// Moves 1 from the first shard to the second.
    fn prepare(&mut self, n: usize, gid: &str) {
        let amount = if n == 0 { -1 } else { 1 };
        self.shards[n].sql(&format!(
            "begin; insert into payments values ({amount}); prepare transaction '{gid}'"
        ));
    }

    fn decide(&mut self, gid: &str) {
        self.front.sql(&format!("insert into decisions values ('{gid}')"));
    }

    fn whole(&mut self, gid: &str) {
        self.prepare(0, gid);
        self.prepare(1, gid);
        self.decide(gid);
        for shard in &mut self.shards {
            shard.sql(&format!("commit prepared '{gid}'"));
        }
    }
}

const LOGICAL: &str = "wal_level = logical";

/// A third shard, with a key of its own, takes a part over by logical replication while clients
/// write; it is killed while it copies.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_part_moves_to_a_new_shard_with_a_key_of_its_own_under_load() {
    let mut all = Spread::new(|_| LOGICAL.to_owned());
    let transfers = Transfers::start(&all.front);
    transfers.wait_for(10);

    let mut new = server("aes-256-ctr", "4d", |_| LOGICAL.to_owned());
    let old = &all.shards[1];
    new.sql(&format!(
        "create table orders_1 {COLUMNS};; alter table orders_1 add primary key (customer, id)"
    ));
    old.sql("create publication move for table orders_1");
    new.sql(&format!("create subscription move connection '{}' publication move", old.conninfo()));
    new.kill9();
    new.start();
    new.wait_until("select every(srsubstate = 'r') from pg_subscription_rel");

    // Writers wait for as long as this transaction lasts.
    let mut switch = all.front.session();
    switch.sql("begin; lock table orders in access exclusive mode");
    let lsn = old.sql("select pg_current_wal_lsn()");
    old.wait_until(&format!(
        "select bool_and(replay_lsn >= '{lsn}') from pg_stat_replication where application_name = 'move'"
    ));
    switch.sql("drop foreign table orders_1");
    switch.sql(&create_server(2, &new).replace(";;", ";"));
    switch.sql(&create_part(1, 2));
    switch.sql("commit");
    transfers.wait_for(20);
    new.sql("drop subscription move");
    old.sql("drop publication move;; drop table orders_1");

    let committed = transfers.stop();
    let said = all.front.sql("select count(*), sum(amount), sum(moves) from orders");
    assert_eq!(said, format!("4000|{}|{}", 4000 * 100, 2 * committed));
    assert!(new.sql("select sum(moves) from orders_1").parse::<u64>().expect("a number") > 0);
    // The files of the new shard do not open with the keys of the old one.
    let keyring = text(&old.file("pgseal/keyring"));
    new.sql("checkpoint");
    let other = new.pgseal(&["verify", "--keyring", &keyring, &text(new.data())]);
    assert_ne!(other.code, 0, "{}", other.text);
    new.stop_sound(MARKER);
    all.nodes_mut().for_each(|node| node.stop_sound(MARKER));
}
