//! Turns a profile into a plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::arms;
use crate::environment::Environment;
use crate::error::LabError;
use crate::plan::{Arm, Better, Case, Plan};
use crate::profile::Profile;

/// Estimated seconds of a step besides pgbench: start and stop of the server, filling the cache.
const STEP_OVERHEAD_S: f64 = 1.0;
/// Estimated seconds to load a million rows.
const LOAD_S: f64 = 6.0;

/// Case: one row over persistent connections.
pub const PERSISTENT: &str = "row-persistent";
/// Case: one row with a new connection for each transaction.
pub const CONNECT: &str = "row-connect";
/// Case: a hundred rows.
pub const ROWS: &str = "rows-100";
/// Case: a value of one megabyte.
pub const MEGABYTE: &str = "value-1mb";

/// `[parameters]` of a profile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Rows of the table.
    rows: u32,
    /// pgbench's `-c`.
    clients: u32,
    /// pgbench's `-j`.
    threads: u32,
    /// pgbench's `-T`, in seconds.
    #[serde(default)]
    seconds: Option<u32>,
    /// pgbench's `-t` instead.
    #[serde(default)]
    transactions: Option<u32>,
    /// Suites, certificates and groups for persistent connections.
    persistent: Lists,
    /// Suites, certificates and groups for a new connection per transaction.
    connect: Lists,
    /// Suites, certificates and groups for larger results.
    large: Lists,
}

/// The arms of a case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Lists {
    suites: Vec<String>,
    certificates: Vec<String>,
    groups: Vec<String>,
}

impl Lists {
    fn arms(&self) -> Result<Vec<Arm>, LabError> {
        let suites = self.suites.iter().map(|name| arms::suite(name));
        let certificates = self.certificates.iter().map(|name| arms::certificate(name));
        let groups = self.groups.iter().map(|name| arms::group(name));
        arms::plain().map(Ok).into_iter().chain(suites).chain(certificates).chain(groups).collect()
    }
}

/// What a case runs; its parameter `work`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The script for pgbench.
    pub script: String,
    /// Whether each transaction has a new connection (pgbench's `-C`).
    pub connect: bool,
}

/// The plan of a profile.
///
/// # Errors
/// [`LabError::Usage`] for an invalid profile.
pub fn plan(profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
    let parameters: Parameters = profile.parameters()?;
    let length = match (parameters.seconds, parameters.transactions) {
        (Some(seconds), None) => ["-T".to_owned(), seconds.to_string()],
        (None, Some(transactions)) => ["-t".to_owned(), transactions.to_string()],
        _ => {
            return Err(LabError::Usage(format!(
                "profile {}: give either seconds or transactions",
                profile.name
            )));
        }
    };
    if parameters.rows < 100 || parameters.clients < 1 || parameters.threads < 1 {
        return Err(LabError::Usage(format!(
            "profile {}: rows must be 100 or more, clients and threads 1 or more",
            profile.name
        )));
    }
    let seconds = parameters.seconds.map_or(0.2, f64::from);
    let mut plan_arms: Vec<Arm> = Vec::new();
    let mut cases = Vec::new();
    for (id, title, lists, work) in case_list(&parameters) {
        let case_arms = lists.arms()?;
        let ids = case_arms.iter().map(|arm| arm.id.clone()).collect();
        for arm in case_arms {
            if !plan_arms.iter().any(|known| known.id == arm.id) {
                plan_arms.push(arm);
            }
        }
        cases.push(Case {
            id: id.to_owned(),
            title: title.to_owned(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
            arms: ids,
            baseline: Some(arms::PLAIN.to_owned()),
            parameters: BTreeMap::from([("work".to_owned(), json!(work))]),
            rounds: None,
            estimate_s: seconds + STEP_OVERHEAD_S,
        });
    }
    // The estimate of the first case includes loading the table.
    if let Some(first) = cases.first_mut() {
        let steps = first.arms.len() as f64 * f64::from(profile.rounds + profile.warmups);
        first.estimate_s += LOAD_S * f64::from(parameters.rows) / 1e6 / steps.max(1.0);
    }
    let pgbench = [
        ["-M".to_owned(), "prepared".to_owned()],
        ["-c".to_owned(), parameters.clients.to_string()],
        ["-j".to_owned(), parameters.threads.to_string()],
        length,
    ]
    .concat();
    Ok(Plan {
        experiment: "tls".to_owned(),
        profile: profile.name.clone(),
        arms: plan_arms,
        cases,
        rounds: profile.rounds,
        warmups: profile.warmups,
        seed: profile.seed,
        parameters: BTreeMap::from([
            ("rows".to_owned(), json!(parameters.rows)),
            ("pgbench".to_owned(), json!(pgbench)),
            ("clients".to_owned(), json!(parameters.clients)),
            ("threads".to_owned(), json!(parameters.threads)),
            ("split_cpus".to_owned(), json!(machine.cpus > 1)),
        ]),
    })
}

fn case_list(parameters: &Parameters) -> Vec<(&'static str, &'static str, &Lists, Work)> {
    let rows = parameters.rows;
    // The study's script, with the current syntax of \setrandom.
    let one = format!("\\set id random(1, {rows})\nselect * from test where id = :id;\n");
    let many = format!(
        "\\set id random(1, {})\nselect * from test where id between :id and :id + 99;\n",
        rows - 99
    );
    let megabyte = format!(
        "\\set id random(1, {})\nselect payload from large where id = :id;\n",
        super::ground::LARGE_ROWS
    );
    let work = |script: &str, connect| Work { script: script.to_owned(), connect };
    vec![
        (
            PERSISTENT,
            "The study's query: one row by its key, over connections that stay",
            &parameters.persistent,
            work(&one, false),
        ),
        (
            CONNECT,
            "The same with a new connection for each transaction (-C)",
            &parameters.connect,
            work(&one, true),
        ),
        (ROWS, "100 rows in one result", &parameters.large, work(&many, false)),
        (MEGABYTE, "One value of 1 MB in one result", &parameters.large, work(&megabyte, false)),
    ]
}
