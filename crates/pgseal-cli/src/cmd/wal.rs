//! `pgseal wal`: up to where the WAL of a stopped server must reach, and what to do if it does not
//! (`spec/control.md`).

use std::io::Write;

use pgseal_keys::control::Flushed;
use pgseal_pgdata::{WalPosition, WalSegment, wal_segment_bytes};
use serde::Serialize;

use crate::control_record::{self, Known};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::locks::{OwnLock, refuse_running};
use crate::out::Out;
use crate::stopped::Stopped;
use crate::{exit, manifest};

const EXAMPLES: &str = "\
Examples:
  pgseal wal status /srv/postgres/data
  pgseal wal accept /srv/postgres/data --lose-after 0/1A2B3C8

A sealed server records up to where its WAL is on the disk before it acknowledges a commit. A
recovery that ends earlier has lost commits, and the server does not start. Restore the WAL
segments that the log names from the archive or a standby; only if nothing has them, accept the
loss. docs/damage.md has the steps.

Exit status of status: 0 a server would start its recovery, 1 it would refuse the directory.";

/// Tell up to where the WAL of a stopped server must reach, or accept that commits are lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Tell what is recorded
    Status {
        #[command(flatten)]
        target: Stopped,
    },
    /// Accept pg_control as it is, and that commits may be lost
    Accept {
        #[command(flatten)]
        target: Stopped,
        /// Accept only that commits after this position are lost; without it, any may be
        #[arg(long, value_name = "X/Y", value_parser = position)]
        lose_after: Option<WalPosition>,
    },
}

fn position(text: &str) -> Result<WalPosition, String> {
    WalPosition::parse(text)
        .ok_or_else(|| "not a position in the WAL, such as 0/1A2B3C8".to_owned())
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report {
    directory: String,
    timeline: Option<u32>,
    /// The position up to which the WAL was on the disk.
    position: Option<String>,
    /// The segment in which the position lies.
    segment: Option<String>,
    /// Why a server would refuse the directory.
    refused: Option<String>,
}

impl Report {
    fn of(dir: &DataDir, known: Known) -> Report {
        let control = manifest::control(&dir.root).unwrap_or_default();
        let segment = known.flushed.zip(wal_segment_bytes(&control)).map(|(flushed, bytes)| {
            // The last byte that must be there.
            let last = flushed.position.saturating_sub(1);
            WalSegment::at(flushed.timeline, last, bytes).to_string()
        });
        Report {
            directory: dir.root.display().to_string(),
            timeline: known.flushed.map(|flushed| flushed.timeline),
            position: known.flushed.map(|flushed| WalPosition(flushed.position).to_string()),
            segment,
            refused: known.refused,
        }
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Status { target } => status(target),
        Task::Accept { target, lose_after } => accept(target, *lose_after),
    }
}

fn status(target: &Stopped) -> Result<u8, CliError> {
    let (dir, keys) = target.open("wal")?;
    let report = Report::of(&dir, control_record::read(&dir.root, &keys)?);
    let code = if report.refused.is_some() { exit::DAMAGE } else { exit::SOUND };
    let mut out = Out::new();
    if target.json {
        out.json(&report)?;
    } else {
        if let Some(why) = &report.refused {
            writeln!(
                out,
                "REFUSED: pgseal/control: {why}. No server starts: restore the data directory from \
                 a backup, or accept it as it is with: pgseal wal accept {}",
                report.directory
            )?;
        }
        print_position(&mut out, &report)?;
    }
    out.flush()?;
    Ok(code)
}

fn print_position(out: &mut Out, report: &Report) -> Result<(), CliError> {
    match (&report.position, report.timeline, &report.segment) {
        (Some(position), Some(timeline), Some(segment)) => writeln!(
            out,
            "Recovery must reach {position} on timeline {timeline} (segment {segment})."
        )?,
        _ => writeln!(out, "No position is recorded that a recovery must reach.")?,
    }
    Ok(())
}

fn accept(target: &Stopped, lose_after: Option<WalPosition>) -> Result<u8, CliError> {
    let (dir, keys) = target.open("wal")?;
    let _lock = OwnLock::take(&dir.root)?;
    refuse_running(&dir)?;
    let known = control_record::read(&dir.root, &keys)?;
    let flushed = match (lose_after, known.flushed) {
        (None, _) => Flushed::default(),
        (Some(after), Some(had)) if after.0 <= had.position => {
            Flushed { timeline: had.timeline, position: after.0 }
        }
        (Some(after), Some(had)) => {
            return Err(CliError::Usage(format!(
                "wal accept: --lose-after {after} is behind {}, up to where recovery must reach; \
                 give the position that the server's log names",
                WalPosition(had.position)
            )));
        }
        (Some(_), None) => {
            return Err(CliError::Usage(
                "wal accept: no position is recorded, so --lose-after says nothing; leave it out"
                    .to_owned(),
            ));
        }
    };
    control_record::write(&dir.root, &keys, flushed)?;
    let report = Report::of(&dir, control_record::read(&dir.root, &keys)?);
    let mut out = Out::new();
    if target.json {
        out.json(&report)?;
    } else {
        writeln!(out, "global/pg_control is accepted as it is.")?;
        print_position(&mut out, &report)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}
