//! What is measured: arms, cases, rounds. Two results compare only if their plans are the same.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the method. It is part of every plan's hash; it goes up when the same plan would be
/// measured in another way.
pub const METHOD_VERSION: u32 = 1;

/// All that defines what is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the experiment: `modes`, `tls`, `instance`, `columns`.
    pub experiment: String,
    /// Name of the profile: `tiny`, `quick`, `full`, or of a file.
    pub profile: String,
    /// The first is the baseline; one that is marked `again` is the baseline once more.
    pub arms: Vec<Arm>,
    /// What is measured of each arm.
    pub cases: Vec<Case>,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds before, which do not count.
    pub warmups: u32,
    /// Seed of the order of arms in each round.
    pub seed: u64,
    /// All else that the figures depend on.
    pub parameters: BTreeMap<String, Value>,
}

/// One thing to compare: a server without TLS, a suite, an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Short name, unique in the plan.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Whether this is the plan's first arm once more: the noise floor (A/A).
    #[serde(default)]
    pub again: bool,
    /// What the executor needs to know of it.
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Time, bytes.
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
    /// Which way is good.
    pub better: Better,
    /// Ids of the arms that take it; empty: all.
    #[serde(default)]
    pub arms: Vec<String>,
    /// Id of the arm that the others are held against; none: the first of those that take it.
    #[serde(default)]
    pub baseline: Option<String>,
    /// What the executor needs to know of it.
    #[serde(default)]
    pub parameters: BTreeMap<String, Value>,
    /// Rounds, if not the plan's.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// About how long one step takes, in seconds; for the time left.
    pub estimate_s: f64,
}

impl Plan {
    /// SHA-256 (FIPS 180-4) in hexadecimal of the plan's canonical JSON (members sorted by name, no
    /// blanks) and the version of the method.
    pub fn plan_hash(&self) -> String {
        let plan = serde_json::to_value(self).unwrap_or(Value::Null);
        let mut text = format!("pgseal-lab method {METHOD_VERSION}\n");
        canonical(&plan, &mut text);
        digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The arms that take a case, in the order of the plan.
    pub fn arms_of<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Arm> {
        self.arms.iter().filter(|arm| case.arms.is_empty() || case.arms.contains(&arm.id))
    }

    /// The arm that a case's other arms are held against.
    pub fn baseline_of<'a>(&'a self, case: &'a Case) -> Option<&'a Arm> {
        match &case.baseline {
            Some(id) => self.arm(id),
            None => self.arms_of(case).next(),
        }
    }

    /// The arm that is the plan's first once more.
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

    /// About how long all of it takes, in seconds.
    pub fn estimate_s(&self) -> f64 {
        let steps = |case: &Case| {
            self.arms_of(case).count() as f64 * f64::from(self.rounds_of(case) + self.warmups)
        };
        self.cases.iter().map(|case| steps(case) * case.estimate_s).sum()
    }

    /// Whether a round goes through all cases, in random order, before the next one begins, so that
    /// cases compare as well as arms: the parameter `interleave`, for cases that need no server of
    /// their own.
    pub fn interleaved(&self) -> bool {
        self.parameter("interleave").unwrap_or(false)
    }

    /// A parameter of the plan as this type.
    pub fn parameter<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        typed(&self.parameters, name)
    }
}

impl Arm {
    /// An attribute as this type.
    pub fn attribute<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        typed(&self.attributes, name)
    }
}

impl Case {
    /// A parameter as this type.
    pub fn parameter<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        typed(&self.parameters, name)
    }
}

fn typed<T: serde::de::DeserializeOwned>(from: &BTreeMap<String, Value>, name: &str) -> Option<T> {
    serde_json::from_value(from.get(name)?.clone()).ok()
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
