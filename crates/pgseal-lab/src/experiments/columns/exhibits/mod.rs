//! Findings, tables and charts, from the recorded data alone.

mod charts;
mod findings;
mod tables;

use super::plan::{AGAIN, with_keys};
use super::study::Study;
use crate::analysis::{Analysis, ArmAnalysis};
use crate::exhibits::Exhibits;
use crate::plan::{Arm, Case};
use crate::results::{Results, Sample};
use crate::stats::median;

/// All exhibits.
pub fn of(results: &Results, analysis: &Analysis) -> Exhibits {
    let data = Data { results, analysis, study: Study::published() };
    Exhibits {
        findings: findings::all(&data),
        tables: tables::all(&data),
        charts: charts::all(&data),
    }
}

/// What exhibits are made of.
struct Data<'a> {
    results: &'a Results,
    analysis: &'a Analysis,
    study: Study,
}

impl Data<'_> {
    /// The arms of a case but the baseline and its second measurement.
    fn others(&self, case: &str) -> Vec<&Arm> {
        let plan = &self.results.plan;
        let Some(case) = plan.case(case) else { return Vec::new() };
        plan.arms_of(case).filter(|arm| arm.id != "plain" && arm.id != AGAIN).collect()
    }

    /// What was measured of an arm.
    fn arm(&self, case: &str, arm: &str) -> Option<&ArmAnalysis> {
        self.analysis.arm(case, arm).filter(|found| found.n > 0)
    }

    fn median(&self, case: &str, arm: &str) -> Option<f64> {
        self.analysis.median(case, arm)
    }

    /// Median over the baseline's median; 1 for the baseline.
    fn ratio(&self, case: &str, arm: &str) -> Option<f64> {
        if arm == "plain" {
            return self.median(case, arm).map(|_| 1.0);
        }
        Some(self.arm(case, arm)?.ratio.as_ref()?.value)
    }

    /// Median of a further figure.
    fn extra(&self, case: &str, arm: &str, name: &str) -> Option<f64> {
        let values: Vec<f64> = self
            .results
            .of(case, arm)
            .filter_map(|sample| sample.extra.get(name).copied())
            .collect();
        (!values.is_empty()).then(|| median(&values))
    }

    fn first(&self, case: &str, arm: &str) -> Option<&Sample> {
        self.results.samples.iter().find(|sample| sample.case == case && sample.arm == arm)
    }

    /// Whether a load ended at its budget; then the share that was measured.
    fn extrapolated(&self, case: &str, arm: &str) -> Option<f64> {
        self.extra(case, arm, "measured_share").filter(|share| *share < 1.0)
    }

    /// Ids of the cases of queries, with or without keys, in order.
    fn queries(&self, keys: bool) -> Vec<&Case> {
        let is_query = |case: &&Case| {
            case.parameters.get("work").is_some_and(|work| work == "query")
                && with_keys(case) == keys
        };
        self.results.plan.cases.iter().filter(is_query).collect()
    }

    /// Geometric mean of an arm's ratios over the queries that it answered, and their number.
    fn mean_ratio(&self, keys: bool, arm: &str) -> Option<(f64, usize)> {
        let logs: Vec<f64> = self
            .queries(keys)
            .iter()
            .filter_map(|case| self.ratio(&case.id, arm))
            .filter(|ratio| *ratio > 0.0)
            .map(f64::ln)
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (!logs.is_empty()).then(|| (mean.exp(), logs.len()))
    }

    /// The study's mean: of the rounds, the largest and the smallest are dropped, if there are three
    /// or more.
    fn trimmed_mean(&self, case: &str, arm: &str) -> Option<f64> {
        let values: Vec<f64> = self.results.of(case, arm).map(|sample| sample.value).collect();
        trimmed_mean(&values)
    }

    fn title(&self, arm: &str) -> String {
        self.results.plan.arm(arm).map_or_else(|| arm.to_owned(), |arm| arm.title.clone())
    }
}

fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let kept = if sorted.len() >= 3 { sorted.get(1..sorted.len() - 1)? } else { &sorted };
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// `4.1 times`.
fn times(ratio: f64) -> String {
    match ratio {
        ..10.0 => format!("{ratio:.2} times"),
        ..100.0 => format!("{ratio:.1} times"),
        _ => format!("{ratio:.0} times"),
    }
}

/// `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_study_drops_the_largest_and_the_smallest() {
        assert_eq!(trimmed_mean(&[9.0, 2.0, 3.0, 4.0, 0.0]), Some(3.0));
        assert_eq!(trimmed_mean(&[2.0, 4.0]), Some(3.0));
        assert_eq!(trimmed_mean(&[]), None);
    }

    #[test]
    fn words() {
        assert_eq!(listed(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(
            (times(4.117), times(43.63), times(640.2)),
            ("4.12 times".into(), "43.6 times".into(), "640 times".into())
        );
    }
}
