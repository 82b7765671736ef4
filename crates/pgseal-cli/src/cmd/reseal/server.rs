//! The running server, as `pgseal reseal` talks to it: through `psql`, with functions of the guard
//! module that the server has loaded. They are made for one session only, so the extension is not
//! needed.
//!
//! Where the server listens is not read from its data directory: whoever writes the directory could
//! name another server. `psql` finds it, and what it answers is compared with the directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use pgseal_core::usage;
use serde::Serialize;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::{bindir, child, out};

/// How long one question may take: the state of all files of a database needs a look at each.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long a checkpoint may take.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// How often the server is asked how far it is.
const PAUSE: Duration = Duration::from_millis(500);
/// How many looks in a row must miss a worker until it counts as stopped. On a busy machine one
/// that was just started is not in `pg_stat_activity` yet.
const ABSENT: u32 = 20;
/// How many files are shown of each database.
const SHOWN: u32 = 500;

/// Where the server is, as psql takes it.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// The server's host or the directory of its socket, as psql takes it
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The server's port
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// The superuser
    #[arg(short = 'U', long, value_name = "NAME")]
    username: Option<String>,
}

/// Which files get new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    Every,
    /// Those that have two keys already.
    Begun,
    /// These, and those whose key comes near its limit.
    Due,
    /// Those of relations that have a file in an older suite: the relations are made anew.
    OlderSuite,
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// With which files.
    pub which: Which,
    /// How many pages it writes in a second on average; 0: no limit.
    pub pages_per_second: i32,
    /// [`Which::OlderSuite`]: for how many seconds it waits for the lock on a relation; 0: for any
    /// time.
    pub lock_timeout: i32,
}

/// What workers have done since the server started.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How many came to their end.
    pub ended: u64,
    /// How many files they left with two keys, or with their old one.
    pub failed: u64,
}

/// A file that has two keys, or whose key comes near its limit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FileKey {
    relation: String,
    fork: String,
    segment: u32,
    file_key: u64,
    /// Whether it has two keys.
    pub resealing: bool,
    pages_done: Option<u64>,
    pages_left: Option<u64>,
    /// About how many writes its key has sealed.
    writes: u64,
    /// Whether that is half of the limit, or more.
    pub due: bool,
}

impl FileKey {
    /// The line for people.
    pub fn shown(&self) -> String {
        let FileKey { relation, fork, segment, writes, .. } = self;
        let mut text = format!("{relation}, {fork}, segment {segment}: key {}", self.file_key);
        if let (Some(done), Some(left)) = (self.pages_done, self.pages_left) {
            text.push_str(&format!(" and the one before it, {done} pages done, {left} left"));
        }
        if self.due {
            text.push_str(&format!(", about {writes} writes under one key (limit 4294967296)"));
        }
        text
    }

    /// A row of the query in [`Server::files`].
    fn of(row: &str) -> Option<FileKey> {
        let mut fields = row.split('\t');
        let mut next = || fields.next();
        let (relation, fork) = (next()?.to_owned(), next()?.to_owned());
        let (segment, file_key) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let resealing = next()? == "t";
        let (pages_done, pages_left) = (next()?.parse().ok(), next()?.parse().ok());
        let writes = next()?.parse().ok()?;
        let due = writes >= usage::DUE;
        Some(FileKey {
            relation,
            fork,
            segment,
            file_key,
            resealing,
            pages_done,
            pages_left,
            writes,
            due,
        })
    }
}

/// A server that runs on the data directory.
#[derive(Debug)]
pub struct Server {
    psql: PathBuf,
    options: Vec<String>,
    /// The guard module, as the server has it in `shared_preload_libraries`.
    guard: String,
}

impl Server {
    /// Finds the server, and makes sure that it is the one of this directory.
    pub fn of(dir: &DataDir, connection: &Connection) -> Result<Server, CliError> {
        let psql = bindir::find(OsStr::new("psql"), dir.major.as_deref())?;
        let mut options = Vec::new();
        for (option, value) in [
            ("--host", connection.host.clone()),
            ("--port", connection.port.map(|port| port.to_string())),
            ("--username", connection.username.clone()),
        ] {
            options.extend(value.map(|value| format!("{option}={value}")));
        }
        let mut server = Server { psql, options, guard: String::new() };
        let answer = server.ask(
            None,
            &["SELECT current_setting('data_directory'), pg_is_in_recovery(), \
               current_setting('shared_preload_libraries')"],
        )?;
        let mut fields = answer.trim_end_matches('\n').split('\t');
        let mut next = || fields.next().unwrap_or_default();
        let (found, is_standby, modules) = (next(), next() == "t", next());
        let same = |path: &Path| path.canonicalize().ok();
        if same(Path::new(found)).is_none() || same(Path::new(found)) != same(&dir.root) {
            return Err(CliError::NotNow(format!(
                "{}: psql reaches the server of another data directory, \"{found}\"; say where this \
                 one is with --host and --port",
                dir.root.display()
            )));
        }
        if is_standby {
            return Err(CliError::NotNow(format!(
                "{0}: a standby has file keys of its own and cannot change them while it runs; make \
                 it anew with pg_basebackup, or stop it and run: pgseal rekey {0}",
                dir.root.display()
            )));
        }
        server.guard = guard_of(modules).ok_or_else(|| {
            CliError::Settings(format!(
                "{}: its server has not loaded the guard module; add pgseal_guard to \
                 shared_preload_libraries and restart",
                dir.root.display()
            ))
        })?;
        Ok(server)
    }

    /// The databases that allow connections, but for those that are being dropped.
    pub fn databases(&self) -> Result<Vec<String>, CliError> {
        let sql = "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 \
                   ORDER BY datname";
        Ok(self.ask(None, &[sql])?.lines().map(str::to_owned).collect())
    }

    /// All databases, also those that allow no connections, but for those that are being dropped.
    pub fn every_database(&self) -> Result<Vec<String>, CliError> {
        let sql = "SELECT datname FROM pg_database WHERE datconnlimit <> -2 ORDER BY datname";
        Ok(self.ask(None, &[sql])?.lines().map(str::to_owned).collect())
    }

    /// Starts a worker in a database. `None`: it has ended already.
    pub fn start(
        &self,
        database: &str,
        relation: Option<&str>,
        work: &Work,
    ) -> Result<Option<u32>, CliError> {
        let Work { which, pages_per_second, lock_timeout } = *work;
        // A relation has its number in its own database; else the worker alone connects to it.
        let connect_to = relation.map(|_| database).or(match which {
            Which::OlderSuite => None,
            _ => Some(database),
        });
        let relation = relation.map_or("NULL".to_owned(), literal);
        let other_database = match connect_to {
            Some(_) => "NULL".to_owned(),
            None => literal(database),
        };
        let make = format!(
            "CREATE FUNCTION pg_temp.pgseal_reseal(regclass, int, bool, bool, bool, int, text) \
             RETURNS int LANGUAGE C AS {}, 'pgseal_guard_reseal'",
            literal(&self.guard)
        );
        let call = format!(
            "SELECT pg_temp.pgseal_reseal({relation}, {pages_per_second}, {}, {}, {}, \
             {lock_timeout}, {other_database})",
            which == Which::Begun,
            which == Which::Due,
            which == Which::OlderSuite
        );
        Ok(self.ask(connect_to, &[&make, &call])?.trim().parse().ok())
    }

    /// What workers have done since the server started.
    pub fn outcome(&self, database: &str) -> Result<Outcome, CliError> {
        let make = format!(
            "CREATE FUNCTION pg_temp.pgseal_outcome(OUT ended int8, OUT failed int8) \
             RETURNS SETOF record LANGUAGE C AS {}, 'pgseal_guard_reseal_outcome'",
            literal(&self.guard)
        );
        let answer =
            self.ask(Some(database), &[&make, "SELECT * FROM pg_temp.pgseal_outcome()"])?;
        let numbers = answer.trim().split_once('\t');
        let number = |text: &str| text.parse().ok();
        numbers
            .and_then(|(ended, failed)| {
                Some(Outcome { ended: number(ended)?, failed: number(failed)? })
            })
            .ok_or_else(|| unexpected(&answer))
    }

    /// What a worker does; `None`: it is not there.
    fn doing(&self, worker: u32) -> Result<Option<String>, CliError> {
        let sql = format!(
            "SELECT coalesce(query, '') FROM pg_stat_activity \
             WHERE pid = {worker} AND backend_type = 'pgseal reseal'"
        );
        let answer = self.ask(None, &[&sql])?;
        Ok(answer.lines().next().map(str::to_owned))
    }

    /// What all workers do.
    pub fn at_work(&self) -> Result<Vec<String>, CliError> {
        let sql = "SELECT replace(datname || ': ' || query, E'\\n', ' ') FROM pg_stat_activity \
                   WHERE backend_type = 'pgseal reseal' AND query <> ''";
        Ok(self.ask(None, &[sql])?.lines().map(str::to_owned).collect())
    }

    /// How many workers run.
    pub fn workers(&self) -> Result<u64, CliError> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgseal reseal'";
        let answer = self.ask(None, &[sql])?;
        answer.trim().parse().map_err(|_| unexpected(&answer))
    }

    /// Waits until a worker has ended, and shows what it does. `before`: how many workers had ended
    /// before it was started.
    pub fn watch(
        &self,
        worker: Option<u32>,
        before: u64,
        database: &str,
        is_hidden: bool,
    ) -> Result<(), CliError> {
        let Some(worker) = worker else { return Ok(()) };
        let bar = out::progress_bar(0, is_hidden, "{spinner} {msg}");
        let mut absent = 0;
        while absent < ABSENT {
            match self.doing(worker)? {
                Some(doing) => {
                    bar.set_message(format!("{database}: {doing}"));
                    bar.tick();
                    absent = 0;
                }
                // A worker counts itself before it leaves.
                None if self.outcome("postgres")?.ended > before => break,
                None => absent += 1,
            }
            thread::sleep(PAUSE);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Waits until no worker runs.
    pub fn wait_for_workers(&self) -> Result<(), CliError> {
        while self.workers()? > 0 {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The files of a database, and the shared ones, that have two keys, or whose key comes near
    /// its limit.
    pub fn files(&self, database: &str) -> Result<Vec<FileKey>, CliError> {
        let make = format!(
            "CREATE FUNCTION pg_temp.pgseal_file_keys(regclass, OUT fork text, OUT segment int, \
             OUT file_key int8, OUT resealing bool, OUT pages_done int8, OUT pages_left int8, \
             OUT writes int8) RETURNS SETOF record LANGUAGE C STRICT AS {}, \
             'pgseal_guard_file_keys'",
            literal(&self.guard)
        );
        let call = format!(
            "SELECT c.oid::regclass, k.* FROM pg_class AS c, \
             LATERAL pg_temp.pgseal_file_keys(c.oid) AS k \
             WHERE c.relkind IN ('r', 'i', 'S', 't', 'm') AND c.relpersistence <> 't' \
             AND (k.resealing OR k.writes >= {}) ORDER BY k.writes DESC, 1, 2, 3 LIMIT {SHOWN}",
            usage::DUE
        );
        let answer = self.ask(Some(database), &[&make, &call])?;
        answer.lines().map(|row| FileKey::of(row).ok_or_else(|| unexpected(row))).collect()
    }

    /// Has the server make a checkpoint.
    pub fn checkpoint(&self) -> Result<(), CliError> {
        self.ask_within(CHECKPOINT_TIMEOUT, None, &["CHECKPOINT"]).map(|_| ())
    }

    /// Indexes that a `REINDEX CONCURRENTLY` left when it was interrupted, or that one makes now,
    /// with their databases.
    pub fn unfinished_indexes(&self) -> Result<Vec<(String, String)>, CliError> {
        let sql = "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_index AS i \
                   JOIN pg_class AS c ON c.oid = i.indexrelid \
                   JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                   WHERE NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$'";
        let mut found = Vec::new();
        for database in self.databases()? {
            let answer = match self.ask(Some(&database), &[sql]) {
                // It was dropped meanwhile.
                Err(_) if !self.databases()?.contains(&database) => continue,
                answer => answer?,
            };
            found.extend(answer.lines().map(|name| (database.clone(), name.to_owned())));
        }
        Ok(found)
    }

    /// Runs statements in one session. Names that the statements create cannot hide those of the
    /// system.
    fn ask(&self, database: Option<&str>, statements: &[&str]) -> Result<String, CliError> {
        self.ask_within(TIMEOUT, database, statements)
    }

    fn ask_within(
        &self,
        timeout: Duration,
        database: Option<&str>,
        statements: &[&str],
    ) -> Result<String, CliError> {
        let mut psql = Command::new(&self.psql);
        psql.args(["-X", "-q", "-A", "-t", "-w", "-F", "\t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(&self.options).env("PGCLIENTENCODING", "UTF8");
        psql.arg(format!("--dbname={}", conninfo(database.unwrap_or("postgres"))));
        psql.args(["-c", "SET standard_conforming_strings = on; SET search_path = public"]);
        for statement in statements {
            psql.args(["-c", statement]);
        }
        let failed = |what: String| {
            CliError::NotNow(format!(
                "psql: {what}; check that \"psql postgres\" reaches the server as a superuser (--host, \
                 --port, -U, PGHOST, PGPORT, PGUSER)"
            ))
        };
        let said = child::output_within(&mut psql, timeout);
        let said = said.map_err(|error| failed(error.to_string()))?;
        if !said.status.success() {
            let text = String::from_utf8_lossy(&said.stderr);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            return Err(failed(lines.join(" ")));
        }
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }
}

/// The guard module in `shared_preload_libraries`.
fn guard_of(modules: &str) -> Option<String> {
    let entries = modules.split(',').map(|entry| entry.trim().trim_matches('"'));
    let is_guard =
        |entry: &&str| Path::new(entry).file_stem().is_some_and(|name| name == "pgseal_guard");
    entries.into_iter().find(is_guard).map(str::to_owned)
}

/// A literal of SQL, with `standard_conforming_strings`.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A connection string: the name of a database may look like one.
fn conninfo(database: &str) -> String {
    format!("dbname='{}'", database.replace('\\', r"\\").replace('\'', r"\'"))
}

fn unexpected(answer: &str) -> CliError {
    CliError::NotNow(format!(
        "psql: an answer that is not understood, \"{}\"; use pgseal and pgseal_guard.so of one release",
        answer.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        assert_eq!(literal("o'x"), "'o''x'");
        assert_eq!(conninfo(r"a' host='evil\"), r"dbname='a\' host=\'evil\\'");
    }

    #[test]
    fn the_guard_is_found_among_the_modules() {
        let guard = |text: &str| guard_of(text);
        assert_eq!(guard("pgseal_guard").as_deref(), Some("pgseal_guard"));
        let with_path = "auto_explain, \"/opt/x/pgseal_guard.so\"";
        assert_eq!(guard(with_path).as_deref(), Some("/opt/x/pgseal_guard.so"));
        assert_eq!(guard("pg_stat_statements"), None);
    }

    #[test]
    fn rows_are_parsed() {
        let two = FileKey::of("orders\tmain\t1\t2\tt\t100\t28\t0").unwrap();
        assert!(two.resealing && !two.due && two.pages_left == Some(28));
        assert!(two.shown().contains("100 pages done, 28 left"), "{}", two.shown());
        let due = FileKey::of("orders\tmain\t0\t1\tf\t\t\t2147483648").unwrap();
        assert!(due.due && !due.resealing && due.pages_done.is_none());
        assert!(due.shown().contains("about 2147483648 writes"), "{}", due.shown());
        assert_eq!(FileKey::of("orders\tmain\tx"), None);
    }
}
