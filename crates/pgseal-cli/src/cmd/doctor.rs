//! `pgseal doctor`: checks a sealed cluster, and names the fix for everything that is wrong.
//!
//! `context` gathers what the checks need, each group of checks is a module, `checks` is the table
//! of all, and `verdict` is the answer of one. `fleet` asks many clusters.

mod checks;
mod context;
mod files;
mod fleet;
mod keys;
mod memory;
mod postgres;
mod settings;
mod trail;
mod verdict;

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use self::checks::CHECKS;
use self::context::Context;
use self::verdict::{State, exit_status};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::keys::KeyOptions;
use crate::out::{Out, count};

const EXAMPLES: &str = "\
Examples:
  pgseal doctor /srv/postgres/data
  pgseal doctor /srv/postgres/data --backup /backup/base --backup /backup/wal
  pgseal doctor --json DIR | jq '.checks[] | select(.state == \"fail\")'
  pgseal doctor --fleet hosts.txt --remote 'sudo -n -u postgres pgseal' --ssh-option ProxyJump=bastion

Run it as the server's user or as root: others may not look at the server's processes. Nothing is
changed. docs/doctor.md lists the checks.

With --fleet, ssh asks no questions (BatchMode), so keys must be set up; docs/fleet.md.

Exit status: 0 all is well, 1 warnings, 2 something is wrong; 3 and 4 if there is no sealed cluster.
Of a fleet, it is the worst; a cluster without an answer counts as 2.";

/// Check everything that can be wrong with a sealed cluster, and say how to mend it
///
/// The server may run or not: what can only be seen of a running one is skipped otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    #[command(flatten)]
    keys: KeyOptions,
    /// Where the programs of PostgreSQL are, if not where the system has them
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// A backup or an archive of WAL whose files must open with the keyring; may be repeated
    #[arg(long, value_name = "PATH")]
    backup: Vec<PathBuf>,
    /// Show only what is not well
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fleet: fleet::Options,
}

#[derive(Debug, Serialize)]
struct Row {
    id: &'static str,
    what: &'static str,
    state: State,
    saw: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Report {
    data_directory: String,
    server_pid: Option<u32>,
    ok: u64,
    warnings: u64,
    failures: u64,
    skipped: u64,
    checks: Vec<Row>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    if let Some(worst) = args.fleet.run(args.quiet, args.json)? {
        return Ok(worst);
    }
    let dir = DataDir::open(&args.dir.path("doctor")?)?;
    let context = Context::gather(dir, &args.keys, &args.backup, args.bindir.as_deref())?;
    let mut report = Report {
        data_directory: context.dir.root.display().to_string(),
        server_pid: context.server_pid,
        ok: 0,
        warnings: 0,
        failures: 0,
        skipped: 0,
        checks: Vec::new(),
    };
    for check in CHECKS {
        let verdict = (check.run)(&context);
        let (counter, fix) = match verdict.state {
            State::Ok => (&mut report.ok, None),
            State::Warn => (&mut report.warnings, Some(check.fix)),
            State::Fail => (&mut report.failures, Some(check.fix)),
            State::Skipped => (&mut report.skipped, None),
        };
        *counter += 1;
        report.checks.push(Row {
            id: check.id,
            what: check.what,
            state: verdict.state,
            saw: verdict.saw,
            fix,
        });
    }
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report, args.quiet)?;
    }
    out.flush()?;
    Ok(exit_status(report.failures, report.warnings))
}

fn print(out: &mut Out, report: &Report, quiet: bool) -> io::Result<()> {
    for row in &report.checks {
        let is_well = matches!(row.state, State::Ok | State::Skipped);
        if quiet && is_well {
            continue;
        }
        writeln!(out, "{:<5} {:<20} {}", row.state.shown(), row.id, row.saw)?;
        if let Some(fix) = row.fix {
            writeln!(out, "      {:<20} fix: {fix}", "")?;
        }
    }
    if quiet && report.failures + report.warnings == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "{} ok, {}, {}, {} skipped",
        report.ok,
        count(report.warnings, "warning"),
        count(report.failures, "failure"),
        report.skipped
    )
}
