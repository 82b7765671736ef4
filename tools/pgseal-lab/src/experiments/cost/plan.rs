//! From a profile to arms and cases.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cases::{MEASURES, Measure, Sample};
use super::goal::Goal;
use crate::error::LabError;
use crate::experiments::instance::plan::{PLAIN, arms};
use crate::experiments::instance::work::Work;
use crate::plan::{Better, Case, Plan, value_of};
use crate::profile::Profile;

/// The parameters of a profile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// `pgbench -s` of the data; 20 is 2 million rows, about 300 MB.
    pub scale: u32,
    /// `pgbench -s` of the case `init`.
    pub init_scale: u32,
    /// `pgbench -T`; 0: `transactions` instead.
    pub seconds: u32,
    /// `pgbench -t`, where `seconds` is 0.
    #[serde(default)]
    pub transactions: u32,
    /// The suites to measure.
    pub suites: Vec<String>,
}

/// What the parameters of a case hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Server settings besides those of all cases.
    pub settings: Vec<String>,
    /// What is run.
    pub work: Work,
    /// Where the data are while it is measured.
    pub cache: String,
    /// The aim.
    pub goal: Goal,
}

/// Parallel workers as PostgreSQL has them by default: clusters of the lab start without.
const PARALLEL: [&str; 2] =
    ["max_parallel_workers_per_gather=2", "max_parallel_maintenance_workers=2"];

/// The plan of a profile.
pub fn plan(profile: &Profile) -> Result<Plan, LabError> {
    let sizes: Sizes = profile.parameters()?;
    if sizes.suites.is_empty() {
        return Err(LabError::Usage(format!("profile {}: suites: name one", profile.name)));
    }
    let mut parameters = profile.parameters.clone();
    parameters.insert("synced_before_each_value".to_owned(), Value::from(true));
    Ok(Plan {
        experiment: super::NAME.to_owned(),
        profile: profile.name.clone(),
        arms: arms(sizes.suites.iter(), false),
        cases: MEASURES.iter().map(|measure| case(measure, &sizes)).collect::<Result<_, _>>()?,
        rounds: profile.rounds,
        warmups: profile.warmups,
        seed: profile.seed,
        parameters,
    })
}

/// The parameters of all cases of a plan, by the case.
#[derive(Debug)]
pub struct Specs(BTreeMap<String, Spec>);

impl Specs {
    /// Those of a plan.
    ///
    /// # Errors
    /// [`LabError::Plan`] for a plan of another experiment.
    pub fn of(plan: &Plan) -> Result<Specs, LabError> {
        let specs = plan.cases.iter().map(|case| Ok((case.id.clone(), spec_of(case)?)));
        Ok(Specs(specs.collect::<Result<_, LabError>>()?))
    }

    /// Those of a case of this plan.
    pub fn of_case(&self, case: &Case) -> Option<&Spec> {
        self.0.get(&case.id)
    }
}

/// The parameters of a case.
///
/// # Errors
/// [`LabError::Plan`] for a case of another experiment.
pub fn spec_of(case: &Case) -> Result<Spec, LabError> {
    case.required("spec")
}

fn case(measure: &Measure, sizes: &Sizes) -> Result<Case, LabError> {
    let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|s| (*s).to_owned()).collect() };
    let million_rows = f64::from(sizes.scale) / 10.0;
    let (work, estimate_s) = match measure.sample {
        Sample::Sql(before, timed) => {
            let work = Work::Sql { before: owned(before), timed: owned(timed) };
            (work, million_rows * (before.len() + timed.len()) as f64 * 0.3 + 0.2)
        }
        Sample::Pgbench(more) => {
            let mut arguments = owned(more);
            arguments.push(match sizes.seconds {
                0 => format!("--transactions={}", sizes.transactions.max(1)),
                seconds => format!("--time={seconds}"),
            });
            (Work::Pgbench { arguments, script: None }, f64::from(sizes.seconds) + 0.5)
        }
        Sample::Init => {
            let scale = sizes.init_scale;
            (Work::Init { scale }, 0.2 * f64::from(scale) + 0.3)
        }
    };
    let settings = PARALLEL.iter().chain(measure.settings).map(|s| (*s).to_owned()).collect();
    let spec = Spec { settings, work, cache: measure.cache.to_owned(), goal: measure.goal };
    let better = measure.goal.better();
    Ok(Case {
        id: measure.name.to_owned(),
        title: measure.what.to_owned(),
        unit: if better == Better::Higher { "1/s" } else { "s" }.to_owned(),
        better,
        arms: Vec::new(),
        baseline: Some(PLAIN.to_owned()),
        parameters: BTreeMap::from([("spec".to_owned(), value_of("spec", &spec)?)]),
        rounds: None,
        estimate_s,
    })
}
