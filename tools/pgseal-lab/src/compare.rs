//! Compares two runs of the same plan.

use serde::Serialize;

use crate::analysis::{Analysis, CaseAnalysis, Verdict};
use crate::cost::Cost;
use crate::environment::Environment;
use crate::error::LabError;
use crate::plan::Case;
use crate::results::Results;
use crate::stats::{Ratio, ratio_of_ratios, ratio_of_runs};

/// The comparison of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the experiment.
    pub experiment: String,
    /// The hash of the common plan.
    pub plan_hash: String,
    /// Differences between the machines: name, value in the first run, value in the second run.
    pub differing: Vec<(String, String, String)>,
    /// In the order of the plan.
    pub rows: Vec<Row>,
}

/// One arm in one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Id of the case.
    pub case: String,
    /// Id of the arm.
    pub arm: String,
    /// Unit of the medians.
    pub unit: String,
    /// Median of the first run.
    pub first: f64,
    /// Median of the second run.
    pub second: f64,
    /// Median of the second run over the first. The machine itself drifts between runs, see
    /// `against_baseline`.
    pub ratio: Ratio,
    /// The arm's ratio to its baseline in the second run over the same ratio in the first run. This
    /// cancels changes in the speed of the whole machine. None for the baseline.
    pub against_baseline: Option<Ratio>,
    /// The verdict on `against_baseline`, with the wider noise floor of the two runs. A baseline
    /// has none: another speed of it is another speed of the machine.
    pub verdict: Verdict,
    /// The wider noise floor of the two runs.
    pub noise_floor: f64,
    /// `against_baseline` as a cost in time: above 1 is more in the second run.
    pub times: Option<f64>,
}

/// How many rows of a comparison have which verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// More cost in the second run.
    pub worse: usize,
    /// Less cost.
    pub better: usize,
    /// No difference that could be told from noise.
    pub same: usize,
    /// Too few rounds for a verdict.
    pub too_few: usize,
}

impl Summary {
    /// `Summary: 1 worse, 0 better, 33 not distinguishable.`
    pub fn words(self) -> String {
        let few = match self.too_few {
            0 => String::new(),
            few => format!(", {few} with too few rounds to tell"),
        };
        let Summary { worse, better, same, .. } = self;
        format!("Summary: {worse} worse, {better} better, {same} not distinguishable{few}.")
    }
}

impl Comparison {
    /// Compares two runs.
    ///
    /// # Errors
    ///
    /// [`LabError::OtherExperiment`], [`LabError::OtherPlan`] unless both runs have the same plan.
    pub fn of(
        (first, first_path): (&Results, &std::path::Path),
        (second, _): (&Results, &std::path::Path),
    ) -> Result<Self, LabError> {
        if first.experiment != second.experiment {
            return Err(LabError::OtherExperiment {
                first: first.experiment.clone(),
                second: second.experiment.clone(),
            });
        }
        if first.plan_hash != second.plan_hash {
            return Err(LabError::OtherPlan {
                path: first_path.to_owned(),
                theirs: first.plan_hash.clone(),
                ours: second.plan_hash.clone(),
            });
        }
        let analyses = (Analysis::of(first), Analysis::of(second));
        let mut rows = Vec::new();
        for case in &first.plan.cases {
            let (Some(one), Some(two)) = (analyses.0.case(&case.id), analyses.1.case(&case.id))
            else {
                continue;
            };
            rows.extend(rows_of((first, one), (second, two), case));
        }
        Ok(Self {
            experiment: first.experiment.clone(),
            plan_hash: first.plan_hash.clone(),
            differing: differing(&first.environment, &second.environment),
            rows,
        })
    }

    /// How many rows have which verdict, baselines left out.
    pub fn summary(&self) -> Summary {
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        Summary {
            worse: count(Verdict::Worse),
            better: count(Verdict::Better),
            same: count(Verdict::NoDifference),
            too_few: count(Verdict::TooFew),
        }
    }

    /// Whether an arm is worse in the second run, beyond the noise.
    pub fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Worse)
    }
}

fn rows_of(
    (first, one): (&Results, &CaseAnalysis),
    (second, two): (&Results, &CaseAnalysis),
    case: &Case,
) -> Vec<Row> {
    let values = |results: &Results, arm: &str| -> Vec<f64> {
        results.of(&case.id, arm).map(|sample| sample.value).collect()
    };
    let floor = one.noise_floor.max(two.noise_floor);
    let again = first.plan.again().map(|arm| arm.id.as_str());
    let row = |arm: &str| {
        let (before, after) = (values(first, arm), values(second, arm));
        if before.is_empty() || after.is_empty() || Some(arm) == again {
            return None;
        }
        let ratio = ratio_of_runs(&after, &before);
        let against_baseline = (arm != one.baseline).then(|| {
            let bases = (values(first, &one.baseline), values(second, &one.baseline));
            ratio_of_ratios((&after, &bases.1), (&before, &bases.0))
        });
        let cost = against_baseline.map(|ratio| Cost::new(ratio, case.better, floor));
        Some(Row {
            case: case.id.clone(),
            arm: arm.to_owned(),
            unit: case.unit.clone(),
            first: one.arm(arm)?.median,
            second: two.arm(arm)?.median,
            ratio,
            against_baseline,
            verdict: cost.map_or(Verdict::Baseline, |cost| cost.verdict),
            noise_floor: floor,
            times: cost.map(|cost| cost.times),
        })
    };
    first.plan.arms_of(case).filter_map(|arm| row(&arm.id)).collect()
}

/// Differences that may explain different figures; without load and time, which always differ.
fn differing(first: &Environment, second: &Environment) -> Vec<(String, String, String)> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let of = |machine: &Environment| {
        [
            ("CPU", machine.cpu_model.clone()),
            ("CPU flags", machine.cpu_flags.join(" ")),
            ("CPUs", machine.cpus.to_string()),
            ("governor", or_none(&machine.governor)),
            ("kernel", machine.kernel.clone()),
            ("file system", machine.file_system.clone()),
            ("PostgreSQL", machine.postgresql.join("; ")),
            ("OpenSSL", or_none(&machine.openssl)),
            ("pgseal", machine.pgseal.clone()),
        ]
    };
    of(first)
        .into_iter()
        .zip(of(second))
        .filter(|((_, before), (_, after))| before != after)
        .map(|((name, before), (_, after))| (name.to_owned(), before, after))
        .collect()
}
