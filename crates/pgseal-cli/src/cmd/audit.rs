//! `pgseal audit`: looks at the audit trail (`spec/audit.md`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pgseal_core::KeySet;
use pgseal_keys::audit::{Check, MAX_LINE};
use pgseal_keys::{Keyring, open_regular};
use serde::Serialize;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::keys::{self, KeyOptions};
use crate::out::{Out, count};
use crate::{as_owner, audit, exit, memory};

const EXAMPLES: &str = "\
Examples:
  pgseal audit test
  pgseal audit verify /var/log/pgseal/audit.log
  pgseal audit verify /var/log/pgseal/audit.log -D /srv/postgres/data

Each use of a key is one line of JSON, in the system's log and, if /etc/pgseal/audit.conf says so, \
in a file. docs/audit.md describes them.

Exit status of verify: 0 nothing is wrong, 1 lines are missing, changed or added. Of test: 0 every
destination took the line, 1 one did not, 3 there is no audit trail.";

/// Check the file of the audit trail, or try whether it is written
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Check the chain of the lines of a file and, with the key of a cluster, their MACs
    Verify {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The data directory of the cluster whose MACs are checked
        #[arg(short = 'D', long = "pgdata", value_name = "DIR", value_hint = ValueHint::DirPath)]
        pgdata: Option<PathBuf>,
        #[command(flatten)]
        keys: KeyOptions,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a line to every destination, and say whether it was taken
    Test {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What `verify` found.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    lines: u64,
    first: Option<String>,
    last: Option<String>,
    findings: Vec<Finding>,
    /// Whether the key of a cluster was given.
    keys: bool,
    macs_right: u64,
    /// Those of other clusters, and of data keys that the keyring does not have.
    macs_not_checked: u64,
    /// The last line with a MAC that is right: nothing before it has changed.
    authentic_up_to: u64,
}

#[derive(Debug, Serialize)]
struct Finding {
    line: u64,
    what: &'static str,
}

/// What `test` found.
#[derive(Debug, Serialize)]
struct Destination {
    destination: String,
    error: Option<String>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Verify { file, pgdata, keys, json } => verify(file, pgdata.as_deref(), keys, *json),
        Task::Test { json } => test(*json),
    }
}

fn verify(
    path: &Path,
    pgdata: Option<&Path>,
    options: &KeyOptions,
    json: bool,
) -> Result<u8, CliError> {
    // Before root becomes the owner of the data directory, who may not be able to read the file.
    let file = open_regular(path).map_err(CliError::io(path, "open the file"))?;
    let began = pgseal_keys::now()?;
    let keys = data_keys(pgdata, options)?;
    let check = checked(file, path, keys.as_ref())?;
    let report = Report {
        file: path.display().to_string(),
        lines: check.lines,
        first: check.first,
        last: check.latest,
        findings: check.findings.iter().map(|(line, what)| Finding { line: *line, what }).collect(),
        keys: keys.is_some(),
        macs_right: check.macs,
        macs_not_checked: check.unchecked_macs,
        authentic_up_to: check.authentic_up_to,
    };
    if let Some(keys) = &keys {
        // Without a MAC of this cluster the whole file may be another one.
        let is_sound = report.findings.is_empty() && report.macs_right > 0;
        memory::trail_checked(keys.keyring_id, path, &began, is_sound);
    }
    let mut out = Out::new();
    if json {
        out.json(&report)?;
    } else {
        print(&mut out, &report)?;
    }
    out.flush()?;
    Ok(if report.findings.is_empty() { exit::SOUND } else { exit::DAMAGE })
}

/// The data keys of the cluster that is named, if one is.
fn data_keys(pgdata: Option<&Path>, options: &KeyOptions) -> Result<Option<KeySet>, CliError> {
    let keyring = match (pgdata, &options.keyring) {
        (_, Some(path)) => {
            as_owner::step_down_beside(path)?;
            Keyring::load(path)?
        }
        (Some(dir), None) => keys::own_keyring(&DataDir::open(dir)?)?,
        (None, None) => return Ok(None),
    };
    let kek = keys::kek(&keyring, options.provider.as_deref())?;
    Ok(Some(keyring.unlock(&kek)?))
}

fn checked<'a>(file: File, path: &Path, keys: Option<&'a KeySet>) -> Result<Check<'a>, CliError> {
    let mut check = Check::new(keys);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Of a longer line the rest counts as a line of its own; both are none of pgseal's.
        let limit = (MAX_LINE + 2) as u64;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        if read.map_err(CliError::io(path, "read the file"))? == 0 {
            return Ok(check);
        }
        check.take(line.strip_suffix(b"\n").unwrap_or(&line))?;
    }
}

fn print(out: &mut Out, report: &Report) -> io::Result<()> {
    let lines = count(report.lines, "line");
    match (&report.first, &report.last) {
        (Some(first), Some(last)) => {
            writeln!(out, "{}: {lines}, from {first} to {last}.", report.file)?;
        }
        _ => writeln!(out, "{}: {lines}.", report.file)?,
    }
    for Finding { line, what } in &report.findings {
        writeln!(out, "WRONG: line {line}: {what}.")?;
    }
    if report.findings.is_empty() {
        writeln!(out, "Each line continues the one before it.")?;
    }
    match (report.keys, report.macs_right) {
        (false, _) => writeln!(
            out,
            "No MAC was checked: without the key of a cluster (-D DIR), a file that was written anew \
             as a whole looks the same."
        ),
        (true, 0) => writeln!(out, "There is no MAC of this cluster."),
        (true, right) => writeln!(
            out,
            "{} right: no line up to line {} was changed by somebody without the data keys. Lines \
             that were cut off at the end are not noticed.",
            if right == 1 { "1 MAC is".to_owned() } else { format!("{right} MACs are") },
            report.authentic_up_to
        ),
    }?;
    if report.keys && report.macs_not_checked > 0 {
        let macs = count(report.macs_not_checked, "MAC");
        writeln!(out, "{macs} of other clusters or of forgotten data keys: not checked.")?;
    }
    Ok(())
}

fn test(json: bool) -> Result<u8, CliError> {
    let (conf, sent) = audit::test()?;
    let destinations: Vec<Destination> = sent
        .into_iter()
        .map(|(path, result)| Destination {
            destination: path.display().to_string(),
            error: result.err().map(|error| error.to_string()),
        })
        .collect();
    let failed = destinations.iter().any(|one| one.error.is_some());
    let mut out = Out::new();
    if json {
        out.json(&serde_json::json!({ "required": conf.required, "destinations": destinations }))?;
    } else {
        for Destination { destination, error } in &destinations {
            match error {
                None => writeln!(out, "{destination}: took the line.")?,
                Some(error) => writeln!(out, "{destination}: NOT WRITTEN: {error}")?,
            }
        }
        if destinations.is_empty() {
            writeln!(out, "There is no audit trail: name one in /etc/pgseal/audit.conf.")?;
        }
        if conf.required {
            writeln!(out, "It is required: no key is used that cannot be recorded.")?;
        }
    }
    out.flush()?;
    Ok(match (destinations.is_empty(), failed) {
        (true, _) => exit::NOT_FOUND,
        (false, true) => exit::DAMAGE,
        (false, false) => exit::SOUND,
    })
}
