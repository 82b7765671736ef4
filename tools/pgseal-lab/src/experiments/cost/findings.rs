//! The summary in words, and the first screen.

use super::Costs;
use super::goal::Judged;
use super::plan::Specs;
use crate::analysis::Analysis;
use crate::answer::{Answer, Question, Subject};
use crate::exhibits::Finding;
use crate::experiments::instance::figures::suites;
use crate::plan::{Arm, Case};
use crate::report::format::significant;
use crate::results::Results;

/// Whether a sealed arm meets the aim of a case; none where it was not measured.
pub fn judged(specs: &Specs, analysis: &Analysis, case: &Case, arm: &str) -> Option<Judged> {
    let ratio = analysis.arm(&case.id, arm)?.ratio?;
    let goal = specs.of_case(case)?.goal?;
    Some(goal.judge(arm, ratio, analysis.case(&case.id)?.noise))
}

/// What the data say.
pub fn findings(results: &Results, analysis: &Analysis, specs: &Specs) -> Vec<Finding> {
    let suites = || suites(&results.plan);
    let mut all: Vec<Finding> =
        suites().flat_map(|arm| aims(results, analysis, specs, arm)).collect();
    all.extend(suites().filter_map(|arm| cpu(results, analysis, arm)));
    all
}

/// The first screen: the first suite in every case.
pub fn answer(results: &Results, analysis: &Analysis) -> Option<Answer> {
    let arm = suites(&results.plan).next()?;
    let cases = results.plan.cases.iter().map(|case| (case.id.as_str(), case.title.as_str(), None));
    let (subject, experiment, base) = (Subject::Instance, &Costs, "plain");
    let study = "none, see docs/costs.md".to_owned();
    let (arm, cases) = ((arm, arm.id.as_str()), cases.collect());
    Question { subject, experiment, results, analysis, base, arm, cases, study }.answer()
}

/// How many aims a suite misses, and each of these.
fn aims(results: &Results, analysis: &Analysis, specs: &Specs, arm: &Arm) -> Vec<Finding> {
    let cases = results.plan.cases.iter();
    let found: Vec<(&Case, Judged)> =
        cases.filter_map(|case| Some((case, judged(specs, analysis, case, &arm.id)?))).collect();
    let missed: Vec<&(&Case, Judged)> = found.iter().filter(|(_, judged)| !judged.met).collect();
    let mut all = match (found.is_empty(), missed.len()) {
        (true, _) => Vec::new(),
        (false, 0) => vec![format!("{} meets all {} aims.", arm.id, found.len())],
        (false, some) if some == found.len() => {
            vec![format!("{} meets none of {some} aims.", arm.id)]
        }
        (false, some) => vec![format!("{} meets all aims but {some}.", arm.id)],
    };
    all.extend(missed.iter().filter_map(|(case, judged)| {
        let cost = analysis.cost(case, &arm.id)?;
        let closely = if judged.close { " closely" } else { "" };
        let (arm, case) = (&arm.id, &case.id);
        Some(match cost.differs() {
            true => format!(
                "{arm} misses the aim of {case}{closely}, with {:.1} % more time than plain.",
                cost.percent()
            ),
            false => format!("{arm} misses the aim of {case}{closely}: {}.", cost.words()),
        })
    }));
    all.into_iter().map(Finding::new).collect()
}

/// The most of the server's CPU time, where it was long enough to be counted.
fn cpu(results: &Results, analysis: &Analysis, arm: &Arm) -> Option<Finding> {
    let ratio = |case: &Case| {
        let found = analysis.arm(&case.id, &arm.id).filter(|found| found.withheld.is_none())?;
        let ratio = found.extra_ratio.get("server_cpu_s_per_op")?.value;
        ratio.is_finite().then(|| (ratio, case.id.clone()))
    };
    let found = results.plan.cases.iter().filter_map(ratio);
    let (most, case) = found.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(Finding::new(format!(
        "{}: the server's CPU time grows most in {case}, to {} times that of plain.",
        arm.id,
        significant(most)
    )))
}
