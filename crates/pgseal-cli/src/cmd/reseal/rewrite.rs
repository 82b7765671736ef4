//! `pgseal reseal --rewrite`: has the server make relations anew whose files have an older suite
//! (`pgseal key renew --suite`). A suite with tags and one without have other offsets, so such a file
//! cannot change in place. PostgreSQL's own commands make new files, and new files get the new suite.
//!
//! Nothing is kept elsewhere: the headers say which files have an older suite. Whatever was not done
//! is found by the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};

use pgseal_core::{KeyringId, Suite};
use pgseal_pgdata::Class;
use serde::Serialize;

use super::server::{Row, Server};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::exit;
use crate::out::{self, Out, count};
use crate::scan::{self, Root};

/// How many names of files are shown.
const SHOWN: usize = 20;

/// What to make anew, and how to report it.
pub struct Wish<'a> {
    /// The keyring of the data directory.
    pub keyring: KeyringId,
    /// The suite of new files.
    pub suite: Suite,
    /// The databases.
    pub databases: &'a [String],
    /// Whether these are all that allow connections.
    pub is_every_database: bool,
    /// Only these tables and indexes; empty: all.
    pub relations: &'a [String],
    /// For how many seconds to wait for the lock on a relation; 0: for any time.
    pub lock_timeout: u32,
    /// Print JSON.
    pub json: bool,
}

/// What makes a relation anew.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Command {
    /// A table or materialized view with its TOAST table and all indexes.
    VacuumFull,
    /// One index of a table that has the new suite already; by the server's user, beside others.
    Reindex { concurrently: bool },
    /// A sequence; the value is the one that it has.
    Cache(i64),
}

/// A command for a relation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    /// The relation, quoted as SQL wants it.
    name: String,
    command: Command,
}

impl Task {
    fn sql(&self) -> String {
        let name = &self.name;
        match self.command {
            Command::VacuumFull => format!("VACUUM (FULL) {name}"),
            Command::Reindex { concurrently: true } => format!("REINDEX INDEX CONCURRENTLY {name}"),
            Command::Reindex { concurrently: false } => format!("REINDEX INDEX {name}"),
            Command::Cache(size) => format!("ALTER SEQUENCE {name} CACHE {size}"),
        }
    }
}

/// A command that the server did not carry out.
#[derive(Debug, Serialize)]
struct Failed {
    database: String,
    command: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct Report {
    data_directory: String,
    /// The suite of new files.
    suite: &'static str,
    /// How many relations were made anew.
    done: u64,
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

/// The commands that make these relations anew. A command for a table covers its indexes and its
/// TOAST table.
fn tasks(rows: &[Row], is_older: impl Fn(&str) -> bool) -> BTreeSet<Task> {
    let older: Vec<&Row> = rows.iter().filter(|row| is_older(&row.path)).collect();
    let whole: BTreeSet<&str> =
        older.iter().filter(|row| !row.is_index).map(|row| row.table.as_str()).collect();
    let task = |row: &&Row| match row.kind {
        'S' => Task { name: row.name.clone(), command: Command::Cache(row.cache) },
        _ if whole.contains(row.table.as_str()) => {
            Task { name: row.table.clone(), command: Command::VacuumFull }
        }
        _ => {
            let command = Command::Reindex { concurrently: !row.is_catalog };
            Task { name: row.name.clone(), command }
        }
    };
    older.iter().map(task).collect()
}

/// Makes the relations anew.
pub fn run(wish: &Wish<'_>, dir: &DataDir, server: &Server) -> Result<u8, CliError> {
    let hides = wish.json || !io::stderr().is_terminal();
    let bar = out::progress_bar(0, hides, "{spinner} {msg}");
    let (mut done, mut failed) = (0, Vec::new());
    for database in wish.databases {
        let older = Older::look(dir, wish.keyring, wish.suite).relations;
        let rows = server.relations(database, wish.relations)?;
        for task in tasks(&rows, |path| older.contains_key(path)) {
            let command = task.sql();
            bar.set_message(format!("{database}: {command}"));
            bar.tick();
            match server.make_anew(database, &command, wish.lock_timeout) {
                Ok(()) => done += 1,
                Err(why) => {
                    let (database, why) = (database.clone(), why.to_string());
                    failed.push(Failed { database, command, why });
                }
            }
        }
    }
    // The files of before are removed with the next checkpoint.
    server.checkpoint()?;
    bar.finish_and_clear();
    let report = report(wish, dir, server, done, failed)?;
    let mut out = Out::new();
    if wish.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report)?;
    }
    out.flush()?;
    let is_whole = report.failed.is_empty() && report.left.is_empty();
    Ok(if is_whole { exit::SOUND } else { exit::DAMAGE })
}

fn report(
    wish: &Wish<'_>,
    dir: &DataDir,
    server: &Server,
    done: u64,
    failed: Vec<Failed>,
) -> Result<Report, CliError> {
    let Wish { keyring, suite, .. } = *wish;
    let root = dir.root.display();
    let Older { relations, others } = Older::look(dir, keyring, suite);
    let left: Vec<String> = relations.into_values().flatten().collect();
    let mut next = Vec::new();
    for (name, oid) in server.closed_databases()? {
        let part = format!("/{oid}/");
        if left.iter().any(|file| file.contains(&part)) {
            next.push(format!(
                "Database {name} allows no connections: ALTER DATABASE {name} ALLOW_CONNECTIONS true; \
                 pgseal reseal {root} -d {name} --rewrite; ALTER DATABASE {name} ALLOW_CONNECTIONS false"
            ));
        }
    }
    if !failed.is_empty() {
        next.push(format!("After the cause is gone: pgseal reseal {root} --rewrite"));
    } else if !wish.is_every_database && !left.is_empty() {
        next.push(format!("For every database: pgseal reseal {root} --rewrite"));
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
    Ok(Report { data_directory: root.to_string(), suite: suite.name(), done, failed, left, next })
}

fn print(out: &mut Out, report: &Report) -> io::Result<()> {
    let made = count(report.done, "relation");
    writeln!(out, "{}: {made} made anew in {}", report.data_directory, report.suite)?;
    for Failed { database, command, why } in &report.failed {
        writeln!(out, "{database}: {command}: {why}")?;
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

    fn row(kind: char, name: &str, table: &str, path: &str) -> Row {
        let (name, table, path) = (name.to_owned(), table.to_owned(), path.to_owned());
        Row { kind, name, table, path, is_index: kind == 'i', is_catalog: false, cache: 7 }
    }

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

    #[test]
    fn one_command_for_a_table_and_what_belongs_to_it() {
        let rows = [
            row('r', "public.t", "public.t", "base/5/1"),
            row('t', "pg_toast.x", "public.t", "base/5/2"),
            row('i', "public.t_pkey", "public.t", "base/5/3"),
            row('S', "public.s", "public.s", "base/5/4"),
            row('r', "public.\"u v\"", "public.\"u v\"", "base/5/5"),
            row('i', "public.u_pkey", "public.\"u v\"", "base/5/6"),
        ];
        let commands = |older: &[&str]| {
            let tasks = tasks(&rows, |path| older.contains(&path));
            tasks.iter().map(Task::sql).collect::<Vec<_>>()
        };
        assert!(commands(&[]).is_empty());
        let all = ["base/5/1", "base/5/2", "base/5/3", "base/5/4", "base/5/5", "base/5/6"];
        assert_eq!(
            commands(&all),
            [
                "VACUUM (FULL) public.\"u v\"",
                "ALTER SEQUENCE public.s CACHE 7",
                "VACUUM (FULL) public.t"
            ]
        );
        assert_eq!(commands(&["base/5/2"]), ["VACUUM (FULL) public.t"], "its TOAST table alone");
        assert_eq!(commands(&["base/5/6"]), ["REINDEX INDEX CONCURRENTLY public.u_pkey"]);
    }

    #[test]
    fn indexes_of_catalogs_are_not_made_concurrently() {
        let mut index = row('i', "pg_catalog.i", "pg_catalog.c", "base/5/9");
        index.is_catalog = true;
        let found = tasks(&[index], |_| true);
        assert_eq!(found.first().map(Task::sql).as_deref(), Some("REINDEX INDEX pg_catalog.i"));
    }
}
