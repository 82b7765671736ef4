//! The command line of `pgseal-lab`. Each kind of command has its own module.

mod advise;
mod blocks;
mod compare;
mod documents;
mod programs;
mod report;
mod run;

use std::ffi::OsString;

use clap::{ArgMatches, FromArgMatches, Parser, Subcommand};
use pgseal_lab::report::format::duration;
use pgseal_lab::{Experiment, LabError, experiments, session};

use self::advise::AdviseArgs;
use self::blocks::BlockArgs;
use self::compare::CompareArgs;
use self::documents::{CompletionsArgs, ManArgs};
use self::report::ReportArgs;
use self::run::RunArgs;
use crate::exit;

const LONG_ABOUT: &str = "\
Measure what encryption costs on this machine.

Repeats the experiments of four published studies with throw-away clusters of the PostgreSQL that is \
installed, and prints the studies' figures beside the measured ones. Existing clusters are not \
touched. Each experiment writes samples.jsonl (every value at once), results.json, results.csv and \
report.html into DIR/EXPERIMENT.

\"pgseal lab\" runs this program, and \"pgseal advise\" runs \"pgseal-lab advise\".";

const EXAMPLES: &str = "\
Examples:
  pgseal-lab all --quick --output ~/lab
  pgseal-lab modes --output ~/lab
  pgseal-lab report ~/lab
  pgseal-lab compare ~/lab-before ~/lab-after

Leave the machine alone while the lab measures. docs/lab.md says how to read a report.";

/// Measure what encryption costs on this machine
#[derive(Debug, Parser)]
#[command(name = "pgseal-lab", version, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// The experiments come from [`experiments::all`], so a new experiment needs no change here.
#[derive(Debug)]
enum Task {
    Run { experiment: &'static str, args: Box<RunArgs>, blocks: BlockArgs },
    Fixed(Fixed),
}

#[derive(Debug, Subcommand)]
enum Fixed {
    /// Run all experiments, then write one page over them
    All(RunArgs),
    /// Write the reports anew from recorded results
    Report(ReportArgs),
    Compare(CompareArgs),
    Advise(AdviseArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
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

impl Subcommand for Task {
    fn augment_subcommands(mut command: clap::Command) -> clap::Command {
        for experiment in experiments::all() {
            let one = clap::Command::new(experiment.name()).about(experiment.title());
            let study = format!(
                "{}\n\nRepeats: {}\n\n{}",
                experiment.title(),
                experiment.study(),
                takes(std::slice::from_ref(&experiment))
            );
            let mut one = <RunArgs as clap::Args>::augment_args(one).long_about(study);
            if experiment.measures_in_blocks() {
                one = <BlockArgs as clap::Args>::augment_args(one);
            }
            command = command.subcommand(one.about(experiment.title()));
        }
        let long = format!(
            "Run all experiments, then write one page over them\n\n{}",
            takes(&experiments::all())
        );
        Fixed::augment_subcommands(command).mut_subcommand("all", |all| all.long_about(long))
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
            let args = Box::new(RunArgs::from_arg_matches(matches)?);
            let blocks = match experiment.measures_in_blocks() {
                true => BlockArgs::from_arg_matches(matches)?,
                false => BlockArgs::default(),
            };
            return Ok(Self::Run { experiment: experiment.name(), args, blocks });
        }
        Fixed::from_arg_matches(matches).map(Self::Fixed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// How long experiments take, as their plans say.
fn takes(experiments: &[Box<dyn Experiment>]) -> String {
    let sum = |profile: &str| {
        let each = experiments.iter().filter_map(|one| session::usual_s(&**one, profile));
        duration(each.sum())
    };
    format!("Takes about {} (--quick) or {} (full) on two idle cores.", sum("quick"), sum("full"))
}

/// Parses the command line and runs the command; returns the exit status.
pub fn dispatch() -> Result<u8, LabError> {
    match &Cli::parse().task {
        Task::Run { experiment, args, blocks } => run::one(experiment, args, blocks),
        Task::Fixed(Fixed::All(args)) => run::all(args),
        Task::Fixed(Fixed::Report(args)) => report::run(args),
        Task::Fixed(Fixed::Compare(args)) => compare::run(args),
        Task::Fixed(Fixed::Advise(args)) => advise::run(args),
        Task::Fixed(Fixed::Completions(args)) => documents::completions(args),
        Task::Fixed(Fixed::Man(ManArgs {})) => documents::man(),
        Task::Fixed(Fixed::Child { experiment, arguments }) => {
            run::named(experiment)?.child(arguments)?;
            Ok(exit::SOUND)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
