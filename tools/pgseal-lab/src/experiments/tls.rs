//! `pgseal lab tls`: what TLS between client and server costs (study 2).
//!
//! All steps use one cluster with the study's table. Every step restarts the server with the arm's
//! certificate, version, suite and group, and with host-based authentication rules that accept
//! either only TLS or only connections without TLS. The step then fills the cache, runs pgbench
//! over TCP on loopback, and meanwhile reads from `pg_stat_ssl` what was negotiated. If there are
//! two or more CPUs, server and client use different ones, since the study used two hosts.

mod arms;
mod client;
pub(super) mod cpus;
mod exhibits;
mod findings;
mod ground;
mod plan;
mod proof;
mod run;

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

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Tls;

impl Experiment for Tls {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn title(&self) -> &'static str {
        "TLS between client and server: suites, certificates, groups, connections, sizes of results"
    }

    fn study(&self) -> &'static str {
        "TLS ciphers between client and server (digoal, 2013)"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tiny", include_str!("../../profiles/tls-tiny.toml")),
            ("quick", include_str!("../../profiles/tls-quick.toml")),
            ("full", include_str!("../../profiles/tls-full.toml")),
        ]
    }

    fn only_adds(&self, _case: &Case, arm: &Arm) -> bool {
        arm.attributes.contains_key("tls")
    }

    /// What the study's dearest suite cost in 2013, for the study's own query.
    fn most(&self, case: &Case, arm: &str) -> Option<f64> {
        let asked = case.id == plan::PERSISTENT && !arm.starts_with(arms::PLAIN);
        let study = crate::published::tls_ciphers();
        findings::study_costs(&study).last().map(|(_, times)| *times).filter(|_| asked)
    }

    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile, machine)
    }

    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(run::Runs::new(plan, context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        exhibits::exhibits(results, analysis)
    }
}
