//! `pgseal lab instance`: the third study, and what it left out. A plain server against each sealed
//! suite and against gocryptfs.

mod arms;
mod cache;
mod executor;
mod figures;
mod findings;
mod limit;
mod mount;
mod plan;
mod proof;
mod sample;
mod tables;
#[cfg(test)]
mod tests;
mod work;

use crate::analysis::Analysis;
use crate::context::Context;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::experiments::Experiment;
use crate::plan::Plan;
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
            ("tiny", include_str!("../../../../../lab/profiles/instance-tiny.toml")),
            ("quick", include_str!("../../../../../lab/profiles/instance-quick.toml")),
            ("full", include_str!("../../../../../lab/profiles/instance-full.toml")),
            ("study", include_str!("../../../../../lab/profiles/instance-study.toml")),
        ]
    }

    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile, machine)
    }

    fn executor(&self, _plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(executor::InstanceExecutor::new(context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Exhibits {
        Exhibits {
            findings: findings::findings(results, analysis),
            tables: tables::tables(results, analysis),
            charts: tables::charts(results, analysis),
        }
    }
}
