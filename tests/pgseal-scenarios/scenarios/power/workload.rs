//! The workload of the recorded run. Clients write a mark into the log of the disk after the server
//! has acknowledged each transaction.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_scenarios::{Node, Session};

use crate::phase::{Phase, mark};

/// Accounts of the bank.
pub const ACCOUNTS: u64 = 200;
/// Clients that move money.
pub const TELLERS: u64 = 2;
/// The client that makes and drops objects.
pub const BUILDER: u64 = 9;

/// What the clients do and did.
#[derive(Debug)]
pub struct Workload {
    /// For each teller, how many transactions it began, acknowledged or not.
    pub begun: Vec<u64>,
    /// How many steps the builder has done.
    steps: u64,
    /// Whether there is a slot for logical decoding.
    has_slot: bool,
    /// The directory with the tablespace `ts` and with room for `ts2`.
    tablespaces: Option<PathBuf>,
}

/// Creates the objects that the workload and the checks need, before the recording starts. The
/// directory, if there is one, has room for the tablespaces `ts` and `ts2`.
pub fn prepare(node: &Node, has_slot: bool, tablespaces: Option<&Path>) -> Workload {
    let slot = match has_slot {
        true => "select pg_create_logical_replication_slot('s', 'test_decoding');;",
        false => "",
    };
    let tablespace = match tablespaces {
        Some(dir) => format!("create tablespace ts location '{}/ts';;", dir.display()),
        None => String::new(),
    };
    node.sql(&format!(
        "create extension amcheck;;
         create table account (id int primary key, balance bigint not null, note text);;
         insert into account select g, 0, repeat('x', 200) from generate_series(1, {ACCOUNTS}) g;;
         create table ledger (client int, n bigint, account int, amount bigint, memo text,
                              primary key (client, n));;
         create index on ledger (account, amount);;
         alter table ledger alter memo set storage external;;
         create table step (n bigint primary key, rel text, rows bigint);;
         create table shrinking (id int primary key, v text);;
         create unlogged table scratch (id int primary key, v text);;
         {slot} {tablespace} {}",
        include_str!("check.sql")
    ));
    let begun = vec![0; TELLERS as usize];
    Workload { begun, steps: 0, has_slot, tablespaces: tablespaces.map(Path::to_owned) }
}

impl Workload {
    /// Runs all clients for `time`, and `beside` at the same time. The clients go on where they
    /// were, and each acknowledged transaction goes to `note`.
    pub fn run(
        &mut self,
        node: &Node,
        note: &(dyn Fn(u64) + Sync),
        time: Duration,
        beside: impl FnOnce() + Send,
    ) {
        let stop = AtomicBool::new(false);
        let begun: Vec<AtomicU64> = self.begun.iter().map(|count| (*count).into()).collect();
        let steps = AtomicU64::new(self.steps);
        thread::scope(|scope| {
            for (client, begun) in begun.iter().enumerate() {
                let (session, stop) = (node.session(), &stop);
                scope.spawn(move || teller(session, client as u64, begun, note, stop));
            }
            let (session, builder, stop_builder, steps) = (node.session(), &*self, &stop, &steps);
            scope.spawn(move || builder.build(session, steps, note, stop_builder));
            let beside = scope.spawn(beside);
            thread::sleep(time);
            // A panic in it ends the test when the scope does.
            let _ = beside.join();
            stop.store(true, Ordering::Relaxed);
        });
        self.begun = begun.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        self.steps = steps.load(Ordering::Relaxed);
    }

    /// Runs one step after another; each step inserts a row into the table `step`, most of them in
    /// the same transaction.
    fn build(
        &self,
        mut session: Session,
        steps: &AtomicU64,
        note: &(dyn Fn(u64) + Sync),
        stop: &AtomicBool,
    ) {
        while !stop.load(Ordering::Relaxed) {
            let n = steps.load(Ordering::Relaxed) + 1;
            let sql = self.step(n);
            match sql.starts_with("checkpoint") {
                true => Phase::Checkpoint.does(note, || session.sql(&sql)),
                false => session.sql(&sql),
            };
            note(mark(BUILDER, n));
            steps.store(n, Ordering::Relaxed);
        }
    }
}

fn teller(
    mut session: Session,
    client: u64,
    begun: &AtomicU64,
    note: &(dyn Fn(u64) + Sync),
    stop: &AtomicBool,
) {
    for n in begun.load(Ordering::Relaxed) + 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        begun.store(n, Ordering::Relaxed);
        let account = (n * 7 + client * 13) % ACCOUNTS + 1;
        let amount = n % 100;
        session.sql(&format!(
            "begin; \
             update account set balance = balance + {amount} where id = {account}; \
             insert into ledger values ({client}, {n}, {account}, {amount}, \
             repeat(md5({client} || '/' || {n}), 1 + {n} % 97)); \
             commit"
        ));
        note(mark(client, n));
    }
}

impl Workload {
    /// The SQL of step `n`.
    fn step(&self, n: u64) -> String {
        let done = |rel: &str, rows: u64| format!("insert into step values ({n}, {rel}, {rows})");
        let none = done("null", 0);
        let table = format!("'x{n}'");
        let other_place =
            self.tablespaces.as_ref().map(|dir| dir.join("ts2").display().to_string());
        match n % 20 {
            0 => format!("checkpoint; {none}"),
            1 => format!(
                "begin; create table x{n} as select g id, md5(g::text) v from generate_series(1, 500) g; \
             create index on x{n} (v); {}; commit",
                done(&table, 500)
            ),
            2 => {
                let points: String = (0..70)
                    .map(|i| format!("savepoint s{i}; insert into x{n} values ({i}, 's'); "))
                    .collect();
                format!(
                    "begin; create table x{n} (id int primary key, v text); {points} {}; commit",
                    done(&table, 70)
                )
            }
            3 => format!(
                "begin; select id from account where id <= 5 for key share; savepoint a; \
             update account set note = repeat('y', 100 + {n} % 100) where id <= 5; {none}; commit"
            ),
            4 => format!(
                "begin; create table x{n} (id int primary key, v text); \
             insert into x{n} select g, 'prepared' from generate_series(1, 40) g; {}; \
             prepare transaction 'p{n}'; select pg_sleep(0.02); commit prepared 'p{n}'",
                done(&table, 40)
            ),
            5 => format!(
                "begin; insert into shrinking select g, repeat('z', 300) from generate_series(1, 2000) g \
             on conflict do nothing; delete from shrinking where id > 20; {none}; commit; \
             vacuum shrinking"
            ),
            6 => format!(
                "begin; truncate scratch; insert into scratch select g, 'w' from generate_series(1, 200) g; \
             {none}; commit"
            ),
            7 => format!("begin; notify c, 'n{n}'; {none}; commit"),
            8 => format!(
                "begin; drop table if exists x{}; update step set rel = null where rel = 'x{0}'; {none}; commit",
                n.saturating_sub(7)
            ),
            9 => format!("vacuum full account; {none}"),
            10 => format!("reindex table ledger; {none}"),
            11 => format!(
                "begin; create table x{n} as select 1 id, 'w'::text v; truncate x{n}; \
             insert into x{n} select g, 'again' from generate_series(1, 30) g; {}; commit",
                done(&table, 30)
            ),
            12 if !self.has_slot => none,
            12 => {
                format!("select count(*) from pg_logical_slot_get_changes('s', null, 100); {none}")
            }
            13 => format!("vacuum (freeze, analyze) ledger; {none}"),
            14 => format!("select pg_switch_wal(); {none}"),
            15 => format!(
                "alter system set work_mem = '{}MB'; select pg_reload_conf(); {none}",
                4 + n % 9
            ),
            16 if other_place.is_some() => format!(
                "begin; create table x{n} (id int primary key, v text) tablespace ts; \
             create index on x{n} (v) tablespace ts; \
             insert into x{n} select g, repeat('t', 500) from generate_series(1, 100) g; {}; commit",
                done(&table, 100)
            ),
            17 if other_place.is_some() => format!(
                "create table x{n} tablespace ts as select g id, 'm'::text v from generate_series(1, 60) g; \
             create index on x{n} (id); alter table x{n} set tablespace pg_default; {}",
                done(&table, 60)
            ),
            18 if other_place.is_some() => format!(
                "drop table if exists away; drop tablespace if exists ts2; \
             create tablespace ts2 location '{}'; \
             create table away tablespace ts2 as select 1 id; drop table away; drop tablespace ts2; {none}",
                other_place.unwrap_or_default()
            ),
            16..=18 => none,
            _ => {
                let strategy = if n % 40 == 19 { "wal_log" } else { "file_copy" };
                format!("create database d{n} strategy {strategy}; {none}; drop database d{n}")
            }
        }
    }
}
