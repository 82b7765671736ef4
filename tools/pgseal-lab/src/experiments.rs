//! The experiments. Each has a module here and profiles below `tools/pgseal-lab/profiles/`.

pub mod columns;
pub mod cost;
pub mod instance;
pub mod modes;
pub mod scale;
pub mod tls;

use std::ffi::OsString;

use crate::analysis::Analysis;
use crate::context::Context;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::plan::{Arm, Case, Plan};
use crate::profile::Profile;
use crate::results::Results;

/// All experiments, in the order of `pgseal lab all`.
pub fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(modes::Modes),
        Box::new(tls::Tls),
        Box::new(instance::Instance),
        Box::new(cost::Costs),
        Box::new(scale::Scale),
        Box::new(columns::Columns),
    ]
}

/// The experiment of this name.
pub fn named(name: &str) -> Option<Box<dyn Experiment>> {
    all().into_iter().find(|experiment| experiment.name() == name)
}

/// One experiment.
pub trait Experiment {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Heading of its report, and one line of help.
    fn title(&self) -> &'static str;

    /// The study that it repeats, one sentence with author and year; or that there is none.
    fn study(&self) -> &'static str;

    /// Name and TOML text of its profiles: `tiny`, `quick`, `full`.
    fn profiles(&self) -> &'static [(&'static str, &'static str)];

    /// Whether it starts PostgreSQL servers, so that it needs `bindir` and an ordinary user.
    fn needs_postgres(&self) -> bool {
        true
    }

    /// Whether a step is a loop inside a process that runs already, so that a short step is as good
    /// as a long one: nothing has to start first.
    fn loops_in_one_process(&self) -> bool {
        false
    }

    /// Whether an arm does its baseline's work in a case and more, so that it cannot take much less
    /// time.
    fn only_adds(&self, _case: &Case, _arm: &Arm) -> bool {
        false
    }

    /// The time that an arm should take in a case at most, as a ratio to its baseline; none: there
    /// is no aim. More than that is shown as a fault.
    fn most(&self, _case: &Case, _arm: &str) -> Option<f64> {
        None
    }

    /// Whether its cases end when their intervals are narrow, or the time is up
    /// ([`Until`](crate::plan::Until)).
    fn measures_in_blocks(&self) -> bool {
        false
    }

    /// What is measured on this machine.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] for a profile that makes no sense.
    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError>;

    /// What takes the samples.
    ///
    /// # Errors
    ///
    /// Whatever keeps the whole experiment from running.
    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError>;

    /// Findings, tables and charts; from the data alone, also for recorded results.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a plan that this experiment does not understand.
    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError>;

    /// The work of a process of [`Context::child_command`]: reads its arguments, prints to standard
    /// output.
    ///
    /// # Errors
    ///
    /// Whatever goes wrong; it is printed and the process fails.
    fn child(&self, _arguments: &[OsString]) -> Result<(), LabError> {
        Err(LabError::Usage(format!("{}: has no child processes", self.name())))
    }
}
