//! A write load whose clients remember which transactions the server reported as committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::files::wait_for;
use crate::node::Node;

/// The tables of the load, and the transactions that its clients know to be committed.
#[derive(Debug)]
pub struct Ledger {
    /// For each client, how many transactions it has seen committed.
    committed: Vec<u64>,
    /// For each client, how many transactions it has begun.
    begun: Vec<u64>,
    running: Vec<JoinHandle<(u64, u64)>>,
    /// Transactions that the running clients have seen committed.
    seen: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

const ACCOUNTS: u64 = 500;

impl Ledger {
    /// Creates the tables: `account`, in which each transaction changes one row, and the ledger, to
    /// which each transaction adds a row, some of them long enough for TOAST.
    #[must_use]
    pub fn create(node: &Node, clients: usize) -> Ledger {
        node.sql(&format!(
            "create table account (id int primary key, balance bigint not null, note text);;
             insert into account select g, 0, repeat('x', 200) from generate_series(1, {ACCOUNTS}) g;;
             create table ledger (client int, n bigint, account int, amount bigint, memo text,
                                  primary key (client, n));;
             create index on ledger (account, amount);;
             create index on ledger using hash (memo);;
             alter table ledger alter memo set storage external"
        ));
        Ledger {
            committed: vec![0; clients],
            begun: vec![0; clients],
            running: Vec::new(),
            seen: Arc::new(AtomicU64::new(0)),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Starts the clients. Each ends when its connection dies or [`Ledger::join`] is called.
    pub fn start(&mut self, node: &Node) {
        self.stop.store(false, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
        for (client, begun) in self.begun.iter().enumerate() {
            let mut session = node.session();
            let (stop, seen) = (Arc::clone(&self.stop), Arc::clone(&self.seen));
            let before = *begun;
            self.running.push(thread::spawn(move || {
                let (mut committed, mut begun) = (0, before);
                while !stop.load(Ordering::Relaxed) {
                    begun += 1;
                    // A transaction counts as committed only if the COMMIT was answered without any
                    // message.
                    if session.run(&transaction(client, begun)).is_none_or(|said| !said.is_empty())
                    {
                        break;
                    }
                    committed += 1;
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                (committed, begun)
            }));
        }
    }

    /// Lets the clients write for this time, and on a slow machine until they have committed as
    /// many transactions as there are clients.
    ///
    /// # Panics
    /// When the clients write nothing.
    pub fn write_for(&self, time: Duration) {
        thread::sleep(time);
        let enough = self.running.len() as u64;
        wait_for("what clients write", || {
            self.seen.load(Ordering::Relaxed) >= enough
                || self.running.iter().all(JoinHandle::is_finished)
        });
    }

    /// Stops the clients, unless the test has cut them off already, and waits for their end.
    ///
    /// # Panics
    /// When a client panicked.
    pub fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (client, thread) in self.running.drain(..).enumerate() {
            let (committed, begun) = thread.join().expect("a client ends");
            self.committed[client] += committed;
            self.begun[client] = begun;
        }
    }

    /// All transactions that the clients know to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.iter().sum()
    }

    /// Compares the tables with what the clients know: every transaction that was reported as
    /// committed is there whole; beyond these, at most one transaction per client, whose answer was
    /// lost.
    ///
    /// # Panics
    /// When a transaction is lost or partial, or one is there that no client began.
    pub fn check(&mut self, node: &Node) {
        for client in 0..self.committed.len() {
            let count: u64 = number(&node.sql(&format!(
                "select count(*) from ledger where client = {client} and n <= {}",
                self.begun[client]
            )));
            let all: u64 =
                number(&node.sql(&format!("select count(*) from ledger where client = {client}")));
            let known = self.committed[client];
            assert_eq!(count, all, "client {client}: transactions that nobody made");
            assert!(count >= known, "client {client}: {known} committed, only {count} are there");
            // A client that was cut off had at most one transaction in progress.
            assert!(count <= known + 1, "client {client}: {known} committed, {count} are there");
            // From here on these transactions are known to be committed.
            self.committed[client] = count;
        }
        check_content(node);
    }

    /// Checks a copy that was made while the clients worked: of each client it has the first
    /// transactions without a gap, each of them whole, and of all clients together at least
    /// `at_least`.
    ///
    /// # Panics
    /// When a transaction in between is missing or partial, or there are fewer than `at_least`.
    pub fn check_copy(&self, node: &Node, at_least: u64) {
        let gaps = node.sql(
            "select client from ledger group by client \
             having count(*) <> max(n) or min(n) <> 1",
        );
        assert_eq!(gaps, "", "clients of which transactions in between are missing");
        check_amount(node, at_least);
    }

    /// As [`Ledger::check_copy`], for an original that crashed before: a client goes on with the
    /// next number, so the transactions that a crash cut off are gaps of the original too.
    ///
    /// # Panics
    /// When a transaction of the original in between is missing or partial, or there are fewer than
    /// `at_least`.
    pub fn check_copy_of(&self, copy: &Node, original: &Node, at_least: u64) {
        for client in 0..self.committed.len() {
            let of = format!("from ledger where client = {client}");
            let last = copy.sql(&format!("select coalesce(max(n), 0) {of}"));
            let count = |node: &Node| node.sql(&format!("select count(*) {of} and n <= {last}"));
            assert_eq!(count(copy), count(original), "client {client}, up to {last}");
        }
        check_amount(copy, at_least);
    }
}

fn check_amount(node: &Node, at_least: u64) {
    let all = number(&node.sql("select count(*) from ledger"));
    assert!(all >= at_least, "{at_least} were committed before the backup, {all} are there");
    check_content(node);
}

/// Checks rows and balances against what the transactions must have made.
fn check_content(node: &Node) {
    let wrong = node.sql(
        "select count(*) from ledger where memo is distinct from \
         repeat(md5(client || '/' || n), 1 + (n % 97)::int)",
    );
    assert_eq!(wrong, "0", "lines of the ledger with another content");
    let apart = node.sql(
        "select count(*) from account a left join \
         (select account, sum(amount) s from ledger group by 1) l on l.account = a.id \
         where a.balance is distinct from coalesce(l.s, 0)",
    );
    assert_eq!(apart, "0", "accounts that disagree with the ledger");
}

fn transaction(client: usize, n: u64) -> String {
    let account = (n * 7 + client as u64 * 13) % ACCOUNTS + 1;
    let amount = n % 100;
    format!(
        "begin; \
         update account set balance = balance + {amount} where id = {account}; \
         insert into ledger values ({client}, {n}, {account}, {amount}, \
         repeat(md5({client} || '/' || {n}), 1 + {n} % 97)); \
         commit"
    )
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}
