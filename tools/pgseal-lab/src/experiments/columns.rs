//! What encrypted columns cost (study 4): data and queries derived from TPC-H, loaded the study's
//! way and with COPY, queried, and weighed on disk, in every [`scenario`].
//!
//! - A scenario has a database of its own on a plain server, or on one whose data directory is
//!   sealed; with keys, another one. Loads begin with an empty database each time; keys are there
//!   before the first row, as they were in the study.
//! - *INSERTs*: as many rows as hold 4096 bytes (as `dbgen` writes them) in one statement, every
//!   field wrapped in the encrypting function; psql sends them, each table is one transaction. The
//!   study's client was a Python script; less of the time is the client's here.
//! - *COPY*: into the table where its types allow; with pgcrypto, into a temporary table of text,
//!   and from there by `INSERT ... SELECT` with the functions. Both parts are in the time.
//! - A load ends at its time budget and is then extrapolated by the number of fields, with a
//!   warning that says from how much. With keys that is too low rather than too high, since an
//!   index is cheaper while it is small.
//! - *Queries* run in a new connection each. Their answers are compared with those of the plain
//!   tables in every single run; a difference ends the experiment. Where columns are decrypted by
//!   SQL functions, queries go over views; see [`database`].
//! - Sizes are lengths of files; they must sum up to what the server says.

mod answers;
mod database;
mod executor;
mod exhibits;
mod load;
mod micro;
mod pgcrypto;
mod place;
pub mod plan;
pub mod scenario;
mod sealed;
mod size;
mod study;

use super::Experiment;
use crate::analysis::Analysis;
use crate::context::Context;
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Executor;
use crate::exhibits::Exhibits;
use crate::plan::{Arm, Case, Plan};
use crate::profile::Profile;
use crate::results::Results;

/// Profiles that come with pgseal.
const PROFILES: &[(&str, &str)] = &[
    ("tiny", include_str!("../../profiles/columns-tiny.toml")),
    ("quick", include_str!("../../profiles/columns-quick.toml")),
    ("full", include_str!("../../profiles/columns-full.toml")),
    ("sf1", include_str!("../../profiles/columns-sf1.toml")),
];

/// The experiment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns;

impl Experiment for Columns {
    fn name(&self) -> &'static str {
        "columns"
    }

    fn title(&self) -> &'static str {
        "Encrypted columns, on data derived from TPC-H"
    }

    fn study(&self) -> &'static str {
        "Column encryption with pgcrypto on TPC-H, 10 GB: load time, queries 1 to 5 and size on disk, \
         with and without keys."
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        PROFILES
    }

    /// A load and a size: always; a sealed instance: also the queries, which have the same plans.
    fn only_adds(&self, case: &Case, arm: &Arm) -> bool {
        let other = arm.id != "plain" && !arm.again && case.unit != "ns";
        let stores = ["insert", "copy", "size"].iter().any(|name| case.id.starts_with(name));
        other && (stores || arm.id == "sealed-instance")
    }

    /// What the study's columns cost.
    fn most(&self, case: &Case, arm: &str) -> Option<f64> {
        let study = study::Study::published();
        let keys = case.id.ends_with("-keys");
        let ours = arm.starts_with("sealed-");
        match case.id.trim_end_matches("-keys") {
            "insert" | "copy" if ours => study.load_ratio(keys),
            "size" if ours => study.storage_ratio(keys),
            _ => None,
        }
    }

    fn plan(&self, profile: &Profile, _machine: &Environment) -> Result<Plan, LabError> {
        plan::plan_of(profile)
    }

    fn executor(&self, plan: &Plan, context: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(executor::ColumnsExecutor::new(plan, context)?))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        exhibits::of(results, analysis)
    }
}
