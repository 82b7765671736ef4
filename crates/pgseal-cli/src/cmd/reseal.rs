//! `pgseal reseal`: new file keys for relations while the server runs. The server does the work
//! (`server/guard/reseal.c`); this command asks it to, through `psql`, and waits.

mod rewrite;
mod server;

use std::io::{self, IsTerminal, Write};

use pgseal_core::Suite;
use serde::Serialize;

use self::rewrite::Wish;
use self::server::{Connection, FileKey, Outcome, Server, Which, Work};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::out::{Out, count};
use crate::{exit, keys};

const EXAMPLES: &str = "\
Examples:
  pgseal reseal DIR                                     # every relation of every database
  pgseal reseal DIR -d shop -r orders -r public.items   # these, with indexes and TOAST tables
  pgseal reseal DIR --begun                             # go on after an interruption
  pgseal reseal DIR --due                               # also files whose key comes near its limit
  pgseal reseal DIR --status                            # which files have two keys
  pgseal reseal DIR --rewrite                           # to the suite of pgseal key renew --suite
  pgseal reseal DIR --rewrite --status                  # how far that is

The server must run. For a stopped one: pgseal rekey DIR. psql is asked for, and finds the server as
always (PGHOST, PGPORT, PGUSER, .pgpass); the user must be a superuser of the database. That the server
is the one of DIR is checked.

Exit status: 0 all is done, 1 files have two keys or kept their old one, or have an older suite, 22 no server runs, or it is
a standby.";

/// Give relations new file keys while the server runs
///
/// Every page is sealed anew, by a background worker of the server. It can be interrupted at any
/// moment, by a restart too: the server goes on by itself (pgseal.auto_reseal).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    /// Only this database; may be repeated
    #[arg(short = 'd', long = "database", value_name = "NAME")]
    databases: Vec<String>,
    /// Only this table or index of the one database, with its indexes and its TOAST table; may be
    /// repeated
    #[arg(short = 'r', long = "relation", value_name = "NAME", requires = "databases")]
    #[arg(conflicts_with_all = ["begun", "due", "status"])]
    relations: Vec<String>,
    /// Only files that have two keys already
    #[arg(long, conflicts_with_all = ["due", "status"])]
    begun: bool,
    /// Only these, and files whose key has sealed 2^31 writes
    #[arg(long, conflicts_with = "status")]
    due: bool,
    /// Have the server make relations anew whose files have an older suite: VACUUM FULL and
    /// REINDEX, which lock each relation while it is made anew
    #[arg(long, conflicts_with_all = ["begun", "due", "wait"])]
    rewrite: bool,
    /// With --rewrite: for how many seconds to wait for the lock on a relation; 0: for any time
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "rewrite")]
    #[arg(value_parser = clap::value_parser!(i32).range(0..=2_000_000))]
    lock_timeout: i32,
    /// How many pages are sealed anew in a second; 0: no limit. With --rewrite on average: the
    /// worker pauses between relations
    #[arg(long, value_name = "NUMBER", default_value_t = 5120, conflicts_with = "status")]
    #[arg(value_parser = clap::value_parser!(i32).range(0..))]
    pages_per_second: i32,
    /// Start the work in one database, and do not wait for its end
    #[arg(long, conflicts_with_all = ["status", "wait"], requires = "databases")]
    no_wait: bool,
    /// Start nothing: show which files have two keys, and those whose key comes near its limit;
    /// with --rewrite: which relations have an older suite
    #[arg(long)]
    status: bool,
    /// With --status: first wait until no worker runs
    #[arg(long, requires = "status")]
    wait: bool,
    #[command(flatten)]
    connection: Connection,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done in one database, and what is left.
#[derive(Debug, Serialize)]
struct Done {
    database: String,
    /// The process id of the last worker that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    /// Whether all workers came to their end.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
    /// Files that the workers left with two keys, or with their old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    /// Files that have two keys, or whose key comes near its limit.
    files: Vec<FileKey>,
}

#[derive(Debug, Serialize)]
struct Report {
    data_directory: String,
    /// How many workers run now.
    workers: u64,
    databases: Vec<Done>,
}

impl Report {
    fn is_whole(&self) -> bool {
        let is_open = |done: &Done| {
            done.ended == Some(false)
                || done.failed.is_some_and(|failed| failed > 0)
                || done.files.iter().any(|file| file.resealing)
        };
        !self.databases.iter().any(is_open)
    }
}

impl Args {
    fn work(&self) -> Work {
        let which = match (self.begun, self.due, self.rewrite) {
            (true, ..) => Which::Begun,
            (_, true, _) => Which::Due,
            (.., true) => Which::OlderSuite,
            _ => Which::Every,
        };
        let Args { pages_per_second, lock_timeout, .. } = *self;
        Work { which, pages_per_second, lock_timeout }
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let dir = DataDir::open(&args.dir.path("reseal")?)?;
    dir.expect_whole()?;
    let one_database = args.databases.len() == 1;
    if (!args.relations.is_empty() || args.no_wait) && !one_database {
        return Err(CliError::Usage("reseal: give one database with -d".to_owned()));
    }
    let keyring = keys::own_keyring(&dir)?;
    if dir.server_pid().is_none() {
        return Err(CliError::NotNow(format!(
            "{0}: no server runs here; start it, or give the files of the stopped server new keys: \
             pgseal rekey {0}",
            dir.root.display()
        )));
    }
    let has_tags = keyring.suites().all().any(Suite::needs_full_page_images);
    if !has_tags && !args.status && !args.rewrite {
        return Err(CliError::NotNow(format!(
            "{0}: the suite {1} has no tags, so its files get new keys only while the server is \
             stopped: pgseal rekey {0}; to another suite the server can run: pgseal key renew --suite",
            dir.root.display(),
            keyring.suite()
        )));
    }
    let server = Server::of(&dir, &args.connection)?;
    if args.rewrite {
        let wish = Wish {
            keyring: keyring.id(),
            suite: keyring.suite(),
            databases: &args.databases,
            relations: &args.relations,
            work: args.work(),
            is_status: args.status,
            no_wait: args.no_wait,
            json: args.json,
        };
        return rewrite::run(&wish, &dir, &server);
    }
    let databases = match args.databases.is_empty() {
        true => server.databases()?,
        false => args.databases.clone(),
    };
    if args.wait {
        server.wait_for_workers()?;
    }
    let mut report = Report {
        data_directory: dir.root.display().to_string(),
        workers: 0,
        databases: Vec::new(),
    };
    for database in databases {
        let mut done = match args.status {
            true => Done { database, worker: None, ended: None, failed: None, files: Vec::new() },
            false => reseal(args, &server, database)?,
        };
        // What a worker does at this moment is no result.
        if !args.no_wait {
            done.files = server.files(&done.database)?;
        }
        report.databases.push(done);
    }
    report.workers = server.workers()?;
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report, args)?;
    }
    out.flush()?;
    Ok(if report.is_whole() { exit::SOUND } else { exit::DAMAGE })
}

/// Has a worker reseal one database, or one after the other each of the relations.
fn reseal(args: &Args, server: &Server, database: String) -> Result<Done, CliError> {
    let mut done = Done { database, worker: None, ended: None, failed: None, files: Vec::new() };
    let relations: Vec<Option<&str>> = match args.relations.is_empty() {
        true => vec![None],
        false => args.relations.iter().map(|name| Some(name.as_str())).collect(),
    };
    let hides = args.json || !io::stderr().is_terminal();
    for relation in relations {
        let before = server.outcome(&done.database)?;
        let worker = server.start(&done.database, relation, &args.work())?;
        done.worker = worker;
        if args.no_wait {
            return Ok(done);
        }
        server.watch(worker, before.ended, &done.database, hides)?;
        let Outcome { ended, failed } = server.outcome(&done.database)?;
        done.ended = Some(done.ended.unwrap_or(true) && ended > before.ended);
        done.failed = Some(done.failed.unwrap_or(0) + failed.saturating_sub(before.failed));
    }
    Ok(done)
}

fn print(out: &mut Out, report: &Report, args: &Args) -> io::Result<()> {
    let root = &report.data_directory;
    for done in &report.databases {
        let name = &done.database;
        match (done.worker, done.ended) {
            (Some(pid), None) => writeln!(
                out,
                "{name}: process {pid} of the server is at work; see: pgseal reseal {root} --status"
            )?,
            (_, Some(true)) if done.failed == Some(0) => writeln!(out, "{name}: done")?,
            (_, Some(true)) => writeln!(
                out,
                "{name}: {} kept two keys, or the old one; the server's log says which and why",
                count(done.failed.unwrap_or(0), "file")
            )?,
            (_, Some(false)) => {
                writeln!(out, "{name}: the worker was stopped; the server's log says why")?;
            }
            (None, None) => {}
        }
        for file in &done.files {
            writeln!(out, "{name}: {}", file.shown())?;
        }
    }
    let all = || report.databases.iter().flat_map(|done| &done.files);
    let two = all().filter(|file| file.resealing).count() as u64;
    if args.status {
        writeln!(
            out,
            "{} with two keys; {} of the server at work",
            count(two, "file"),
            count(report.workers, "worker")
        )?;
    }
    if two > 0 && report.workers == 0 {
        writeln!(out, "To go on with them: pgseal reseal {root} --begun")?;
    }
    if all().any(|file| file.due) {
        writeln!(out, "To give used up keys a successor: pgseal reseal {root} --due")?;
    }
    Ok(())
}
