//! Findings, tables and charts, computed only from the recorded data.

mod charts;
mod findings;
mod tables;

use std::collections::BTreeSet;

use super::plan::{AGAIN, Parameters, with_keys};
use super::study::Study;
use crate::analysis::{Analysis, ArmAnalysis};
use crate::error::LabError;
use crate::exhibits::Exhibits;
use crate::plan::{Arm, Case};
use crate::results::{Results, Sample};
use crate::stats::median;

/// All exhibits.
///
/// # Errors
///
/// [`LabError::Plan`] for a plan of another experiment.
pub fn of(results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
    let mut keyed = BTreeSet::new();
    for case in &results.plan.cases {
        if with_keys(case)? {
            keyed.insert(case.id.as_str());
        }
    }
    let parameters: Parameters = results.plan.typed_parameters()?;
    let study = Study::published();
    let data = Data { results, analysis, keyed, micro_rows: parameters.micro_rows, study };
    Ok(Exhibits {
        findings: findings::all(&data),
        tables: tables::all(&data),
        charts: charts::all(&data),
        answer: findings::answer(&data),
    })
}

/// The data that the exhibits are made from.
struct Data<'a> {
    results: &'a Results,
    analysis: &'a Analysis,
    /// Ids of the cases with primary and foreign keys.
    keyed: BTreeSet<&'a str>,
    /// Number of values in the microbenchmark.
    micro_rows: u64,
    study: Study,
}

impl<'a> Data<'a> {
    /// The arms of a case, without the baseline and its second measurement.
    fn others(&self, case: &str) -> Vec<&'a Arm> {
        let plan = &self.results.plan;
        let Some(case) = plan.case(case) else { return Vec::new() };
        plan.arms_of(case).filter(|arm| arm.id != "plain" && arm.id != AGAIN).collect()
    }

    /// The analysis of an arm.
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

    /// The measured share of a load that ended at its time budget; none: the load was complete.
    fn extrapolated(&self, case: &str, arm: &str) -> Option<f64> {
        self.extra(case, arm, "measured_share").filter(|share| *share < 1.0)
    }

    /// Ids of the cases of queries, with or without keys, in order.
    fn queries(&self, keys: bool) -> Vec<&'a Case> {
        let is_query = |case: &&Case| {
            case.parameters.get("work").is_some_and(|work| work == "query")
                && self.keyed.contains(case.id.as_str()) == keys
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

    /// The mean as the study computed it: with three rounds or more, without the largest and the
    /// smallest.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_study_drops_the_largest_and_the_smallest() {
        assert_eq!(trimmed_mean(&[9.0, 2.0, 3.0, 4.0, 0.0]), Some(3.0));
        assert_eq!(trimmed_mean(&[2.0, 4.0]), Some(3.0));
        assert_eq!(trimmed_mean(&[]), None);
    }
}
