//! `pgseal lab`: what encryption costs on this machine.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, FromArgMatches, Subcommand};
use pgseal_lab::{LabError, experiments};

use super::lab_compare::{self, CompareArgs};
use super::lab_run::{self, RunArgs};
use crate::error::CliError;
use crate::exit;

const EXAMPLES: &str = "\
Examples:
  pgseal lab all --quick --output ~/lab
  pgseal lab modes --output ~/lab
  pgseal lab report ~/lab
  pgseal lab compare ~/lab-before ~/lab-after

Leave the machine alone while it measures. docs/lab.md says how to read a report.";

/// Measure what encryption costs on this machine
///
/// Repeats the experiments of four published studies with throw-away clusters of the PostgreSQL that is
/// installed, and prints the studies' figures beside the measured ones. Nothing of an existing cluster is
/// touched. Each experiment writes samples.jsonl (every value at once), results.json, results.csv and
/// report.html into DIR/EXPERIMENT.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

/// The experiments come from their list, so that a new one needs no word here.
#[derive(Debug)]
enum Task {
    Run { experiment: &'static str, args: RunArgs },
    Fixed(Fixed),
}

#[derive(Debug, Subcommand)]
enum Fixed {
    /// Run all experiments, then write one page over them
    All(RunArgs),
    /// Write the reports anew from recorded results
    Report(ReportArgs),
    Compare(CompareArgs),
    /// What a measurement runs in a process of its own
    #[command(hide = true)]
    Child {
        /// The experiment
        experiment: String,
        /// Its own arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The --output of a run, or one experiment's directory in it
    pub dir: PathBuf,
    /// Print the results and all that follows from them as JSON
    #[arg(long)]
    pub json: bool,
}

impl Subcommand for Task {
    fn augment_subcommands(mut command: clap::Command) -> clap::Command {
        for experiment in experiments::all() {
            let one = clap::Command::new(experiment.name()).about(experiment.title());
            let study = format!("{}\n\nRepeats: {}", experiment.title(), experiment.study());
            let one = <RunArgs as clap::Args>::augment_args(one).long_about(study);
            command = command.subcommand(one.about(experiment.title()));
        }
        Fixed::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        experiments::named(name).is_some() || Fixed::has_subcommand(name)
    }
}

impl FromArgMatches for Task {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if let Some((name, matches)) = matches.subcommand()
            && let Some(experiment) = experiments::named(name)
        {
            let args = RunArgs::from_arg_matches(matches)?;
            return Ok(Self::Run { experiment: experiment.name(), args });
        }
        Fixed::from_arg_matches(matches).map(Self::Fixed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::Run { experiment, args } => lab_run::one(experiment, args),
        Task::Fixed(Fixed::All(args)) => lab_run::all(args),
        Task::Fixed(Fixed::Report(args)) => lab_run::report(args),
        Task::Fixed(Fixed::Compare(args)) => lab_compare::run(args),
        Task::Fixed(Fixed::Child { experiment, arguments }) => {
            let known = experiments::named(experiment).ok_or_else(|| {
                LabError::Usage(format!("{experiment}: there is no such experiment"))
            })?;
            known.child(arguments)?;
            Ok(exit::SOUND)
        }
    }
}
