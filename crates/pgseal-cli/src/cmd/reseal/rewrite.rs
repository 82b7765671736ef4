//! `pgseal reseal --rewrite`: has the server make relations anew whose files have an older suite
//! (`pgseal key renew --suite`). A worker of the server does it (`server/guard/rewrite.c`).
//!
//! Nothing is kept elsewhere: the headers say which files have an older suite. Whatever was not
//! done is found by the next run.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use pgseal_core::{KeyringId, Suite};
use pgseal_pgdata::Class;
use serde::Serialize;

use super::server::{Outcome, Server, Work};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::exit;
use crate::out::{Out, count};
use crate::scan::{self, Root};

/// How many names of files are shown.
const SHOWN: usize = 20;

/// What to make anew, and how to report it.
pub struct Wish<'a> {
    /// The keyring of the data directory.
    pub keyring: KeyringId,
    /// The suite of new files.
    pub suite: Suite,
    /// The databases; empty: all.
    pub databases: &'a [String],
    /// Only these tables and indexes of the one database; empty: all.
    pub relations: &'a [String],
    /// How the worker does it.
    pub work: Work,
    /// Start nothing, only report.
    pub is_status: bool,
    /// Do not wait for the end.
    pub no_wait: bool,
    /// Print JSON.
    pub json: bool,
}

/// A worker that has not made everything anew.
#[derive(Debug, Serialize)]
struct Failed {
    database: String,
    why: String,
    /// Somebody or something ended the worker: no other one is started.
    was_stopped: bool,
}

impl Failed {
    fn new(database: &str, why: String) -> Failed {
        Failed { database: database.to_owned(), why, was_stopped: false }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    data_directory: String,
    /// The suite of new files.
    suite: &'static str,
    /// How many relations were made anew.
    done: u64,
    /// What the server's workers do now.
    at_work: Vec<String>,
    failed: Vec<Failed>,
    /// Files that still have an older suite.
    left: Vec<String>,
    /// What to do about them.
    next: Vec<String>,
}

/// The files of an older suite.
struct Older {
    /// Of relations: their names, by the paths of the main forks' first segments.
    relations: BTreeMap<String, Vec<String>>,
    /// Of other kinds, with keys of another length: they stay as they are.
    others: Vec<String>,
}

impl Older {
    fn look(dir: &DataDir, keyring: KeyringId, suite: Suite) -> Older {
        let mut found = Older { relations: BTreeMap::new(), others: Vec::new() };
        for (entry, _) in scan::scan(&dir.root, Root::DataDir).of_older_suite(keyring, suite) {
            let name = entry.name();
            if matches!(entry.class, Class::Relation { .. }) {
                found.relations.entry(relation_of(&name).to_owned()).or_default().push(name);
            } else {
                found.others.push(name);
            }
        }
        found
    }
}

/// The path without the suffixes of forks and segments: `base/5/16384` of `base/5/16384_fsm.1`.
fn relation_of(name: &str) -> &str {
    let at = name.rfind('/').map_or(0, |at| at + 1);
    let len = name.get(at..).and_then(|file| file.find(['_', '.']));
    len.and_then(|len| name.get(..at + len)).unwrap_or(name)
}

/// Makes the relations anew.
pub fn run(wish: &Wish<'_>, dir: &DataDir, server: &Server) -> Result<u8, CliError> {
    let before = Older::look(dir, wish.keyring, wish.suite).relations.len();
    let mut failed = Vec::new();
    if !wish.is_status {
        let databases = match wish.databases.is_empty() {
            true => server.every_database()?,
            false => wish.databases.to_vec(),
        };
        'all: for database in &databases {
            let relations: Vec<Option<&str>> = match wish.relations.is_empty() {
                true => vec![None],
                false => wish.relations.iter().map(|name| Some(name.as_str())).collect(),
            };
            for relation in relations {
                let outcome = rewrite(wish, server, database, relation);
                let Some(one) =
                    outcome.unwrap_or_else(|error| Some(Failed::new(database, error.to_string())))
                else {
                    continue;
                };
                // What was dropped meanwhile has nothing left to be made anew.
                if !server.every_database()?.contains(database) {
                    break;
                }
                failed.push(one);
                if failed.iter().any(|failed| failed.was_stopped) {
                    break 'all;
                }
            }
        }
        if !wish.no_wait {
            // The files of before are removed with the next checkpoint.
            server.checkpoint()?;
        }
    }
    let report = report(wish, dir, server, before, failed)?;
    let mut out = Out::new();
    if wish.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report, wish)?;
    }
    out.flush()?;
    let is_whole = report.failed.is_empty() && (report.left.is_empty() || wish.no_wait);
    Ok(if is_whole { exit::SOUND } else { exit::DAMAGE })
}

/// Has a worker make one relation, or all of a database, anew. Returns why it did not do all.
fn rewrite(
    wish: &Wish<'_>,
    server: &Server,
    database: &str,
    relation: Option<&str>,
) -> Result<Option<Failed>, CliError> {
    let before = server.outcome("postgres")?;
    let worker = server.start(database, relation, &wish.work)?;
    if wish.no_wait {
        return Ok(None);
    }
    let hides = wish.json || !io::stderr().is_terminal();
    server.watch(worker, before.ended, database, hides)?;
    let Outcome { ended, failed } = server.outcome("postgres")?;
    Ok(match failed.saturating_sub(before.failed) {
        _ if ended == before.ended => {
            let why = "the worker was stopped; the server's log says why".to_owned();
            Some(Failed { was_stopped: true, ..Failed::new(database, why) })
        }
        0 => None,
        failed => {
            let relations = count(failed, "relation");
            let why =
                format!("{relations} could not be made anew; the server's log says which and why");
            Some(Failed::new(database, why))
        }
    })
}

fn report(
    wish: &Wish<'_>,
    dir: &DataDir,
    server: &Server,
    before: usize,
    failed: Vec<Failed>,
) -> Result<Report, CliError> {
    let Wish { keyring, suite, is_status, no_wait, .. } = *wish;
    // Whether each relation of each database was looked at, and none is left.
    let is_of_all =
        !(is_status || no_wait) && wish.databases.is_empty() && wish.relations.is_empty();
    let root = dir.root.display();
    let Older { relations, others } = Older::look(dir, keyring, suite);
    let done = before.saturating_sub(relations.len()) as u64;
    let left: Vec<String> = relations.into_values().flatten().collect();
    let at_work = server.at_work()?;
    let mut next = Vec::new();
    if !failed.is_empty() {
        next.push(format!("After the cause is gone: pgseal reseal {root} --rewrite"));
    } else if !left.is_empty() && is_of_all {
        next.push(format!(
            "No relation has them: a crash left them behind, or they were made meanwhile. What stays \
             after another run changes with: pgseal rekey {root}, the server stopped"
        ));
    } else if !left.is_empty() && at_work.is_empty() {
        next.push(format!("To make them anew: pgseal reseal {root} --rewrite"));
    }
    for (database, index) in server.unfinished_indexes()? {
        next.push(format!(
            "Database {database}: index {index} is not valid: a REINDEX that was interrupted left it; \
             if none runs, DROP INDEX {index}"
        ));
    }
    if !others.is_empty() {
        next.push(format!(
            "{} of other kinds keep keys of another length ({}); all of them change with pgseal rekey, \
             the server stopped",
            count(others.len() as u64, "file"),
            others.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ")
        ));
    }
    if left.is_empty() && others.is_empty() {
        next.push(format!(
            "To have files of the older suite refused, stop the server: pgseal key forget {root}"
        ));
    }
    let data_directory = root.to_string();
    Ok(Report { data_directory, suite: suite.name(), done, at_work, failed, left, next })
}

fn print(out: &mut Out, report: &Report, wish: &Wish<'_>) -> io::Result<()> {
    if !wish.is_status && !wish.no_wait {
        let made = count(report.done, "relation");
        writeln!(out, "{}: {made} made anew in {}", report.data_directory, report.suite)?;
    }
    for text in &report.at_work {
        writeln!(out, "At work: {text}")?;
    }
    for Failed { database, why, .. } in &report.failed {
        writeln!(out, "{database}: {why}")?;
    }
    if !report.left.is_empty() {
        let left = count(report.left.len() as u64, "file");
        writeln!(out, "{left} of relations still in an older suite:")?;
        for name in report.left.iter().take(SHOWN) {
            writeln!(out, "  {name}")?;
        }
        if report.left.len() > SHOWN {
            writeln!(out, "  and {} more", report.left.len() - SHOWN)?;
        }
    }
    for line in &report.next {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_a_relation() {
        for (file, relation) in [
            ("base/5/16384", "base/5/16384"),
            ("base/5/16384.12", "base/5/16384"),
            ("base/5/16384_fsm.1", "base/5/16384"),
            (
                "pg_tblspc/16400/PG_15_202209061/5/16384_vm",
                "pg_tblspc/16400/PG_15_202209061/5/16384",
            ),
            ("global/1262_init", "global/1262"),
        ] {
            assert_eq!(relation_of(file), relation);
        }
    }
}
