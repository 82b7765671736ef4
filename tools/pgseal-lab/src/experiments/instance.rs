//! `pgseal lab instance`: repeats the third study and adds what it left out. Compares a plain
//! server with each sealed suite and with gocryptfs.

pub(super) mod arms;
mod cache;
mod executor;
pub(super) mod figures;
mod findings;
mod limit;
mod mount;
pub(super) mod plan;
mod proof;
mod sample;
pub(super) mod tables;
#[cfg(test)]
mod tests;
pub(super) mod work;

use crate::analysis::Analysis;
use crate::context::Context;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::experiments::Experiment;
use crate::plan::{Arm, Case, Plan};
use crate::profile::Profile;
use crate::results::Results;

const NAME: &str = "instance";

/// What a sealed or otherwise encrypted instance costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Instance;

impl Experiment for Instance {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "An encrypted instance against a plain one, over shared_buffers and workloads"
    }

    fn study(&self) -> &'static str {
        "Hans-Juergen Schoenig (CYBERTEC): instance-level encryption of PostgreSQL"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tiny", include_str!("../../profiles/instance-tiny.toml")),
            ("quick", include_str!("../../profiles/instance-quick.toml")),
            ("full", include_str!("../../profiles/instance-full.toml")),
            ("study", include_str!("../../profiles/instance-study.toml")),
        ]
    }

    fn only_adds(&self, _case: &Case, arm: &Arm) -> bool {
        arm.attributes.contains_key("suite")
    }

    fn most(&self, case: &Case, arm: &str) -> Option<f64> {
        findings::most(&case.id, arm)
    }

    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile, machine)
    }

    fn executor(&self, _plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(executor::InstanceExecutor::new(context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        let sizes = figures::sweep(results, analysis)?;
        Ok(Exhibits {
            findings: findings::findings(results, analysis, &sizes)?,
            tables: tables::tables(results, analysis, &sizes)?,
            charts: tables::charts(results, analysis, &sizes),
            answer: findings::answer(results, analysis, &sizes),
        })
    }
}
