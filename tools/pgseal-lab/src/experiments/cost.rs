//! `pgseal lab cost`, `make bench`: what sealing costs against the same PostgreSQL unsealed, held
//! against the aims of docs/costs.md.

mod cases;
mod client;
mod counters;
pub mod executor;
mod findings;
mod floor;
mod goal;
mod halt;
pub mod load;
pub mod plan;
pub mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;

use crate::analysis::Analysis;
use crate::context::Context;
use crate::cost::is_suite;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::experiments::Experiment;
use crate::experiments::instance::plan::PLAIN;
use crate::plan::{Arm, Case, Plan};
use crate::profile::Profile;
use crate::results::Results;

const NAME: &str = "cost";

/// What sealing costs, with an aim for each measure.
#[derive(Debug, Clone, Copy, Default)]
pub struct Costs;

impl Experiment for Costs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "A sealed instance against a plain one, with an aim for each measure"
    }

    fn study(&self) -> &'static str {
        "no published study; the measures and aims are those of pgseal's docs/costs.md"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tiny", include_str!("../../profiles/cost-tiny.toml")),
            ("quick", include_str!("../../profiles/cost-quick.toml")),
            ("full", include_str!("../../profiles/cost-full.toml")),
        ]
    }

    fn only_adds(&self, _case: &Case, arm: &Arm) -> bool {
        arm.id != PLAIN && !arm.again && !plan::lacks_checksums(arm)
    }

    fn most(&self, case: &Case, arm: &str) -> Option<f64> {
        plan::spec_of(case).ok()?.goal?.most(arm).filter(|_| is_suite(arm))
    }

    fn measures_in_blocks(&self) -> bool {
        true
    }

    /// The guardian of the servers.
    fn child(&self, _arguments: &[OsString]) -> Result<(), LabError> {
        halt::guard(io::stdin().lock());
        Ok(())
    }

    fn plan(&self, profile: &Profile, _machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile)
    }

    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(executor::CostExecutor::new(plan, context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        let specs = plan::Specs::of(&results.plan)?;
        Ok(Exhibits {
            findings: findings::findings(results, analysis, &specs),
            tables: table::tables(results, analysis, &specs),
            charts: table::charts(results, analysis),
            answer: findings::answer(results, analysis),
        })
    }
}
