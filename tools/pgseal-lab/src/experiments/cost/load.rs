//! Steady loads: sessions in threads of this process that count what they have done.
//!
//! The sessions of a stopped server need not be stopped: each waits for an answer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::client::Client;
use crate::error::LabError;
use crate::stats::SplitMix64;

/// Rows that one step of a scan passes: about a millisecond.
const ROWS: u64 = 10_000;
/// Rows of `pgbench_accounts`, tellers and branches for each unit of the scale.
const ACCOUNTS: usize = 100_000;
const TELLERS: usize = 10;

/// What the sessions do over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Scans `pgbench_accounts` from its beginning to its end with a cursor; counts rows.
    Scan,
    /// Reads a row by its key, as `pgbench -S`.
    Select,
    /// Connects, reads a row, and ends the session, as `pgbench -C -S`.
    Connect,
    /// The transaction of pgbench, which resembles TPC-B.
    Tpcb,
    /// Inserts a row into a table without an index.
    Insert,
}

/// The database that the sessions use.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory of the socket.
    pub socket: PathBuf,
    /// The number in the socket's name.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Database.
    pub database: String,
    /// The scale of pgbench's tables.
    pub scale: u32,
    /// CPUs of the sessions; empty: all.
    pub cpus: Vec<usize>,
}

/// What the sessions share with the one who measures.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Option<String>>,
}

/// Running sessions. The server must run when this is dropped.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Sessions {
    /// Starts as many sessions. The same sessions of two arms ask for the same keys.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(load: Load, count: u32, place: &Place) -> Result<Self, LabError> {
        let mut all = Self { shared: Arc::default(), threads: Vec::new() };
        for number in 0..count {
            let (shared, place) = (Arc::clone(&all.shared), place.clone());
            let work = move || {
                if let Err(error) = session(load, number, &place, &shared) {
                    let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error.to_string());
                }
            };
            let thread = thread::Builder::new().name(format!("session {number}")).spawn(work);
            let started =
                thread.map_err(LabError::io(Path::new("a session"), "start the thread"))?;
            all.threads.push(started);
        }
        Ok(all)
    }

    /// What all sessions have done so far: transactions, or rows of a scan.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Whether a session failed.
    ///
    /// # Errors
    /// [`LabError::Program`] with the message of the first one.
    pub fn check(&self) -> Result<(), LabError> {
        let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            None => Ok(()),
            Some(said) => Err(LabError::Program {
                command: "a session of the load".to_owned(),
                said: said.clone(),
            }),
        }
    }

    /// Ends the sessions; the server must run.
    ///
    /// # Errors
    /// When a session had failed.
    pub fn end(mut self) -> Result<(), LabError> {
        self.join();
        self.check()
    }

    fn join(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.join();
    }
}

fn session(load: Load, number: u32, place: &Place, shared: &Shared) -> io::Result<()> {
    pin(&place.cpus)?;
    let connect = || Client::connect(&place.socket, place.port, &place.user, &place.database);
    let mut random = SplitMix64(0x7067_7365_616c + u64::from(number));
    let accounts = ACCOUNTS * place.scale as usize;
    let go_on = || !shared.stop.load(Ordering::Relaxed);
    let count = |done: u64| {
        shared.done.fetch_add(done, Ordering::Relaxed);
    };
    if load == Load::Connect {
        while go_on() {
            let mut client = connect()?;
            client.run(&select(random.below(accounts) + 1))?;
            client.close()?;
            count(1);
        }
        return Ok(());
    }
    let mut client = connect()?;
    while go_on() {
        match load {
            Load::Scan => scan(&mut client, &go_on, &count)?,
            Load::Select | Load::Connect => {
                client.run(&select(random.below(accounts) + 1))?;
                count(1);
            }
            Load::Tpcb => {
                tpcb(&mut client, &mut random, place.scale as usize)?;
                count(1);
            }
            Load::Insert => {
                client.run(&format!(
                    "INSERT INTO lab_commits (client, words) VALUES ({number}, 'a few words of a row')"
                ))?;
                count(1);
            }
        }
    }
    client.close()
}

fn select(aid: usize) -> String {
    format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}")
}

/// One pass over the table. A cursor gives progress within a scan, without rows that travel.
fn scan(client: &mut Client, go_on: &dyn Fn() -> bool, count: &dyn Fn(u64)) -> io::Result<()> {
    client.run("BEGIN")?;
    client.run("DECLARE pass NO SCROLL CURSOR FOR SELECT abalance FROM pgbench_accounts")?;
    while go_on() {
        let rows = client.run(&format!("MOVE FORWARD {ROWS} IN pass"))?;
        count(rows);
        if rows < ROWS {
            break;
        }
    }
    client.run("COMMIT")?;
    Ok(())
}

fn tpcb(client: &mut Client, random: &mut SplitMix64, scale: usize) -> io::Result<()> {
    let (aid, bid) = (random.below(ACCOUNTS * scale) + 1, random.below(scale) + 1);
    let (tid, delta) = (random.below(TELLERS * scale) + 1, random.below(10_001) as i64 - 5000);
    for statement in [
        "BEGIN".to_owned(),
        format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}"),
        select(aid),
        format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}"),
        format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid}"),
        format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
             VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP)"
        ),
        "END".to_owned(),
    ] {
        client.run(&statement)?;
    }
    Ok(())
}

/// Pins the calling thread.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}
