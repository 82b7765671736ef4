//! `pgseal lab scale`: how the cost of a sealed instance grows with clients, workers, the pages
//! that a checkpoint writes, memory that the data do not fit into, and the number of tables.

mod exhibits;
mod plan;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use crate::analysis::Analysis;
use crate::context::Context;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::experiments::Experiment;
use crate::experiments::cost::Costs;
use crate::experiments::cost::executor::CostExecutor;
use crate::plan::{Arm, Case, Plan};
use crate::profile::Profile;
use crate::results::Results;

const NAME: &str = "scale";

/// How the cost grows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale;

impl Experiment for Scale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "How the cost of a sealed instance grows with clients, workers, memory, tables"
    }

    fn study(&self) -> &'static str {
        "no published study; each series begins where `pgseal lab cost` measures"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tiny", include_str!("../../profiles/scale-tiny.toml")),
            ("quick", include_str!("../../profiles/scale-quick.toml")),
            ("full", include_str!("../../profiles/scale-full.toml")),
        ]
    }

    fn only_adds(&self, case: &Case, arm: &Arm) -> bool {
        Costs.only_adds(case, arm)
    }

    fn measures_in_blocks(&self) -> bool {
        true
    }

    /// The guardian of the servers.
    fn child(&self, arguments: &[OsString]) -> Result<(), LabError> {
        Costs.child(arguments)
    }

    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile, machine)
    }

    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(CostExecutor::new(plan, context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        exhibits::exhibits(results, analysis)
    }
}
