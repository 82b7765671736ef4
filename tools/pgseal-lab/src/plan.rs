//! What is measured: arms, cases, rounds. Two results can be compared only if their plans are
//! equal.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;

/// Version of the method. The version is part of every plan's hash; raise it when the same plan
/// would be measured differently.
pub const METHOD_VERSION: u32 = 1;

/// Everything that defines a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the profile: `tiny`, `quick`, `full`, or the name of a profile file.
    pub profile: String,
    /// The arms. The first is the baseline; an arm marked `again` is a second measurement of the
    /// baseline.
    pub arms: Vec<Arm>,
    /// The measurements that each arm takes.
    pub cases: Vec<Case>,
    /// How many rounds count.
    pub rounds: u32,
    /// How many warm-up rounds precede; they do not count.
    pub warmups: u32,
    /// Seed of the order of arms in each round.
    pub seed: u64,
    /// All other parameters that the figures depend on.
    pub parameters: BTreeMap<String, Value>,
}

/// One of the things that are compared: a server without TLS, a suite, an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Short name, unique in the plan.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Whether this arm is the plan's first arm measured again, for the noise floor (A/A).
    #[serde(default)]
    pub again: bool,
    /// Attributes for the executor.
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
}

/// Whether a higher or a lower value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Higher is better: throughput.
    Higher,
    /// Lower is better: time, bytes.
    Lower,
}

/// One measurement that every arm takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Short name, unique in the plan; `--only` takes it.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Unit of the value: `s`, `1/s`, `bytes/s`, `bytes`.
    pub unit: String,
    /// Whether a higher or a lower value is better.
    pub better: Better,
    /// Ids of the arms that take this case; empty: all.
    #[serde(default)]
    pub arms: Vec<String>,
    /// Id of the arm that the other arms are compared with; none: the first arm that takes the
    /// case.
    #[serde(default)]
    pub baseline: Option<String>,
    /// Parameters for the executor.
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
    /// Rounds, if not the plan's.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// Estimated seconds of one step, to estimate the remaining time.
    pub estimate_s: f64,
}

/// When a case that is measured in many short blocks ends: once the intervals are narrow, or the
/// time is up. It is the parameter `until` of the case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// The widest 95 % interval of a ratio to the baseline, in percent of the ratio.
    pub percent: f64,
    /// The time for the case, in seconds; no block begins later.
    pub max_s: f64,
    /// The fewest blocks, if there is time for them.
    pub least_blocks: u32,
}

impl Plan {
    /// SHA-256 (FIPS 180-4) in hexadecimal of the plan's canonical JSON (members sorted by name, no
    /// blanks) and the version of the method.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if JSON cannot represent the plan.
    pub fn plan_hash(&self) -> Result<String, LabError> {
        let plan = value_of("all of it", self)?;
        let mut text = format!("pgseal-lab method {METHOD_VERSION}\n");
        canonical(&plan, &mut text);
        let hash = digest(&SHA256, text.as_bytes());
        Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The arms that take a case, in the order of the plan.
    pub fn arms_of<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Arm> {
        self.arms.iter().filter(|arm| case.arms.is_empty() || case.arms.contains(&arm.id))
    }

    /// The arm that the other arms of a case are compared with.
    pub fn baseline_of<'a>(&'a self, case: &'a Case) -> Option<&'a Arm> {
        match &case.baseline {
            Some(id) => self.arm(id),
            None => self.arms_of(case).next(),
        }
    }

    /// The arm that is a second measurement of the plan's first arm.
    pub fn again(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.again)
    }

    /// The arm of this id.
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.id == id)
    }

    /// The case of this id.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Rounds of a case.
    pub fn rounds_of(&self, case: &Case) -> u32 {
        case.rounds.unwrap_or(self.rounds)
    }

    /// The estimated seconds of the whole plan.
    pub fn estimate_s(&self) -> f64 {
        self.cases.iter().map(|case| self.steps_of(case) * case.estimate_s).sum()
    }

    /// How many steps a case takes; if its intervals decide when it ends, as many as there is time
    /// for.
    pub fn steps_of(&self, case: &Case) -> f64 {
        let arms = self.arms_of(case).count() as f64;
        let most = arms * f64::from(self.rounds_of(case) + self.warmups);
        match case.until() {
            Ok(Some(until)) if case.estimate_s > 0.0 => most.min(until.max_s / case.estimate_s),
            _ => most,
        }
    }

    /// Whether each round goes through all cases, in random order, so that cases can be compared as
    /// well as arms. This is the parameter `interleave`, for cases that need no server of their
    /// own.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if the parameter is not a boolean.
    pub fn interleaved(&self) -> Result<bool, LabError> {
        Ok(self.parameter("interleave")?.unwrap_or(false))
    }

    /// A parameter of the plan as this type; none if the plan does not have it.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if it is not of this type.
    pub fn parameter<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LabError> {
        typed(&self.parameters, PLAN, name)
    }

    /// A parameter of the plan as this type.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if the plan does not have it, or it is not of this type.
    pub fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, LabError> {
        present(self.parameter(name)?, PLAN, name)
    }

    /// All parameters of the plan as one type of the experiment.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if they are not of this type.
    pub fn typed_parameters<T: DeserializeOwned>(&self) -> Result<T, LabError> {
        whole(&self.parameters, PLAN)
    }
}

impl Arm {
    /// An attribute as this type; none if the arm does not have it.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if it is not of this type.
    pub fn attribute<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LabError> {
        typed(&self.attributes, &self.place(), name)
    }

    /// An attribute as this type.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if the arm does not have it, or it is not of this type.
    pub fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, LabError> {
        present(self.attribute(name)?, &self.place(), name)
    }

    fn place(&self) -> String {
        format!("arm {}", self.id)
    }
}

impl Case {
    /// When the case ends, if its intervals decide that; none: after its rounds.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if the parameter has another form.
    pub fn until(&self) -> Result<Option<Until>, LabError> {
        self.parameter("until")
    }

    /// A parameter as this type; none if the case does not have it.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if it is not of this type.
    pub fn parameter<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LabError> {
        typed(&self.parameters, &self.place(), name)
    }

    /// A parameter as this type.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if the case does not have it, or it is not of this type.
    pub fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, LabError> {
        present(self.parameter(name)?, &self.place(), name)
    }

    /// All parameters of the case as one type of the experiment.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] if they are not of this type.
    pub fn typed_parameters<T: DeserializeOwned>(&self) -> Result<T, LabError> {
        whole(&self.parameters, &self.place())
    }

    fn place(&self) -> String {
        format!("case {}", self.id)
    }
}

/// The place that errors name for the plan itself.
const PLAN: &str = "the plan";

fn wrong(place: &str, name: &str, why: impl ToString) -> LabError {
    LabError::Plan { place: place.to_owned(), name: name.to_owned(), why: why.to_string() }
}

fn typed<T: DeserializeOwned>(
    from: &BTreeMap<String, Value>,
    place: &str,
    name: &str,
) -> Result<Option<T>, LabError> {
    let Some(value) = from.get(name) else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|error| wrong(place, name, error))
}

fn present<T>(found: Option<T>, place: &str, name: &str) -> Result<T, LabError> {
    found.ok_or_else(|| wrong(place, name, "missing"))
}

fn whole<T: DeserializeOwned>(from: &BTreeMap<String, Value>, place: &str) -> Result<T, LabError> {
    let members = from.clone().into_iter().collect();
    serde_json::from_value(Value::Object(members))
        .map_err(|error| wrong(place, "parameters", error))
}

/// Converts a value of an experiment's own type to a JSON value for a plan.
///
/// # Errors
///
/// [`LabError::Plan`] if JSON cannot represent it.
pub fn value_of<T: Serialize>(name: &str, value: &T) -> Result<Value, LabError> {
    serde_json::to_value(value).map_err(|error| wrong(PLAN, name, error))
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (place, (name, member)) in sorted.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                canonical(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
