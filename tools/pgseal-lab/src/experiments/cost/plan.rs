//! From a profile to arms and cases.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cases::{MEASURES, Measure, Sample};
use super::goal::Goal;
use super::load::Load;
use crate::error::LabError;
use crate::experiments::instance::plan::{PLAIN, arms};
use crate::plan::{Arm, Better, Case, Plan, Until, value_of};
use crate::profile::Profile;

/// The parameters of a profile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// `pgbench -s` of the data; 20 is 2 million rows, about 300 MB.
    pub scale: u32,
    /// `pgbench -s` of the case `init`.
    pub init_scale: u32,
    /// The part of a slice that counts, in milliseconds.
    pub slice_ms: u64,
    /// The part before it, which does not.
    pub settle_ms: u64,
    /// The widest interval of a case that ends before its time is up, in percent.
    pub until_percent: f64,
    /// The time for each case, in seconds.
    pub max_s: f64,
    /// The fewest blocks of slices.
    pub least_blocks: u32,
    /// The suites to measure, each with data checksums or `-without-checksums`, and
    /// `plain-without-checksums`.
    pub suites: Vec<String>,
    /// Whether to measure a plain server on gocryptfs, too.
    #[serde(default)]
    pub gocryptfs: bool,
}

/// How one value is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// A slice of a load that goes on all the time.
    Steady {
        /// What the sessions do.
        load: Load,
        /// How many sessions there are.
        clients: u32,
    },
    /// SQL statements, in seconds.
    Sql {
        /// Statements that run before and are not timed.
        before: Vec<String>,
        /// Statements that are timed separately; the times are added.
        timed: Vec<String>,
    },
    /// `pgbench -i` into a database of its own, in seconds.
    Init {
        /// `-s`.
        scale: u32,
    },
    /// A clean stop and the start after it, in seconds.
    Restart {
        /// Statements that run before and are not timed.
        before: Vec<String>,
    },
    /// The start after all processes of the server were killed, in seconds.
    Recovery {
        /// Statements that run before the server is killed.
        before: Vec<String>,
    },
    /// A base backup whose bytes go nowhere, without WAL, in seconds.
    Backup,
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
    /// The aim, if there is one.
    #[serde(default)]
    pub goal: Option<Goal>,
    /// Limit on the memory of the server's processes together with the OS cache of the files that
    /// they read (control group).
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
}

/// Parallel workers as PostgreSQL has them by default: clusters of the lab start without.
const PARALLEL: [&str; 2] =
    ["max_parallel_workers_per_gather=2", "max_parallel_maintenance_workers=2"];

/// The fewest blocks of whole runs.
const LEAST_RUNS: u32 = 7;

/// Whether an arm has no data checksums, so that it may be faster than the plain server with them.
pub fn lacks_checksums(arm: &Arm) -> bool {
    arm.attributes.contains_key("data_checksums")
}

/// What every profile of measurements in slices and whole runs has.
#[derive(Debug, Clone, Copy)]
pub struct Slices<'a> {
    /// The part of a slice that counts, and the part before it, in milliseconds.
    pub slice_ms: u64,
    /// See `slice_ms`.
    pub settle_ms: u64,
    /// The widest interval of a case that ends before its time is up, in percent.
    pub until_percent: f64,
    /// The time for each case, in seconds.
    pub max_s: f64,
    /// The fewest blocks of slices.
    pub least_blocks: u32,
    /// The suites to measure.
    pub suites: &'a [String],
    /// Whether to measure a plain server on gocryptfs, too.
    pub gocryptfs: bool,
}

impl Slices<'_> {
    /// # Errors
    /// [`LabError::Usage`] for a profile that cannot be measured.
    pub fn check(&self, profile: &Profile) -> Result<(), LabError> {
        if self.suites.is_empty() && !self.gocryptfs {
            return wrong(profile, "suites: name one");
        }
        if self.slice_ms == 0 || !(self.until_percent > 0.0 && self.max_s > 0.0) {
            return wrong(profile, "slice_ms, until_percent and max_s must be more than 0");
        }
        Ok(())
    }

    /// The plan of a profile with these cases.
    pub fn plan(&self, experiment: &str, profile: &Profile, cases: Vec<Case>) -> Plan {
        let mut parameters = profile.parameters.clone();
        parameters.insert("synced_before_each_run".to_owned(), Value::from(true));
        Plan {
            experiment: experiment.to_owned(),
            profile: profile.name.clone(),
            arms: arms(self.suites.iter(), self.gocryptfs),
            cases,
            rounds: profile.rounds,
            warmups: profile.warmups,
            seed: profile.seed,
            parameters,
        }
    }

    /// A case. `run_s`: how long a whole run takes.
    ///
    /// # Errors
    /// [`LabError::Plan`] if the parameters cannot be written.
    pub fn case(
        &self,
        (id, title): (String, String),
        better: Better,
        spec: &Spec,
        run_s: f64,
    ) -> Result<Case, LabError> {
        let is_steady = matches!(spec.work, Work::Steady { .. });
        let least_blocks = if is_steady { u32::MAX } else { LEAST_RUNS }.min(self.least_blocks);
        let slice_s = (self.slice_ms + self.settle_ms) as f64 / 1000.0;
        let until = Until { percent: self.until_percent, max_s: self.max_s, least_blocks };
        Ok(Case {
            id,
            title,
            unit: if better == Better::Higher { "1/s" } else { "s" }.to_owned(),
            better,
            arms: Vec::new(),
            baseline: Some(PLAIN.to_owned()),
            parameters: BTreeMap::from([
                ("spec".to_owned(), value_of("spec", spec)?),
                ("until".to_owned(), value_of("until", &until)?),
            ]),
            rounds: None,
            estimate_s: if is_steady { slice_s + 0.05 } else { run_s },
        })
    }
}

/// # Errors
/// [`LabError::Usage`]: what is wrong with a profile.
pub fn wrong<T>(profile: &Profile, what: &str) -> Result<T, LabError> {
    Err(LabError::Usage(format!("profile {}: {what}", profile.name)))
}

impl Sizes {
    fn slices(&self) -> Slices<'_> {
        Slices {
            slice_ms: self.slice_ms,
            settle_ms: self.settle_ms,
            until_percent: self.until_percent,
            max_s: self.max_s,
            least_blocks: self.least_blocks,
            suites: &self.suites,
            gocryptfs: self.gocryptfs,
        }
    }
}

/// The plan of a profile.
pub fn plan(profile: &Profile) -> Result<Plan, LabError> {
    let sizes: Sizes = profile.parameters()?;
    sizes.slices().check(profile)?;
    let cases = MEASURES.iter().map(|measure| case(measure, &sizes)).collect::<Result<_, _>>()?;
    Ok(sizes.slices().plan(super::NAME, profile, cases))
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
    let (work, run_s) = match measure.sample {
        Sample::Steady(load, clients) => (Work::Steady { load, clients }, 0.0),
        Sample::Sql(before, timed) => {
            let work = Work::Sql { before: owned(before), timed: owned(timed) };
            let statements = (before.len() + timed.len()) as f64;
            (work, million_rows * statements * 0.3 + 0.2)
        }
        Sample::Init => {
            let scale = sizes.init_scale;
            (Work::Init { scale }, 0.2 * f64::from(scale) + 0.3)
        }
    };
    let settings = PARALLEL.iter().chain(measure.settings).map(|s| (*s).to_owned()).collect();
    let spec = Spec {
        settings,
        work,
        cache: measure.cache.to_owned(),
        goal: Some(measure.goal),
        memory_limit_bytes: None,
    };
    let name = (measure.name.to_owned(), measure.what.to_owned());
    sizes.slices().case(name, measure.goal.better(), &spec, run_s)
}
