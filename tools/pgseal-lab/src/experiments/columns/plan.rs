//! Turns a profile into arms and cases.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::scenario::{self, Micro, Scenario};
use crate::error::LabError;
use crate::plan::{Arm, Better, Case, Plan};
use crate::profile::Profile;
use crate::tpch;

/// Id of the second measurement of the baseline.
pub const AGAIN: &str = "plain-again";

/// `[parameters]` of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Scale factor of TPC-H; 1 is about 1 GB.
    pub scale: f64,
    /// Numbers of the queries, or `all`. The study ran 1 to 5.
    pub queries: Queries,
    /// Ids of the scenarios; all of them if empty. The baseline is always measured.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// Whether the scenarios with primary and foreign keys are measured.
    pub keys: bool,
    /// Rounds of the loads without keys.
    pub load_rounds: u32,
    /// Rounds of the loads with keys.
    pub load_keys_rounds: u32,
    /// Seconds after which a load is stopped and extrapolated.
    pub load_budget_s: f64,
    /// Seconds after which a load with PGP is stopped and extrapolated.
    pub pgp_budget_s: f64,
    /// Seconds after which a query is cancelled and reported as missing.
    pub query_budget_s: f64,
    /// Size of the rows of one INSERT, in bytes as `dbgen` writes them. The study used 4096.
    pub bulk_bytes: u64,
    /// Seconds of pgbench per look-up by primary key.
    pub lookup_s: u32,
    /// Number of values in the microbenchmark.
    pub micro_rows: u64,
    /// Suite of the sealed instance.
    pub suite: String,
    /// Settings (`name=value`) of both servers.
    pub settings: Vec<String>,
}

/// The queries to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Queries {
    /// The queries with these numbers.
    Some(Vec<u32>),
    /// `"all"`.
    Word(String),
}

impl Queries {
    fn numbers(&self) -> Result<Vec<u32>, LabError> {
        match self {
            Self::Word(word) if word == "all" => Ok((1..=22).collect()),
            Self::Some(numbers) if numbers.iter().all(|number| (1..=22).contains(number)) => {
                Ok(numbers.clone())
            }
            other => Err(LabError::Usage(format!(
                "queries = {}: want a list of numbers from 1 to 22, or \"all\"",
                json!(other)
            ))),
        }
    }
}

/// What a case measures; its parameter `work`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "kebab-case")]
pub enum Work {
    /// Load all rows.
    Load {
        /// Whether to load with COPY instead of INSERTs.
        copy: bool,
    },
    /// Bytes on disk.
    Size,
    /// A query of TPC-H.
    Query {
        /// The query's number, 1 to 22.
        number: u32,
    },
    /// A join of every order line with its order.
    Join,
    /// A look-up of one order by its primary key.
    Lookup,
    /// Nanoseconds per value.
    Micro {
        /// Index in [`Micro::ALL`].
        what: usize,
    },
}

impl Work {
    /// The work of a case.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a case of another experiment.
    pub fn of(case: &Case) -> Result<Self, LabError> {
        case.typed_parameters()
    }
}

/// Whether a case is measured with primary and foreign keys.
///
/// # Errors
///
/// [`LabError::Plan`] for a case of another experiment.
pub fn with_keys(case: &Case) -> Result<bool, LabError> {
    Ok(case.parameter("keys")?.unwrap_or(false))
}

/// The plan of a profile.
///
/// # Errors
///
/// [`LabError::Usage`] for invalid parameters.
pub fn plan_of(profile: &Profile) -> Result<Plan, LabError> {
    let parameters: Parameters = profile.parameters()?;
    check(&parameters)?;
    let scenarios = chosen(&parameters)?;
    let mut arms = Vec::new();
    for scenario in &scenarios {
        arms.push(arm(scenario.id(), scenario.title(), scenario.id()));
        if arms.len() == 1 {
            let mut again = arm(AGAIN, "Plain again", scenario.id());
            again.again = true;
            arms.push(again);
        }
    }
    Ok(Plan {
        experiment: "columns".to_owned(),
        profile: profile.name.clone(),
        arms,
        cases: Cases { parameters: &parameters, scenarios: &scenarios, rounds: profile.rounds }
            .all()?,
        rounds: profile.rounds,
        warmups: profile.warmups,
        seed: profile.seed,
        parameters: profile.parameters.clone(),
    })
}

fn check(parameters: &Parameters) -> Result<(), LabError> {
    let wrong = |what: &str| Err(LabError::Usage(format!("[parameters]: {what}")));
    if !(parameters.scale > 0.0 && parameters.scale <= 1000.0) {
        return wrong("scale must be above 0 and at most 1000");
    }
    if parameters.load_rounds == 0 || parameters.load_keys_rounds == 0 {
        return wrong("load_rounds and load_keys_rounds must be 1 or more");
    }
    if parameters.bulk_bytes == 0 || parameters.micro_rows == 0 || parameters.lookup_s == 0 {
        return wrong("bulk_bytes, micro_rows and lookup_s must be 1 or more");
    }
    if parameters.keys && !tpch::keys_hold(parameters.scale) {
        return wrong(
            "keys: at this scale some rows of partsupp have the same key; use 0.008, or 0.01 and more",
        );
    }
    let budgets = [parameters.load_budget_s, parameters.pgp_budget_s, parameters.query_budget_s];
    if budgets.iter().any(|budget| budget.is_nan() || *budget <= 0.0) {
        return wrong("budgets must be above 0");
    }
    Ok(())
}

fn chosen(parameters: &Parameters) -> Result<Vec<Box<dyn Scenario>>, LabError> {
    let all = scenario::all();
    let known: Vec<_> = all.iter().map(|scenario| scenario.id()).collect();
    if let Some(other) = parameters.scenarios.iter().find(|id| !known.contains(&id.as_str())) {
        return Err(LabError::Usage(format!(
            "scenarios: {other}: there is no such scenario; there are {}",
            known.join(", ")
        )));
    }
    let wanted = |id: &str| {
        parameters.scenarios.is_empty() || parameters.scenarios.iter().any(|other| other == id)
    };
    Ok(all
        .into_iter()
        .enumerate()
        .filter(|(place, scenario)| *place == 0 || wanted(scenario.id()))
        .map(|(_, scenario)| scenario)
        .collect())
}

fn arm(id: &str, title: &str, scenario: &str) -> Arm {
    Arm {
        id: id.to_owned(),
        title: title.to_owned(),
        again: false,
        attributes: BTreeMap::from([("scenario".to_owned(), Value::from(scenario))]),
    }
}

struct Cases<'a> {
    parameters: &'a Parameters,
    scenarios: &'a [Box<dyn Scenario>],
    rounds: u32,
}

impl Cases<'_> {
    fn all(&self) -> Result<Vec<Case>, LabError> {
        let mut cases = Vec::new();
        let groups: &[bool] = if self.parameters.keys { &[false, true] } else { &[false] };
        for keys in groups {
            self.group(*keys, &mut cases)?;
        }
        for (what, micro) in Micro::ALL.into_iter().enumerate() {
            let arms = self.arms(|scenario| scenario.micro().is_some());
            if arms.is_empty() {
                continue;
            }
            let estimate_s = self.parameters.micro_rows as f64 * 2e-6 + 0.1;
            let work = Work::Micro { what };
            let mut case = case(micro.id(), micro.title(), "ns", &work, false, estimate_s);
            case.arms = arms;
            cases.push(case);
        }
        Ok(cases)
    }

    /// Adds the cases without keys, or the cases with keys.
    fn group(&self, keys: bool, cases: &mut Vec<Case>) -> Result<(), LabError> {
        let scale = self.parameters.scale;
        let tail = if keys { "-keys" } else { "" };
        let words = if keys { ", primary and foreign keys" } else { "" };
        let mut add = |id: &str, title: &str, unit: &str, work: Work, queried: bool, s: f64| {
            let id = format!("{id}{tail}");
            let title = format!("{title}{words}");
            let mut case = case(&id, &title, unit, &work, keys, s);
            case.arms = self.arms(|scenario| {
                (!keys || scenario.has_keys()) && (!queried || scenario.is_queried())
            });
            let loads =
                if keys { self.parameters.load_keys_rounds } else { self.parameters.load_rounds };
            match work {
                Work::Load { .. } => case.rounds = Some(loads),
                Work::Size => case.rounds = Some(1),
                _ => case.rounds = Some(self.rounds),
            }
            cases.push(case);
        };
        let slower = if keys { 2.0 } else { 1.0 };
        let budget = self.parameters.load_budget_s;
        let load_s = |s: f64| (s * scale * slower).min(budget) + 0.5;
        add(
            "insert",
            "Load: INSERTs in bulk",
            "s",
            Work::Load { copy: false },
            false,
            load_s(300.0),
        );
        add("copy", "Load: COPY", "s", Work::Load { copy: true }, false, load_s(120.0));
        add("size", "Size on disk", "bytes", Work::Size, true, 0.2);
        for number in self.parameters.queries.numbers()? {
            let work = Work::Query { number };
            let id = format!("q{number}");
            add(&id, &format!("Query {number}"), "s", work, true, scale * 10.0 + 0.1);
        }
        if keys {
            add("join", "Lines joined with orders", "s", Work::Join, true, scale * 5.0 + 0.1);
            let s = f64::from(self.parameters.lookup_s) + 0.2;
            add("lookup", "Orders by primary key", "1/s", Work::Lookup, true, s);
        }
        Ok(())
    }

    /// Ids of the arms whose scenario satisfies `fit`, including the second measurement of the
    /// baseline.
    fn arms(&self, fit: impl Fn(&dyn Scenario) -> bool) -> Vec<String> {
        let mut arms = Vec::new();
        for (place, scenario) in self.scenarios.iter().enumerate() {
            if fit(scenario.as_ref()) {
                arms.push(scenario.id().to_owned());
                if place == 0 {
                    arms.push(AGAIN.to_owned());
                }
            }
        }
        arms
    }
}

fn case(id: &str, title: &str, unit: &str, work: &Work, keys: bool, estimate_s: f64) -> Case {
    let mut parameters: BTreeMap<String, Value> = match json!(work) {
        Value::Object(members) => members.into_iter().collect(),
        _ => BTreeMap::new(),
    };
    if keys {
        parameters.insert("keys".to_owned(), Value::from(true));
    }
    let better = if unit == "1/s" { Better::Higher } else { Better::Lower };
    Case {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        better,
        arms: Vec::new(),
        baseline: None,
        parameters,
        rounds: None,
        estimate_s,
    }
}
