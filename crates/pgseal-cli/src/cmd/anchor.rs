//! `pgseal anchor`: compares a data directory with its anchor outside, and accepts the directory
//! (`spec/anchor.md`).

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pgseal_keys::AnchorStore;
use pgseal_keys::anchor::{Seen, State};
use serde::Serialize;

use crate::error::CliError;
use crate::locks::{OwnLock, refuse_running};
use crate::out::Out;
use crate::stopped::Stopped;
use crate::{anchor, control_record, exit};

const EXAMPLES: &str = "\
Examples:
  export PGSEAL_ANCHOR=file:/srv/anchors        (also in the environment of the server)
  pgseal anchor accept /srv/postgres/data       (once, and after a backup was restored on purpose)
  pgseal anchor status /srv/postgres/data

An anchor is kept outside of the data directory and says which copy of the directory is the newest.
A server with PGSEAL_ANCHOR in its environment refuses every other copy. docs/anchor.md has the
kinds of stores, and when to accept.

Exit status of status: 0 a server would start, 1 it would refuse the directory.";

/// Tell whether a data directory is the newest copy, or accept it as that
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    stopped: Stopped,
    /// Where the anchor is: file:DIRECTORY, command:SHELL COMMAND, or the URI of a key store;
    /// default: PGSEAL_ANCHOR
    #[arg(long, value_name = "STORE")]
    anchor: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Compare the directory with its anchor
    Status {
        #[command(flatten)]
        target: Target,
    },
    /// Accept the directory as the newest copy, or begin to keep an anchor
    Accept {
        #[command(flatten)]
        target: Target,
    },
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report {
    directory: String,
    store: String,
    /// The number of the anchor; `None`: the store has none for this keyring.
    sequence: Option<u64>,
    /// What the anchor says of the server.
    state: Option<&'static str>,
    /// Why a server would refuse the directory.
    refused: Option<String>,
}

impl Report {
    fn new(root: &Path, store: &AnchorStore, state: Option<&State>) -> Report {
        Report {
            directory: root.display().to_string(),
            store: store.shown(),
            sequence: state.map(|state| state.sequence),
            state: state.map(|state| match state.seen {
                Seen::Running => "running",
                Seen::Stopped { .. } => "stopped",
                Seen::Accepted => "accepted",
            }),
            refused: None,
        }
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Status { target } => status(target),
        Task::Accept { target } => accept(target),
    }
}

fn status(target: &Target) -> Result<u8, CliError> {
    let (dir, keys) = target.stopped.open("anchor")?;
    let store = anchor::store(target.anchor.as_deref(), &dir.root)?;
    let state = store.read(keys.keyring_id)?;
    let mut report = Report::new(&dir.root, &store, state.as_ref());
    report.refused = match &state {
        None => Some("there is no anchor for this keyring yet".to_owned()),
        Some(state) => {
            let found = state.expect(&anchor::directory(&dir.root, &keys)?);
            found.err().map(|objection| objection.to_string())
        }
    };
    let mut out = Out::new();
    if target.stopped.json {
        out.json(&report)?;
    } else {
        match &report.refused {
            None => writeln!(out, "This is the newest copy, as {} says.", report.store)?,
            Some(why) => writeln!(
                out,
                "REFUSED by the anchor in {}: {why}. Put the newest copy back, or, if this is the \
                 one that you want: pgseal anchor accept {}",
                report.store, report.directory
            )?,
        }
        print_state(&mut out, &report)?;
    }
    out.flush()?;
    Ok(if report.refused.is_some() { exit::DAMAGE } else { exit::SOUND })
}

fn print_state(out: &mut Out, report: &Report) -> Result<(), CliError> {
    if let (Some(sequence), Some(state)) = (report.sequence, report.state) {
        let what = match state {
            "running" => "a server began to run",
            "stopped" => "a server was shut down cleanly",
            _ => "the directory was accepted",
        };
        writeln!(out, "Anchor {sequence}: {what}.")?;
    }
    Ok(())
}

fn accept(target: &Target) -> Result<u8, CliError> {
    let (dir, keys) = target.stopped.open("anchor")?;
    let store = anchor::store(target.anchor.as_deref(), &dir.root)?;
    let _lock = OwnLock::take(&dir.root)?;
    refuse_running(&dir)?;
    let before = store.read(keys.keyring_id)?;
    let before = before.unwrap_or(State { sequence: 0, seen: Seen::Accepted });
    let next = before.next(Seen::Accepted).ok_or_else(|| {
        CliError::NotNow(format!("{}: the numbers of the anchor are used up", store.shown()))
    })?;
    control_record::set_epoch(&dir.root, &keys, next.sequence)?;
    store.advance(keys.keyring_id, &next)?;
    let report = Report::new(&dir.root, &store, Some(&next));
    let mut out = Out::new();
    if target.stopped.json {
        out.json(&report)?;
    } else {
        writeln!(out, "Accepted: from now on {} refuses every other copy.", report.store)?;
        print_state(&mut out, &report)?;
        if let AnchorStore::Directory(at) = &store
            && on_one_device(at, &dir.root)
        {
            writeln!(
                out,
                "WARNING: {} is on the same file system as the data directory: whoever puts back an \
                 older copy of that file system puts back both",
                at.display()
            )?;
        }
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn on_one_device(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().ok().map(|meta| meta.dev());
    device(one).is_some() && device(one) == device(other)
}
