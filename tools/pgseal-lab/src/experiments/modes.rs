//! `pgseal lab modes`: measures the modes of AES for several message sizes, with and without the
//! CPU's AES instructions, through the system's OpenSSL and through AWS-LC (studies 1 and 2).
//!
//! One child process per set of instructions ([`worker`]), pinned to one core, runs short bursts.
//! All arms of all cases take turns in random order, and every round starts new processes.

pub mod algorithm;
mod answer;
pub mod arm;
pub(super) mod awslc;
mod charts;
mod child;
mod clock;
pub mod figures;
mod findings;
pub mod plan;
pub mod protocol;
mod published;
mod run;
mod system;
pub mod table;
mod tables;
pub mod work;
pub mod worker;

use std::ffi::OsString;
use std::io;
use std::path::Path;

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

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Modes;

impl Experiment for Modes {
    fn name(&self) -> &'static str {
        "modes"
    }

    fn title(&self) -> &'static str {
        "AES modes, key lengths and units, through OpenSSL and AWS-LC"
    }

    fn study(&self) -> &'static str {
        "AES modes and key lengths (HighGo, Shawn Wang), and the openssl speed table of TLS ciphers \
         between client and server (digoal, 2013)"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("tiny", include_str!("../../profiles/modes-tiny.toml")),
            ("quick", include_str!("../../profiles/modes-quick.toml")),
            ("full", include_str!("../../profiles/modes-full.toml")),
            ("advise", include_str!("../../profiles/modes-advise.toml")),
        ]
    }

    fn needs_postgres(&self) -> bool {
        false
    }

    fn loops_in_one_process(&self) -> bool {
        true
    }

    fn plan(&self, profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
        plan::plan(profile, machine)
    }

    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(run::Bursts::new(plan, context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        let figures = figures::Figures::of(results)?;
        Ok(Exhibits {
            findings: findings::findings(&figures),
            tables: tables::tables(&figures)?,
            charts: charts::charts(&figures),
            answer: answer::answer(&figures, analysis),
        })
    }

    fn child(&self, _arguments: &[OsString]) -> Result<(), LabError> {
        worker::serve(io::stdin().lock(), io::stdout().lock())
            .map_err(LabError::io(Path::new("standard output"), "answer"))
    }
}
