//! The workload of the recorded run. Clients write a mark into the log of the disk after the server
//! has acknowledged each transaction.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_power::Recorder;
use pgseal_scenarios::{Node, Session};

/// Accounts of the bank.
pub const ACCOUNTS: u64 = 200;
/// Clients that move money.
pub const TELLERS: u64 = 2;
/// The client that makes and drops objects.
pub const BUILDER: u64 = 9;

/// What the clients began, acknowledged or not.
#[derive(Debug, Default)]
pub struct Workload {
    /// For each teller, how many transactions it began.
    pub begun: Vec<u64>,
}

/// The mark of a client's transaction.
pub fn mark(client: u64, n: u64) -> u64 {
    client << 32 | n
}

/// Client and transaction of a mark.
pub fn of_mark(mark: u64) -> (u64, u64) {
    (mark >> 32, mark & 0xffff_ffff)
}

/// Creates the objects that the workload and the checks need, before the recording starts.
pub fn prepare(node: &Node) {
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
         select pg_create_logical_replication_slot('s', 'test_decoding');;
         {}",
        include_str!("check.sql")
    ));
}

impl Workload {
    /// Runs all clients for `time`.
    pub fn run(node: &Node, recorder: &Recorder, time: Duration) -> Workload {
        let stop = AtomicBool::new(false);
        let begun: Vec<AtomicU64> = (0..TELLERS).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for (client, begun) in begun.iter().enumerate() {
                let (session, stop) = (node.session(), &stop);
                scope.spawn(move || teller(session, client as u64, begun, recorder, stop));
            }
            let (session, stop_builder) = (node.session(), &stop);
            scope.spawn(move || builder(session, recorder, stop_builder));
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        Workload { begun: begun.iter().map(|count| count.load(Ordering::Relaxed)).collect() }
    }
}

fn teller(
    mut session: Session,
    client: u64,
    begun: &AtomicU64,
    recorder: &Recorder,
    stop: &AtomicBool,
) {
    for n in 1.. {
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
        recorder.mark(mark(client, n));
    }
}

/// Runs one step after another; each step inserts a row into the table `step`, most of them in the
/// same transaction.
fn builder(mut session: Session, recorder: &Recorder, stop: &AtomicBool) {
    for n in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        session.sql(&step(n));
        recorder.mark(mark(BUILDER, n));
    }
}

/// The SQL of step `n`.
fn step(n: u64) -> String {
    let done = |rel: &str, rows: u64| format!("insert into step values ({n}, {rel}, {rows})");
    let none = done("null", 0);
    let table = format!("'x{n}'");
    match n % 16 {
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
        12 => format!("select count(*) from pg_logical_slot_get_changes('s', null, 100); {none}"),
        13 => format!("vacuum (freeze, analyze) ledger; {none}"),
        14 => format!("select pg_switch_wal(); {none}"),
        _ => {
            let strategy = if n % 32 == 15 { "wal_log" } else { "file_copy" };
            format!("create database d{n} strategy {strategy}; {none}; drop database d{n}")
        }
    }
}
