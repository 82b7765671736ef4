//! The soak: a load that goes on for hours, and events that hit it in random order: crashes,
//! restarts, failovers, backups, rotations, renewals, resealings, conversions, changes of tables.
//! After each event all that is known must hold. `make soak HOURS=n` runs it.
//!
//! `PGSEAL_SOAK_SECONDS` is how long it goes on (default: 60), `PGSEAL_SOAK_SEED` the seed of the
//! order of the events, which the output names, `PGSEAL_SOAK_EVENTS` some events by their names.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pgseal_scenarios::backup::base_backup;
use pgseal_scenarios::{
    Keys, Ledger, Node, SUM, assert_hidden, assert_same_contents, ends, resealing, succeeds,
};
use rustix::process::{Pid, Signal, kill_process};

const MARKER: &str = "canary-soak-Wq4r";
const CLIENTS: usize = 3;

/// Words that no log of a healthy server has.
const DAMAGE: [&str; 6] = [
    "invalid page",
    "does not authenticate",
    "could not read blocks",
    "PANIC:",
    "bug in pgseal",
    "panicked",
];

struct Soak {
    rng: Rng,
    ledger: Ledger,
    primary: Node,
    standby: Node,
    /// How often a standby was made: its directory and its slot have this number.
    standbys: u32,
    keys: u32,
    /// The table `t`, which nothing changes.
    sum: String,
}

type Event = fn(&mut Soak);

/// The events, and how often each comes beside the others.
const EVENTS: [(&str, u32, Event); 14] = [
    ("crash", 4, Soak::crash),
    ("crash-in-recovery", 2, Soak::crash_in_recovery),
    ("backend-killed", 4, Soak::backend_killed),
    ("immediate-stop", 2, Soak::immediate_stop),
    ("restart", 3, Soak::restart),
    ("standby-killed", 3, Soak::standby_killed),
    ("failover", 2, Soak::failover),
    ("backup", 3, Soak::backup),
    ("rotate", 3, Soak::rotate),
    ("renew", 3, Soak::renew),
    ("reseal", 3, Soak::reseal),
    ("rekey", 2, Soak::rekey),
    ("decrypt-encrypt", 1, Soak::decrypt_and_encrypt),
    ("tables", 5, Soak::tables),
];

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "hours: make soak"]
fn everything_happens_under_load() {
    let time = Duration::from_secs(number("PGSEAL_SOAK_SECONDS", 60));
    let seed = number("PGSEAL_SOAK_SEED", fastrand::u64(..));
    let some = env::var("PGSEAL_SOAK_EVENTS").unwrap_or_default();
    let chosen = |name: &str| some.is_empty() || some.split(',').any(|one| one == name);
    let events: Vec<_> = EVENTS.iter().filter(|(name, ..)| chosen(name)).collect();
    assert!(!events.is_empty(), "PGSEAL_SOAK_EVENTS: no event has such a name");
    println!("soak: {} s, PGSEAL_SOAK_SEED={seed}", time.as_secs());

    let mut soak = Soak::new(Rng::with_seed(seed));
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let all: u32 = events.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = soak.rng.u32(..all);
        let (name, _, event) = events
            .iter()
            .find(|(_, weight, _)| {
                let hit = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                hit
            })
            .expect("one of them");
        let number = counts.values().sum::<u32>() + 1;
        let committed = soak.ledger.committed();
        println!(
            "soak: {:6} s, event {number}: {name}, {committed} transactions",
            begun.elapsed().as_secs()
        );
        event(&mut soak);
        soak.check();
        if number % 10 == 0 {
            soak.check_deeply();
        }
        *counts.entry(name).or_default() += 1;
    }
    soak.check_deeply();
    let committed = soak.ledger.committed();
    soak.end();
    let all: u32 = counts.values().sum();
    println!(
        "soak: {all} events in {} s, {committed} transactions, no finding",
        begun.elapsed().as_secs()
    );
    println!("soak: {counts:?}");
}

impl Soak {
    fn new(rng: Rng) -> Soak {
        let mut primary = Node::sealed(&[
            ("checkpoint_timeout", "30s"),
            ("max_wal_size", "32MB"),
            ("shared_buffers", "4MB"),
            ("wal_keep_size", "256MB"),
            ("restart_after_crash", "on"),
            ("max_prepared_transactions", "10"),
            // So that each recovery must reach what was acknowledged.
            ("fsync", "on"),
        ]);
        primary.start();
        primary.sql(&format!(
            "create extension amcheck;;
             create table t (id int primary key, v text);;
             insert into t select g, '{MARKER}' || g from generate_series(1, 3000) g;;
             create unlogged table unlogged as select * from t"
        ));
        let ledger = Ledger::create(&primary, CLIENTS);
        let sum = primary.sql(SUM);
        let standby = standby_of(&primary, 1);
        Soak { rng, ledger, primary, standby, standbys: 1, keys: 0, sum }
    }

    /// Lets the clients write for a while.
    fn load(&mut self) {
        self.ledger.start(&self.primary);
        self.ledger.write_for(Duration::from_millis(self.rng.u64(200..2500)));
    }

    /// What holds after every event.
    fn check(&mut self) {
        self.ledger.check(&self.primary);
        assert_eq!(self.primary.sql(SUM), self.sum, "the table that nothing changes");
        for node in [&self.primary, &self.standby] {
            let log = node.log();
            let found = log.lines().find(|line| DAMAGE.iter().any(|word| line.contains(word)));
            assert_eq!(found, None, "{log}");
        }
        assert!(self.primary.is_running() && self.standby.is_running());
    }

    /// What takes longer: indexes and tables agree, the standby has the same, every block of both
    /// authenticates, and nothing is readable on the disk.
    fn check_deeply(&mut self) {
        self.primary.amcheck();
        self.standby.catch_up(&self.primary);
        assert_same_contents(&self.primary, &[&self.standby]);
        assert_hidden(&[self.primary.data(), self.standby.data()], MARKER);
        self.primary.stop();
        self.primary.assert_authentic();
        self.primary.start();
    }

    fn end(mut self) {
        self.standby.catch_up(&self.primary);
        self.standby.stop_sound(MARKER);
        self.primary.stop_sound(MARKER);
    }

    fn crash(&mut self) {
        self.load();
        self.primary.kill9();
        self.ledger.join();
        self.primary.start();
    }

    fn crash_in_recovery(&mut self) {
        self.load();
        self.primary.kill9();
        self.ledger.join();
        for _ in 0..self.rng.u32(1..4) {
            let time = Duration::from_millis(self.rng.u64(5..200));
            self.primary.start_and_kill9_after(time);
        }
        self.primary.start();
    }

    fn backend_killed(&mut self) {
        self.load();
        let kinds =
            ["client backend", "checkpointer", "background writer", "walwriter", "walsender"];
        let kind = kinds[self.rng.usize(..kinds.len())];
        let victim = self.primary.sql(&format!(
            "select pid from pg_stat_activity where backend_type = '{kind}' \
             and pid <> pg_backend_pid() limit 1"
        ));
        // A walsender may be between two connections.
        if let Some(pid) = victim.parse().ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::KILL).expect("it is there");
        }
        self.ledger.join();
        thread::sleep(Duration::from_millis(200));
        self.primary.wait_until("select true");
    }

    fn immediate_stop(&mut self) {
        self.load();
        self.primary.stop_at_once();
        self.ledger.join();
        self.primary.start();
    }

    fn restart(&mut self) {
        self.load();
        self.primary.stop();
        self.ledger.join();
        self.primary.start();
    }

    fn standby_killed(&mut self) {
        self.load();
        self.standby.kill9();
        if self.rng.bool() {
            let time = Duration::from_millis(self.rng.u64(5..300));
            self.standby.start_and_kill9_after(time);
        }
        self.standby.start();
        self.ledger.join();
        self.standby.catch_up(&self.primary);
        self.ledger.check(&self.standby);
    }

    /// The standby has all commits, because they wait for it. The primary dies, the standby takes
    /// over, and a new standby is made.
    fn failover(&mut self) {
        self.standby.catch_up(&self.primary);
        self.primary
            .sql("alter system set synchronous_standby_names = '*';; select pg_reload_conf()");
        self.primary.wait_until("select bool_or(sync_state = 'sync') from pg_stat_replication");
        self.load();
        self.primary.kill9();
        self.ledger.join();
        self.standby.promote();
        self.standby.sql(
            "alter system reset synchronous_standby_names;; alter system reset primary_conninfo;; \
             alter system reset primary_slot_name;; select pg_reload_conf()",
        );
        self.standbys += 1;
        let next = standby_of(&self.standby, self.standbys);
        let promoted = mem::replace(&mut self.standby, next);
        let dead = mem::replace(&mut self.primary, promoted);
        fs::remove_dir_all(dead.data()).expect("the dead server's directory can be removed");
    }

    /// A base backup under load, which is restored beside the server.
    fn backup(&mut self) {
        self.load();
        let before = self.ledger.committed();
        let dir = base_backup(&self.primary, "soak-backup", &["-X", "stream"]);
        self.ledger.join();
        let mut copy = Node::at(&self.primary, &dir);
        copy.start();
        self.ledger.check_copy_of(&copy, &self.primary, before);
        assert_eq!(copy.sql(SUM), self.sum);
        copy.stop_sound(MARKER);
        fs::remove_dir_all(&dir).expect("the copy can be removed");
    }

    fn rotate(&mut self) {
        self.load();
        let key = self.new_key();
        let node = &mut self.primary;
        ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &key]), 0, &[]);
        node.set_env("PGSEAL_PROVIDER", &key);
        self.ledger.join();
        if self.rng.bool() {
            self.restart();
        }
    }

    fn renew(&mut self) {
        self.load();
        succeeds(&self.primary.pgseal_dir(&["key", "renew", "DIR"]));
        if self.rng.bool() {
            self.primary.kill9();
            self.ledger.join();
            self.primary.start();
        }
        self.ledger.join();
        succeeds(&self.primary.pgseal_dir(&["key", "renew", "DIR", "--finish"]));
    }

    /// New file keys for every relation; sometimes the server dies meanwhile, and goes on by
    /// itself.
    fn reseal(&mut self) {
        self.load();
        let pace = self.rng.u32(200..5000);
        // A node that was promoted or encrypted anew may load the guard module from another place.
        resealing::create_functions(&self.primary);
        resealing::start(&self.primary, &format!("null, {pace}, false"));
        if self.rng.bool() {
            thread::sleep(Duration::from_millis(self.rng.u64(10..800)));
            self.primary.kill9();
            self.ledger.join();
            self.primary.start();
        }
        resealing::wait_for_worker(&self.primary);
        self.ledger.join();
    }

    fn rekey(&mut self) {
        self.load();
        self.primary.stop();
        self.ledger.join();
        let bindir = self.primary.bindir().display().to_string();
        let rekey = ["rekey", "DIR", "--skip-check", "--bindir", &bindir];
        succeeds(&self.primary.pgseal_dir(&rekey));
        self.primary.start();
    }

    /// The way out, and back in. The plain server works, and shows that the search for the marker
    /// finds it.
    fn decrypt_and_encrypt(&mut self) {
        self.load();
        self.primary.stop();
        self.ledger.join();
        let key = self.new_key();
        let bindir = self.primary.bindir().display().to_string();
        let common = ["DIR", "--skip-check", "--bindir", &bindir];
        let decrypt = [&["decrypt", "--yes-write-plain"][..], &common].concat();
        succeeds(&self.primary.pgseal_dir(&decrypt));
        self.primary.start_bare();
        assert_eq!(self.primary.sql(SUM), self.sum);
        self.primary.stop();
        self.primary.assert_shows(MARKER);
        succeeds(&self.primary.pgseal_dir(&[&["encrypt", "-K", &key][..], &common].concat()));
        self.primary.set_env("PGSEAL_PROVIDER", &key);
        self.primary.start();
    }

    fn new_key(&mut self) -> String {
        self.keys += 1;
        self.primary.new_key_file(&format!("soak-{}.key", self.keys))
    }

    /// Tables come and go, are rewritten and cut.
    fn tables(&mut self) {
        self.load();
        let node = &self.primary;
        let rows = self.rng.u32(100..20_000);
        node.sql(&format!(
            "drop table if exists gone;;
             create table gone as select g as a, repeat('x', 100) as b from generate_series(1, {rows}) g;;
             create index on gone (a);; delete from gone where a > {rows} / 3;; vacuum gone;;
             insert into gone select g, 'y' from generate_series(1, 300) g;;
             cluster gone using gone_a_idx;; reindex table concurrently gone;;
             truncate gone;; insert into gone select 1, 'z';;
             vacuum full account;; reindex table concurrently ledger;; vacuum ledger;;
             drop database if exists other;; create database other strategy wal_log;;
             drop database other;; create database other strategy file_copy;; checkpoint"
        ));
        assert_eq!(node.sql("select count(*) from gone"), "1");
        self.ledger.join();
    }
}

fn standby_of(primary: &Node, number: u32) -> Node {
    let mut standby = primary.standby(primary, &format!("soak_standby_{number}"), Keys::Same);
    standby.start();
    standby
}
