//! `pgseal config`: records the configuration of a data directory, so that the server reads no
//! other one (`spec/config-lock.md`).

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use pgseal_core::KeySet;
use pgseal_core::random::LibraryRandom;
use pgseal_keys::config_record::{ConfigRecord, Version};
use pgseal_keys::{
    Kek, Keyring, config_record_path, keyring_path, read_config_record, update, write_config_record,
};
use serde::Serialize;

use crate::config_files::{self, ConfigFiles};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::keys::{self, PresentKey};
use crate::out::{Out, count};
use crate::{config_record, diff, exit};

const EXAMPLES: &str = "\
Examples:
  pgseal config lock /srv/postgres/data
  vi /srv/postgres/data/pg_hba.conf
  pgseal config status /srv/postgres/data
  pgseal config accept /srv/postgres/data
  psql -c 'SELECT pg_reload_conf()'

docs/config.md says what is recorded, what the server changes by itself, and what to do with tools
that write configuration.

A second lock of an unchanged configuration changes nothing, and so does unlock where nothing is locked.

Exit status of status: 0 locked and as recorded, 1 not locked or something differs; of lock: 5 locked
already, and something differs from the record.";

/// Record the configuration below a data directory, so that no other one is read
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    dir: GivenDir,
    #[command(flatten)]
    key: PresentKey,
    /// Print JSON, with names and without content
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Record the configuration as it is. From then on the server reads no other
    Lock {
        #[command(flatten)]
        target: Target,
    },
    /// Show what differs from the record, and record it after a question
    Accept {
        #[command(flatten)]
        target: Target,
        /// Do not ask; --json needs it
        #[arg(long)]
        yes: bool,
    },
    /// Show whether the configuration is locked, and what differs from the record
    Status {
        #[command(flatten)]
        target: Target,
    },
    /// Lock it no more
    Unlock {
        #[command(flatten)]
        target: Target,
    },
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Accept { target, yes: false } if target.json => Err(CliError::Usage(
            "config accept: with --json nobody is asked; show the differences with \"pgseal config \
             status\", then give --yes"
                .to_owned(),
        )),
        Task::Lock { target } => lock(&Opened::new(target)?, target.json),
        Task::Accept { target, yes } => accept(&Opened::new(target)?, *yes, target.json),
        Task::Status { target } => status(&Opened::new(target)?, target.json),
        Task::Unlock { target } => unlock(&Opened::new(target)?, target.json),
    }
}

/// A sealed data directory, with its keys.
struct Opened {
    dir: DataDir,
    keyring: Keyring,
    kek: Kek,
    keys: KeySet,
}

impl Opened {
    fn new(target: &Target) -> Result<Opened, CliError> {
        let dir = DataDir::open(&target.dir.path("config")?)?;
        dir.expect_whole()?;
        let keyring = keys::own_keyring(&dir)?;
        let kek = keys::kek(&keyring, target.key.provider.as_deref())?;
        let keys = keyring.unlock(&kek)?;
        Ok(Opened { dir, keyring, kek, keys })
    }

    fn root(&self) -> &Path {
        &self.dir.root
    }

    /// The record, if there is one.
    ///
    /// # Errors
    /// [`CliError::Damaged`] if the record is not valid.
    fn record(&self) -> Result<Option<ConfigRecord>, CliError> {
        let path = config_record_path(self.root());
        config_record::valid(self.root(), &self.keys)?
            .map_err(|why| CliError::Damaged(format!("{}: {why}", path.display())))
    }

    /// Writes the record and then the keyring, unless the record has changed since the one with the
    /// sequence number `before` was read.
    fn write(&self, files: Option<&ConfigFiles>, before: Option<u64>) -> Result<u64, CliError> {
        let mut sequence = 0;
        update(&keyring_path(self.root()), |keyring| {
            let now = read_config_record(self.root())?;
            let now = now.and_then(|bytes| ConfigRecord::open(&bytes, &self.keys).ok());
            let now = now.map(|record| record.sequence);
            if before.is_some() && now != before {
                return Ok(Err(CliError::NotNow(format!(
                    "{}: the server or another pgseal changed the record meanwhile; nothing was \
                     written, run the same command again",
                    self.root().display()
                ))));
            }
            let last = now.unwrap_or(0).max(keyring.config_lock().unwrap_or(0));
            sequence = (last + 1).max(milliseconds());
            let mut record =
                ConfigRecord { sequence, locked: files.is_some(), entries: Vec::new() };
            for (name, version) in files.iter().flat_map(|files| &files.inside) {
                record.set(name, vec![version.clone()]);
            }
            let bytes = match record.seal(&self.keys, &LibraryRandom::new()) {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(CliError::NotNow(error.to_string()))),
            };
            write_config_record(self.root(), &bytes)?;
            keyring.set_config_lock(&self.kek, files.is_some().then_some(sequence)).map(Ok)
        })??;
        Ok(sequence)
    }
}

fn milliseconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0)
}

/// The configuration files; an error if a setting names a library in the data directory.
fn lockable(dir: &DataDir) -> Result<ConfigFiles, CliError> {
    let files = config_files::find(dir)?;
    if let Some(library) = files.libraries.first() {
        return Err(CliError::Settings(format!(
            "{}: a library below the data directory can be exchanged by whoever writes there, and \
             the configuration names one: {}; move it to where PostgreSQL's libraries are",
            dir.root.display(),
            diff::shown(library)
        )));
    }
    Ok(files)
}

/// What `lock`, `accept` and `unlock` did, as JSON.
#[derive(Debug, Default, Serialize)]
struct Done {
    data_directory: String,
    /// Whether the configuration is locked now.
    locked: bool,
    /// Whether a record was written.
    changed: bool,
    /// The number of the record.
    sequence: Option<u64>,
    /// What differed from the record before.
    differences: Vec<Difference>,
    files: Vec<String>,
    outside: Vec<String>,
    commands_inside: Vec<String>,
    /// Whether a server runs, which takes note when it reloads its configuration.
    reload_needed: bool,
}

impl Done {
    fn new(opened: &Opened, files: Option<&ConfigFiles>, sequence: Option<u64>) -> Done {
        let mut done = Done {
            data_directory: opened.root().display().to_string(),
            locked: files.is_some(),
            changed: sequence.is_some(),
            sequence,
            reload_needed: sequence.is_some() && opened.dir.server_pid().is_some(),
            ..Done::default()
        };
        if let Some(files) = files {
            done.files = files.inside.keys().map(|name| shown(name)).collect();
            done.outside = files.outside.iter().map(|path| path.display().to_string()).collect();
            done.commands_inside.clone_from(&files.commands);
        }
        done
    }
}

/// Whether the record names exactly these files, each with one version, and none differs.
fn is_as_recorded(record: &ConfigRecord, files: &ConfigFiles, found: &[Difference]) -> bool {
    let is_settled = record.entries.iter().all(|entry| entry.versions.len() == 1);
    found.is_empty() && is_settled && record.entries.len() == files.inside.len()
}

/// A second `lock`: the files if they are as recorded.
fn lock_again(opened: &Opened) -> Result<Option<(ConfigFiles, u64)>, CliError> {
    let Ok(Some(record)) = opened.record() else { return Ok(None) };
    let files = config_files::find(&opened.dir)?;
    let found = differences(opened, &record, &files)?;
    Ok(is_as_recorded(&record, &files, &found).then_some((files, record.sequence)))
}

fn lock(opened: &Opened, json: bool) -> Result<u8, CliError> {
    let mut out = Out::new();
    // An invalid record does not stop a new one, which takes the key.
    if opened.keyring.config_lock().is_some() {
        let Some((files, sequence)) = lock_again(opened)? else {
            return Err(CliError::Exists {
                path: opened.root().to_owned(),
                what: "its configuration is locked already, and it is not as recorded",
                remedy: "see \"pgseal config status\"; if the change is right: pgseal config accept",
            });
        };
        if json {
            out.json(&Done { changed: false, ..Done::new(opened, Some(&files), Some(sequence)) })?;
        } else {
            writeln!(out, "Locked already, and as recorded; nothing was changed.")?;
        }
        out.flush()?;
        return Ok(exit::SOUND);
    }
    let files = lockable(&opened.dir)?;
    let sequence = opened.write(Some(&files), None)?;
    if json {
        out.json(&Done::new(opened, Some(&files), Some(sequence)))?;
        out.flush()?;
        return Ok(exit::SOUND);
    }
    writeln!(out, "Locked: the server reads the configuration of this directory as it is now.")?;
    print_files(&mut out, &files)?;
    print_next(&mut out, opened)?;
    if !opened.dir.root.join("postgresql.conf").exists() {
        writeln!(
            out,
            "postgresql.conf lies outside of the data directory, which is the better way."
        )?;
    }
    writeln!(
        out,
        "An older copy of the whole directory, from before the lock, is refused only by a server with \
         PGSEAL_CONFIG=locked in its environment: pgseal env -D {}",
        opened.root().display()
    )?;
    out.flush()?;
    Ok(exit::SOUND)
}

fn print_next(out: &mut Out, opened: &Opened) -> io::Result<()> {
    match opened.dir.server_pid() {
        Some(_) => {
            writeln!(out, "The running server takes note when it reloads: SELECT pg_reload_conf()")
        }
        None => Ok(()),
    }
}

fn print_files(out: &mut Out, files: &ConfigFiles) -> io::Result<()> {
    for (name, version) in &files.inside {
        let what = match version {
            Version::Absent => "must not be there",
            Version::Content(_) => "content",
            Version::Digest(..) => "digest",
            Version::Directory => "no other .conf files in it",
        };
        writeln!(out, "  {:<32} {what}", diff::shown(&String::from_utf8_lossy(name)))?;
    }
    for path in &files.outside {
        writeln!(out, "  {}: outside of the directory, not recorded", path.display())?;
    }
    for command in &files.commands {
        writeln!(
            out,
            "WARNING: a command names a place in the data directory, whose content is not recorded: {}",
            diff::shown(command)
        )?;
    }
    Ok(())
}

/// How a file differs from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Changed,
    Added,
    Removed,
}

#[derive(Debug, Serialize)]
struct Difference {
    file: String,
    kind: Kind,
    #[serde(skip)]
    text: String,
}

/// The files that differ from the record, and the files that the server reads and the record lacks.
fn differences(
    opened: &Opened,
    record: &ConfigRecord,
    now: &ConfigFiles,
) -> Result<Vec<Difference>, CliError> {
    let names: BTreeSet<&[u8]> = record
        .entries
        .iter()
        .map(|entry| entry.name.as_slice())
        .chain(now.inside.keys().map(Vec::as_slice))
        .collect();
    let mut found = Vec::new();
    for name in names {
        let entry = record.get(name);
        let is_directory = entry.is_some_and(|entry| entry.is_directory())
            || now.inside.get(name) == Some(&Version::Directory);
        if is_directory {
            let is_gone = entry.is_some() && !opened.root().join(path_of(name)).is_dir();
            if is_gone || entry.is_none() {
                let kind = if is_gone { Kind::Removed } else { Kind::Added };
                found.push(Difference { file: shown(name), kind, text: String::new() });
            }
            continue;
        }
        // Show the same bytes that will be recorded: the file is read once.
        let bytes = match now.inside.get(name) {
            Some(Version::Content(bytes)) => Some(bytes.clone()),
            Some(Version::Absent) => None,
            _ => config_files::read(&opened.root().join(path_of(name)))?,
        };
        if entry.is_some_and(|entry| entry.allows(bytes.as_deref())) {
            continue;
        }
        let old = entry.and_then(|entry| entry.versions.first());
        let kind = match (old, &bytes) {
            (None | Some(Version::Absent), Some(_)) => Kind::Added,
            (None | Some(Version::Absent), None) => continue,
            (Some(_), None) => Kind::Removed,
            (Some(_), Some(_)) => Kind::Changed,
        };
        let empty = Version::Content(Vec::new());
        let text = match (
            old.filter(|old| **old != Version::Absent).unwrap_or(&empty),
            now.inside.get(name),
        ) {
            (Version::Digest(..), _) | (_, Some(Version::Digest(..))) => {
                "    (only its digest is recorded)\n".to_owned()
            }
            (Version::Content(old), _) => {
                let label = |what: &str| format!("{} ({what})", shown(name));
                let new = bytes.as_deref().unwrap_or_default();
                diff::unified(&label("recorded"), old, &label("now"), new)
            }
            _ => String::new(),
        };
        found.push(Difference { file: shown(name), kind, text });
    }
    Ok(found)
}

fn shown(name: &[u8]) -> String {
    diff::shown(&String::from_utf8_lossy(name))
}

fn path_of(name: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name))
}

fn print_differences(out: &mut Out, differences: &[Difference]) -> io::Result<()> {
    for difference in differences {
        let kind = match difference.kind {
            Kind::Changed => "changed",
            Kind::Added => "added",
            Kind::Removed => "removed",
        };
        writeln!(out, "{kind}: {}", difference.file)?;
        write!(out, "{}", difference.text)?;
    }
    Ok(())
}

fn not_locked(opened: &Opened) -> CliError {
    CliError::NotNow(format!(
        "{}: its configuration is not locked; pgseal config lock {} records it",
        opened.root().display(),
        opened.root().display()
    ))
}

fn accept(opened: &Opened, yes: bool, json: bool) -> Result<u8, CliError> {
    // Read the record first: a later change of record and files then gives it another sequence
    // number.
    let record = opened.record();
    if matches!(record, Ok(None)) {
        return Err(not_locked(opened));
    }
    let files = lockable(&opened.dir)?;
    let mut out = Out::new();
    let (found, before) = match record {
        Ok(record) => {
            let record = record.unwrap_or_else(nothing);
            let found = differences(opened, &record, &files)?;
            let sequence = Some(record.sequence);
            if is_as_recorded(&record, &files, &found) {
                if json {
                    out.json(&Done {
                        changed: false,
                        ..Done::new(opened, Some(&files), sequence)
                    })?;
                } else {
                    writeln!(out, "Nothing differs from the record.")?;
                }
                out.flush()?;
                return Ok(exit::SOUND);
            }
            (found, sequence)
        }
        Err(error @ CliError::Damaged(_)) => {
            // There is no record to compare with: show all files.
            if !json {
                writeln!(out, "{error}. This is what would be recorded:")?;
            }
            (differences(opened, &nothing(), &files)?, None)
        }
        Err(error) => return Err(error),
    };
    if !json {
        print_differences(&mut out, &found)?;
        out.flush()?;
    }
    if !yes {
        ask()?;
    }
    let sequence = opened.write(Some(&files), before)?;
    if json {
        out.json(&Done { differences: found, ..Done::new(opened, Some(&files), Some(sequence)) })?;
    } else {
        writeln!(out, "Recorded.")?;
        print_next(&mut out, opened)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// A record without files.
fn nothing() -> ConfigRecord {
    ConfigRecord { sequence: 1, locked: true, entries: Vec::new() }
}

fn ask() -> Result<(), CliError> {
    let refused =
        |what: &str| CliError::NotNow(format!("config accept: {what}; nothing was recorded"));
    if !io::stdin().is_terminal() {
        return Err(refused("there is no terminal to ask at; with --yes it does not ask"));
    }
    let mut error = io::stderr();
    write!(error, "Record this as the configuration? [y/N] ")?;
    error.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(refused("not accepted")),
    }
}

#[derive(Debug, Serialize)]
struct Status {
    data_directory: String,
    locked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    /// Why the record is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    differences: Vec<Difference>,
    files: Vec<String>,
    outside: Vec<String>,
    commands_inside: Vec<String>,
    libraries_inside: Vec<String>,
}

fn status(opened: &Opened, json: bool) -> Result<u8, CliError> {
    let (record, wrong) = match opened.record() {
        Ok(record) => (record, None),
        Err(error @ CliError::Damaged(_)) => (None, Some(error.to_string())),
        Err(error) => return Err(error),
    };
    let files = config_files::find(&opened.dir)?;
    let found = match &record {
        Some(record) => differences(opened, record, &files)?,
        None => Vec::new(),
    };
    let locked = record.is_some() || wrong.is_some();
    let sound = record.is_some() && found.is_empty();
    let mut out = Out::new();
    let status = Status {
        data_directory: opened.root().display().to_string(),
        locked,
        sequence: record.as_ref().map(|record| record.sequence),
        record: wrong,
        differences: found,
        files: files.inside.keys().map(|name| shown(name)).collect(),
        outside: files.outside.iter().map(|path| path.display().to_string()).collect(),
        commands_inside: files.commands.clone(),
        libraries_inside: files.libraries.clone(),
    };
    if json {
        out.json(&status)?;
    } else {
        match (&status.record, locked, status.differences.len()) {
            (Some(wrong), _, _) => writeln!(
                out,
                "Locked, and the server reads nothing: {wrong}. \"pgseal config accept\" records it anew."
            )?,
            (None, false, _) => {
                writeln!(
                    out,
                    "Not locked: whoever writes this directory decides what the server runs."
                )?;
            }
            (None, true, 0) => writeln!(out, "Locked, and as recorded.")?,
            (None, true, number) => writeln!(
                out,
                "Locked, and the server reads nothing: {} from the record.",
                count(number as u64, "difference")
            )?,
        }
        print_differences(&mut out, &status.differences)?;
        print_files(&mut out, &files)?;
    }
    out.flush()?;
    Ok(if sound { exit::SOUND } else { exit::DAMAGE })
}

fn unlock(opened: &Opened, json: bool) -> Result<u8, CliError> {
    let is_locked = opened.keyring.config_lock().is_some() || opened.record()?.is_some();
    let sequence = if is_locked { Some(opened.write(None, None)?) } else { None };
    let mut out = Out::new();
    match (json, is_locked) {
        (true, _) => out.json(&Done::new(opened, None, sequence))?,
        (false, true) => {
            writeln!(out, "Unlocked: the server reads whatever configuration the directory has.")?;
            print_next(&mut out, opened)?;
        }
        (false, false) => writeln!(out, "It is not locked; nothing was changed.")?,
    }
    out.flush()?;
    Ok(exit::SOUND)
}
