//! The results as stored in `results.json`, described in `spec/lab-report.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::plan::Plan;
use crate::warning::Warning;

/// Version of the schema.
pub const SCHEMA: &str = "pgseal-lab/1";

/// The results of one run of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// The plan that was measured.
    pub plan: Plan,
    /// [`Plan::plan_hash`].
    pub plan_hash: String,
    /// The command line that repeats this measurement.
    #[serde(default)]
    pub command: String,
    /// The machine before the first step.
    pub environment: Environment,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// Whether all steps of the plan are done or known to be missing.
    pub finished: bool,
    /// Values that count, in the order of measurement.
    pub samples: Vec<Sample>,
    /// Values of warm-ups, which do not count.
    #[serde(default)]
    pub warmups: Vec<Sample>,
    /// The cases and arms that could not be measured here, and why.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// Reasons to trust the figures less.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Why the cases ended whose intervals decide when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
}

/// Why a case ended whose intervals decide when it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Id of the case.
    pub case: String,
    /// What was reached.
    pub because: Because,
    /// Blocks that were measured.
    pub blocks: u32,
    /// Width of the widest 95 % interval, in percent of its ratio; none: there is no interval.
    pub width_percent: Option<f64>,
    /// Time that the blocks took, in seconds; of a run that was resumed, since it was.
    pub took_s: f64,
}

/// What ended a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// All intervals are as narrow as asked.
    Narrow,
    /// The time for the case is up.
    TimeUp,
    /// All rounds of the plan were measured.
    Rounds,
}

impl Because {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Narrow => "narrow enough",
            Self::TimeUp => "time is up",
            Self::Rounds => "all blocks done",
        }
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Id of the case.
    pub case: String,
    /// Id of the arm.
    pub arm: String,
    /// Round, from 0.
    pub round: u32,
    /// Place of the step in its round, from 0.
    pub place: u32,
    /// The value, in the case's unit.
    pub value: f64,
    /// Further figures, units in their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// What the step verified.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Load average of the last minute before the step.
    pub load: f64,
    /// Seconds of the whole step, including preparation.
    pub step_s: f64,
}

/// A case or arm that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Id of the case.
    pub case: String,
    /// Id of the arm; none: the whole case.
    pub arm: Option<String>,
    /// What is missing.
    pub what: String,
    /// How that was found out.
    pub why: String,
    /// What to install or configure.
    pub remedy: String,
}

impl Results {
    /// The counted samples of one arm in one case, in the order of the rounds.
    pub fn of<'a>(&'a self, case: &'a str, arm: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.case == case && sample.arm == arm)
    }

    /// Number of rounds after which the time limit ended the run; none: the limit did not end it.
    pub fn stopped_after(&self) -> Option<u32> {
        self.warnings.iter().find_map(|warning| match warning {
            Warning::TimeUp { rounds, .. } => Some(*rounds),
            _ => None,
        })
    }

    /// Rounds of the plan, or fewer if the time limit ended the run; of cases whose intervals
    /// decide when they end, the fewest blocks.
    pub fn rounds_done(&self) -> u32 {
        let fewest = self.ends.iter().map(|end| end.blocks).min();
        self.stopped_after().or(fewest).unwrap_or(self.plan.rounds)
    }

    /// Why a case ended, if it did and its intervals decide when.
    pub fn end_of(&self, case: &str) -> Option<&End> {
        self.ends.iter().find(|end| end.case == case)
    }

    /// Why an arm is missing in a case, if it is.
    pub fn missing_of(&self, case: &str, arm: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| {
            missing.case == case && missing.arm.as_deref().is_none_or(|id| id == arm)
        })
    }
}
