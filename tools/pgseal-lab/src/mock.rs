//! An executor that measures nothing, to test statistics, runner and reports.

use std::collections::BTreeMap;

#[cfg(test)]
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::plan::{Arm, Better, Case, Plan};
#[cfg(test)]
use crate::results::{Results, SCHEMA, Sample};
use crate::stats::SplitMix64;

/// The results of a finished run of this plan with these samples, on an unknown machine.
#[cfg(test)]
pub fn results_of(plan: Plan, samples: Vec<Sample>) -> Results {
    Results {
        schema: SCHEMA.to_owned(),
        experiment: plan.experiment.clone(),
        plan_hash: plan.plan_hash().unwrap_or_default(),
        samples,
        environment: Environment::default(),
        started_unix_s: 0,
        finished: true,
        warmups: Vec::new(),
        missing: Vec::new(),
        warnings: Vec::new(),
        ends: Vec::new(),
        command: format!("pgseal lab {}", plan.experiment),
        plan,
    }
}

/// Gives values of known ratios with known noise.
#[derive(Debug, Clone)]
pub struct Mock {
    /// The value of each arm without noise; an arm that is not in this map is reported as missing.
    pub values: BTreeMap<String, f64>,
    /// Largest relative deviation of a value, as a fraction.
    pub noise: f64,
    /// The steps taken, as `case/arm/round`; warm-ups as `case/arm/w0`.
    pub steps: Vec<String>,
    /// Fail with this error at this step, counted from 0.
    pub fail_at: Option<usize>,
    /// Cases that have begun and not yet ended.
    pub open: Vec<String>,
}

impl Mock {
    /// A mock without noise and failures.
    pub fn new<const N: usize>(values: [(&str, f64); N]) -> Self {
        Self {
            values: values.map(|(arm, value)| (arm.to_owned(), value)).into(),
            noise: 0.0,
            steps: Vec::new(),
            fail_at: None,
            open: Vec::new(),
        }
    }
}

/// A plan of arms a, a-again and b, and two cases.
pub fn plan(rounds: u32) -> Plan {
    let arm = |id: &str, again| Arm {
        id: id.to_owned(),
        title: format!("Arm {id}"),
        again,
        attributes: BTreeMap::new(),
    };
    let case = |id: &str, unit: &str, better| Case {
        id: id.to_owned(),
        title: format!("Case {id}"),
        unit: unit.to_owned(),
        better,
        arms: Vec::new(),
        baseline: None,
        parameters: BTreeMap::new(),
        rounds: None,
        estimate_s: 0.1,
    };
    Plan {
        experiment: "mock".to_owned(),
        profile: "tiny".to_owned(),
        arms: vec![arm("a", false), arm("a-again", true), arm("b", false)],
        cases: vec![case("rate", "1/s", Better::Higher), case("time", "s", Better::Lower)],
        rounds,
        warmups: 1,
        seed: 7,
        parameters: BTreeMap::new(),
    }
}

impl Executor for Mock {
    fn begin_case(&mut self, _: &Plan, case: &Case, _: &dyn Progress) -> Result<(), LabError> {
        self.open.push(case.id.clone());
        Ok(())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        if self.fail_at == Some(self.steps.len()) {
            return Err(LabError::Program {
                command: "mock".to_owned(),
                said: "told to fail".to_owned(),
            });
        }
        let Some(value) = self.values.get(&step.arm.id) else {
            return Err(LabError::missing(&*step.arm.id, "the mock has no value", "give it one"));
        };
        let mark = if step.warmup { "w" } else { "" };
        self.steps.push(format!("{}/{}/{mark}{}", step.case.id, step.arm.id, step.round));
        // The same step yields the same value, regardless of earlier steps.
        let name = format!("{}/{}", step.case.id, step.arm.id);
        let seed = name.bytes().fold(u64::from(step.round), |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let chance = SplitMix64(seed).below(2001) as f64 / 1000.0 - 1.0;
        Ok(Observation::of(value * (1.0 + self.noise * chance)))
    }

    fn end_case(&mut self, _: &Plan, case: &Case) -> Result<(), LabError> {
        self.open.retain(|open| *open != case.id);
        Ok(())
    }
}
