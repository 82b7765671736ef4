//! `pgseal manifest`: compares the files of a stopped server with its manifest, and writes the
//! manifest anew (`spec/manifest.md`).

use std::io::Write;

use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use crate::locks::{OwnLock, refuse_running};
use crate::manifest::{self, Known};
use crate::out::{Out, count};
use crate::relation_names::RelationNames;
use crate::scan::{self, Root};
use crate::stopped::Stopped;

const EXAMPLES: &str = "\
Examples:
  pgseal manifest check /srv/postgres/data
  pgseal manifest write /srv/postgres/data

A server writes the manifest at each clean shutdown and compares each file with it at the next
start. write accepts the files as they are now, whoever changed them: after a file was restored on
purpose, or when a program without pgseal changed the directory. docs/damage.md says when to use it.

Exit status of check: 0 all files are as listed, 1 some differ, or a server would not start, 22 there
is nothing to compare with.";

/// Tell whether a stopped server's files are complete and of its last shutdown
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Compare the files with the manifest
    Check {
        #[command(flatten)]
        target: Stopped,
    },
    /// Accept the files as they are, and write the manifest anew
    Write {
        #[command(flatten)]
        target: Stopped,
    },
}

/// What is printed as JSON.
#[derive(Debug, Default, Serialize)]
struct Report {
    directory: String,
    /// The number of the manifest.
    manifest: Option<u64>,
    /// When it was written.
    written: Option<String>,
    /// How many files it lists.
    files: usize,
    /// Why nothing can be compared.
    unknown: Option<String>,
    /// Whether a server would refuse the directory for that reason.
    refused: bool,
    differences: Vec<DifferenceJson>,
}

#[derive(Debug, Serialize)]
struct DifferenceJson {
    file: String,
    /// The table or index that the file belongs to, if the catalogs name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    relation: Option<String>,
    text: String,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Check { target } => check(target),
        Task::Write { target } => write(target),
    }
}

fn check(target: &Stopped) -> Result<u8, CliError> {
    let (dir, keys) = target.open("manifest")?;
    let mut report = Report { directory: dir.root.display().to_string(), ..Report::default() };
    match manifest::read(&dir.root, &keys)? {
        Known::Whole(manifest) => {
            report.manifest = Some(manifest.number);
            report.written = Some(manifest.date());
            report.files = manifest.files.len();
            let scan = scan::scan(&dir.root, Root::DataDir);
            let differences = manifest::compare(&dir.root, &scan, &manifest)?;
            let mut names = RelationNames::new(&dir.root, &keys);
            let as_text = |(file, difference): (String, _)| DifferenceJson {
                relation: names.of(&file).map(|relation| relation.to_string()),
                file,
                text: format!("{difference}"),
            };
            report.differences = differences.into_iter().map(as_text).collect();
        }
        Known::Nothing(why) => report.unknown = Some(why),
        Known::Refused(why) => (report.unknown, report.refused) = (Some(why), true),
    }
    let code = match (&report.unknown, report.differences.is_empty()) {
        (Some(_), _) if report.refused => exit::DAMAGE,
        (Some(_), _) => exit::NOT_NOW,
        (None, true) => exit::SOUND,
        (None, false) => exit::DAMAGE,
    };
    let mut out = Out::new();
    if target.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report)?;
    }
    out.flush()?;
    Ok(code)
}

fn print(out: &mut Out, report: &Report) -> Result<(), CliError> {
    for found in &report.differences {
        write!(out, "DIFFERS {}: {}", found.file, found.text)?;
        match &found.relation {
            Some(relation) => writeln!(out, "; it belongs to {relation}")?,
            None => writeln!(out)?,
        }
    }
    match (&report.unknown, report.manifest, &report.written) {
        (Some(why), ..) if report.refused => writeln!(
            out,
            "REFUSED: {why}. No server starts: restore the data directory from a backup, or accept \
             it as it is with: pgseal manifest write {}",
            report.directory
        )?,
        (Some(why), ..) => {
            writeln!(out, "Whether a file is missing or older is not known: {why}.")?;
        }
        (None, Some(number), Some(date)) if report.differences.is_empty() => writeln!(
            out,
            "Complete and current as of {date} (manifest {number}, {}).",
            count(report.files as u64, "file")
        )?,
        (None, Some(number), Some(date)) => writeln!(
            out,
            "NOT as of {date} (manifest {number}): {} of {}; restore the data directory from a backup.",
            count(report.differences.len() as u64, "difference"),
            count(report.files as u64, "file")
        )?,
        (None, ..) => {}
    }
    Ok(())
}

fn write(target: &Stopped) -> Result<u8, CliError> {
    let (dir, keys) = target.open("manifest")?;
    let _lock = OwnLock::take(&dir.root)?;
    refuse_running(&dir)?;
    let scan = scan::scan(&dir.root, Root::DataDir);
    if let Some((path, why)) = scan.closed.first() {
        return Err(CliError::NotNow(format!(
            "{}: not readable ({why}); mend that, then run the same command again",
            dir.root.join(path).display()
        )));
    }
    let manifest = manifest::write(&dir.root, &scan, &keys)?;
    let mut out = Out::new();
    if target.json {
        out.json(&Report {
            directory: dir.root.display().to_string(),
            manifest: Some(manifest.number),
            written: Some(manifest.date()),
            files: manifest.files.len(),
            ..Report::default()
        })?;
    } else {
        writeln!(
            out,
            "Manifest {} written: {} accepted as they are.",
            manifest.number,
            count(manifest.files.len() as u64, "file")
        )?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}
