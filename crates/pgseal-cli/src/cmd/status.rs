//! `pgseal status`: what is sealed, what is plain and why, and what a running server has counted.
//! Needs no key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use pgseal_core::header::Header;
use pgseal_keys::{KeyError, Keyring, Provider};
use pgseal_pgdata::Policy;
use serde::Serialize;

use super::status_prometheus;
use crate::counters::Counters;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::out::{self, Out};
use crate::scan::{self, Root, Scan, Seen};
use crate::{exit, keys};

const EXAMPLES: &str = "\
Examples:
  pgseal status /srv/postgres/data
  pgseal status --json /srv/postgres/data | jq .plain_where_sealed_is_due
  pgseal status --counters /srv/postgres/data
  pgseal status --prometheus /srv/postgres/data > /var/lib/prometheus/node-exporter/pgseal.prom

Headers are looked at and not authenticated; that is what \"pgseal verify\" does.";

/// What no file-level encryption hides; said in every status, so that nobody takes it for granted.
const NOT_PROTECTED: [&str; 4] = [
    "names, sizes, number and times of files, and which blocks change",
    "pg_control, configuration, backup labels and the server's log (listed above where present)",
    "what the server sends and shows: connections (use TLS), logs, memory, COPY to files, dumps",
    "older copies of whole files or blocks put back by somebody who can write to the storage",
];

/// Show what is sealed, what is plain and why
///
/// Walks the data directory, its WAL directory and tablespaces. Needs no key; a server may run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The data directory
    dir: PathBuf,
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Only what the running server has counted; looks at no file
    #[arg(long)]
    counters: bool,
    /// Print metrics in Prometheus's text format; looks at no file unless --files is given
    #[arg(long)]
    prometheus: bool,
    /// With --prometheus: look at every file too, for metrics of sealed and plain files
    #[arg(long, requires = "prometheus", conflicts_with = "counters")]
    files: bool,
}

/// One class of files.
#[derive(Debug, Default, Serialize)]
pub(super) struct ClassRow {
    files: u64,
    bytes: u64,
    pub(super) sealed: u64,
    pub(super) plain: u64,
    pub(super) empty: u64,
    seals: BTreeSet<String>,
    #[serde(skip)]
    reason: &'static str,
    plain_by_policy: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct PlainFile {
    file: String,
    class: &'static str,
    bytes: u64,
    why: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Problem {
    file: String,
    what: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Status {
    pub(super) data_directory: String,
    pub(super) postgresql: Option<String>,
    server_pid: Option<u32>,
    sealed: bool,
    /// The conversion that was interrupted, if there is one.
    unfinished: Option<&'static str>,
    pub(super) keyring_id: Option<String>,
    provider: Option<String>,
    pub(super) suite: Option<String>,
    pub(super) active_generation: Option<u32>,
    /// Who decides about the configuration.
    configuration: Option<String>,
    pub(super) counters: Option<Counters>,
    no_counters: Option<String>,
    /// Whether what follows was looked at.
    pub(super) files_seen: bool,
    pub(super) classes: BTreeMap<&'static str, ClassRow>,
    plain_by_policy: Vec<PlainFile>,
    pub(super) plain_where_sealed_is_due: Vec<PlainFile>,
    pub(super) problems: Vec<Problem>,
    /// Files that commands of pgseal left when they were cut off; harmless.
    leftovers: Vec<Problem>,
    links: Vec<(String, String)>,
    not_protected: [&'static str; 4],
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let dir = DataDir::open(&args.dir)?;
    let files = !args.counters && (!args.prometheus || args.files);
    let scan = files.then(|| scan::scan(&dir.root, Root::DataDir));
    let any_sealed = || scan.as_ref().is_some_and(|scan| scan.headers().next().is_some());
    let keyring = match keys::keyring_of(&dir, &keys::KeyOptions::default(), any_sealed) {
        Ok(keyring) => Some(keyring),
        Err(CliError::Key(KeyError::KeyringMissing { .. })) => None,
        Err(error) => return Err(error),
    };
    let status = collect(&dir, scan.as_ref(), keyring.as_ref());
    let mut out = Out::new();
    if args.prometheus {
        status_prometheus::write(&mut out, &status)?;
    } else if args.json {
        out.json(&status)?;
    } else {
        print(&mut out, &status)?;
    }
    out.flush()?;
    if keyring.is_none() {
        return Err(KeyError::KeyringMissing { path: dir.keyring() }.into());
    }
    Ok(exit::SOUND)
}

fn collect(dir: &DataDir, scan: Option<&Scan>, keyring: Option<&Keyring>) -> Status {
    let server_pid = dir.server_pid();
    let (counters, no_counters) = match Counters::of_server(server_pid) {
        Ok(counters) => (Some(counters), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let mut status = Status {
        data_directory: dir.root.display().to_string(),
        postgresql: dir.major.clone(),
        server_pid,
        sealed: scan.map_or(keyring.is_some(), |scan| scan.headers().next().is_some()),
        unfinished: dir.conversion.as_ref().map(|journal| journal.operation.name()),
        keyring_id: keyring.map(|keyring| keyring.id().to_string()),
        provider: keyring.map(|keyring| Provider::shown(keyring.provider_uri())),
        suite: keyring.map(|keyring| keyring.suite().name().to_owned()),
        active_generation: keyring.map(|keyring| keyring.active_generation().0),
        configuration: keyring.map(|keyring| configuration(&dir.root, keyring).to_owned()),
        counters,
        no_counters,
        files_seen: scan.is_some(),
        classes: BTreeMap::new(),
        plain_by_policy: Vec::new(),
        plain_where_sealed_is_due: Vec::new(),
        problems: Vec::new(),
        leftovers: Vec::new(),
        links: Vec::new(),
        not_protected: NOT_PROTECTED,
    };
    let Some(scan) = scan else { return status };
    let show = |path: &PathBuf| path.display().to_string();
    for (link, target) in &scan.outside {
        status.links.push((show(link), show(target)));
    }
    for (path, why) in &scan.closed {
        status.problems.push(Problem { file: show(path), what: format!("not readable: {why}") });
    }
    for entry in &scan.entries {
        add(&mut status, entry, keyring.map(Keyring::id));
    }
    status
}

/// Who decides about the configuration, as far as can be told without the key.
fn configuration(root: &Path, keyring: &Keyring) -> &'static str {
    match (keyring.config_lock(), root.join("postgresql.conf").exists()) {
        (Some(_), _) => "locked (pgseal config status compares)",
        (None, false) => "outside of the data directory",
        (None, true) => {
            "not locked: whoever writes the data directory decides what the server runs"
        }
    }
}

fn add(status: &mut Status, entry: &scan::Entry, keyring: Option<KeyringId>) {
    if let Some(what) = entry.leftover() {
        return status.leftovers.push(Problem { file: entry.name(), what: what.to_owned() });
    }
    let row = status.classes.entry(entry.class.name()).or_default();
    row.files += 1;
    row.bytes += entry.len;
    row.reason = entry.class.reason();
    row.plain_by_policy = matches!(entry.class.policy(), Policy::Plain(_));
    let mut problem = |what: String| status.problems.push(Problem { file: entry.name(), what });
    match &entry.seen {
        Seen::Sealed(header) => {
            row.sealed += 1;
            row.seals.insert(seal_of(header));
            if keyring.is_some_and(|id| id != header.keyring_id) {
                problem(format!("sealed with another keyring, {}", header.keyring_id));
            }
        }
        Seen::Empty => row.empty += 1,
        Seen::Plain => {
            row.plain += 1;
            let plain = PlainFile {
                file: entry.name(),
                class: entry.class.name(),
                bytes: entry.len,
                why: entry.class.reason(),
            };
            match entry.class.policy() {
                Policy::Plain(_) => status.plain_by_policy.push(plain),
                _ => status.plain_where_sealed_is_due.push(plain),
            }
        }
        Seen::HeaderLost { bytes_behind } => {
            problem(format!("its header is zeros, with {bytes_behind} bytes behind"));
        }
        Seen::BadHeader(what) => problem(what.clone()),
        Seen::Unreadable(why) => problem(format!("not readable: {why}")),
        Seen::Dangling(target) => {
            problem(format!("a link to {}, which is not there", target.display()));
        }
        Seen::Special | Seen::Gone => {}
    }
}

fn seal_of(header: &Header) -> String {
    format!("{} {}, generation {}", header.suite, header.layout, header.generation)
}

fn print(out: &mut Out, status: &Status) -> io::Result<()> {
    writeln!(out, "Data directory  {}", status.data_directory)?;
    let unknown = "unknown (PG_VERSION is not there)";
    writeln!(out, "PostgreSQL      {}", status.postgresql.as_deref().unwrap_or(unknown))?;
    match status.server_pid {
        Some(pid) => writeln!(out, "Server          running, process {pid}")?,
        None => writeln!(out, "Server          not running")?,
    }
    if let Some(command) = status.unfinished {
        writeln!(
            out,
            "Conversion      UNFINISHED: no server starts; run \"pgseal {command}\" again, it goes on"
        )?;
    }
    for (name, value) in [
        ("Keyring         ", &status.keyring_id),
        ("Key             ", &status.provider),
        ("Suite           ", &status.suite),
        ("Configuration   ", &status.configuration),
    ] {
        writeln!(out, "{name}{}", value.as_deref().unwrap_or("unknown: the keyring is missing"))?;
    }
    print_counters(out, status)?;
    if !status.files_seen {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<24}{:>7}{:>12}{:>8}{:>7}{:>7}  sealed as",
        "class", "files", "bytes", "sealed", "plain", "empty"
    )?;
    for (name, row) in &status.classes {
        let seals: Vec<&str> = row.seals.iter().map(String::as_str).collect();
        let note = if seals.is_empty() && row.plain_by_policy {
            "plain by design".to_owned()
        } else {
            seals.join("; ")
        };
        let bytes = out::human_bytes(row.bytes);
        writeln!(
            out,
            "{name:<24}{:>7}{bytes:>12}{:>8}{:>7}{:>7}  {note}",
            row.files, row.sealed, row.plain, row.empty
        )?;
    }
    print_plain(out, status)?;
    print_list(out, "Problems:", status.problems.iter().map(|p| (&p.file, &p.what)))?;
    print_list(out, "Left over:", status.leftovers.iter().map(|p| (&p.file, &p.what)))?;
    let links = status.links.iter().map(|(link, target)| (link, target));
    print_list(out, "Links to other directories:", links)?;
    writeln!(out, "\nNot protected:")?;
    for line in status.not_protected {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Classes of which anything was counted, and column values.
fn print_counters(out: &mut Out, status: &Status) -> io::Result<()> {
    let Some(counters) = &status.counters else {
        // That no server runs was said already.
        return match (&status.no_counters, status.server_pid) {
            (Some(why), Some(_)) => writeln!(out, "Counters        none: {why}"),
            _ => Ok(()),
        };
    };
    writeln!(
        out,
        "\n{:<24}{:>11}{:>11}{:>11}{:>11}{:>9}{:>9}  since the server started",
        "blocks", "sealed", "", "opened", "", "zero", "failed"
    )?;
    for (class, values) in counters.classes.iter().filter(|(_, v)| v.values().any(|v| *v > 0)) {
        let value = |name: &str| values.get(name).copied().unwrap_or(0);
        let bytes = |name: &str| out::human_bytes(value(name));
        let zero = value("zero_blocks_read") + value("zero_blocks_written");
        write!(
            out,
            "{class:<24}{:>11}{:>11}{:>11}{:>11}{zero:>9}{:>9}",
            value("sealed_blocks"),
            bytes("sealed_bytes"),
            value("opened_blocks"),
            bytes("opened_bytes"),
            value("failed_blocks")
        )?;
        let files = value("failed_files");
        let note = if files > 0 {
            format!("  {} refused", out::count(files, "file"))
        } else {
            String::new()
        };
        writeln!(out, "{note}")?;
    }
    let columns: Vec<String> = counters
        .columns
        .iter()
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    if counters.columns.values().any(|value| *value > 0) {
        writeln!(out, "Columns         {}", columns.join(", "))?;
    }
    Ok(())
}

fn print_plain(out: &mut Out, status: &Status) -> io::Result<()> {
    if !status.plain_by_policy.is_empty() {
        writeln!(out, "\nPlain by design:")?;
    }
    let mut by_class: BTreeMap<&str, Vec<&PlainFile>> = BTreeMap::new();
    for plain in &status.plain_by_policy {
        by_class.entry(plain.class).or_default().push(plain);
    }
    for (class, files) in by_class {
        let why = files.first().map_or("", |plain| plain.why);
        writeln!(out, "  {class}: {why}")?;
        let shown: Vec<&str> = files.iter().take(6).map(|plain| plain.file.as_str()).collect();
        let more = files.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "      {}{more}", shown.join(", "))?;
    }
    if status.plain_where_sealed_is_due.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPLAIN, and of a class that is sealed:")?;
    for plain in &status.plain_where_sealed_is_due {
        let bytes = out::human_bytes(plain.bytes);
        writeln!(out, "  {} ({}, {bytes}): {}", plain.file, plain.class, plain.why)?;
    }
    Ok(())
}

fn print_list<'a>(
    out: &mut Out,
    title: &str,
    items: impl Iterator<Item = (&'a String, &'a String)>,
) -> io::Result<()> {
    let mut items = items.peekable();
    if items.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    for (name, what) in items {
        writeln!(out, "  {name}: {what}")?;
    }
    Ok(())
}
