//! The summary in words.

use super::goal::Judged;
use super::plan::Specs;
use crate::analysis::Analysis;
use crate::exhibits::Finding;
use crate::experiments::instance::figures::{Cost, suites};
use crate::plan::{Arm, Case};
use crate::results::Results;

/// Whether a sealed arm meets the aim of a case; none where it was not measured.
pub fn judged(specs: &Specs, analysis: &Analysis, case: &Case, arm: &str) -> Option<Judged> {
    let ratio = analysis.arm(&case.id, arm)?.ratio?;
    let goal = specs.of_case(case)?.goal;
    Some(goal.judge(arm, ratio, analysis.case(&case.id)?.noise))
}

/// What the data say.
pub fn findings(results: &Results, analysis: &Analysis, specs: &Specs) -> Vec<Finding> {
    let suites = || suites(&results.plan);
    let mut all: Vec<Finding> =
        suites().filter_map(|arm| aims(results, analysis, specs, arm)).collect();
    all.extend(suites().filter_map(|arm| costs(results, analysis, arm)));
    all.extend(suites().filter_map(|arm| cpu(results, analysis, arm)));
    all.extend(noise(results, analysis));
    all
}

/// How many aims a suite meets, and those it misses.
fn aims(results: &Results, analysis: &Analysis, specs: &Specs, arm: &Arm) -> Option<Finding> {
    let cases = || results.plan.cases.iter();
    let found: Vec<(&Case, Judged)> =
        cases().filter_map(|case| Some((case, judged(specs, analysis, case, &arm.id)?))).collect();
    if found.is_empty() {
        return None;
    }
    let missed: Vec<String> = found
        .iter()
        .filter(|(_, judged)| !judged.met)
        .filter_map(|(case, judged)| {
            let ratio = analysis.arm(&case.id, &arm.id)?.ratio?;
            let aim = specs.of_case(case)?.goal.words(&arm.id);
            let closely = if judged.close { ", closely" } else { "" };
            Some(format!("{} ({:.2}, aim {aim}{closely})", case.id, ratio.value))
        })
        .collect();
    let met = found.len() - missed.len();
    let rest = match missed.is_empty() {
        true => String::new(),
        false => format!("; missed: {}", missed.join(", ")),
    };
    let of = found.len();
    Some(Finding::new(format!("{} meets {met} of {of} aims{rest}.", arm.id)))
}

/// What a suite costs in each case.
fn costs(results: &Results, analysis: &Analysis, arm: &Arm) -> Option<Finding> {
    let parts: Vec<String> = results
        .plan
        .cases
        .iter()
        .filter_map(|case| {
            let cost = Cost::of(analysis, case, &arm.id)?;
            Some(format!("{} {}", case.id, cost.words()))
        })
        .collect();
    let words = || format!("{} costs in throughput or time: {}.", arm.id, parts.join("; "));
    (!parts.is_empty()).then(|| Finding::new(words()))
}

/// The server's CPU time, where it was long enough to be counted.
fn cpu(results: &Results, analysis: &Analysis, arm: &Arm) -> Option<Finding> {
    let parts: Vec<String> = results
        .plan
        .cases
        .iter()
        .filter_map(|case| {
            let found = analysis.arm(&case.id, &arm.id)?;
            let ratio = found.extra_ratio.get("server_cpu_s_per_op")?;
            ratio.value.is_finite().then(|| format!("{} {:.2}", case.id, ratio.value))
        })
        .collect();
    let words = || format!("{}: CPU time of the server, to plain: {}.", arm.id, parts.join(", "));
    (!parts.is_empty()).then(|| Finding::new(words()))
}

/// The plain server against itself.
fn noise(results: &Results, analysis: &Analysis) -> Option<Finding> {
    let parts: Vec<String> = results
        .plan
        .cases
        .iter()
        .filter_map(|case| {
            let noise = analysis.case(&case.id)?.noise?;
            let interval = if noise.low.is_finite() {
                format!(" ({:.2} to {:.2})", noise.low, noise.high)
            } else {
                String::new()
            };
            Some(format!("{} {:.2}{interval}", case.id, noise.value))
        })
        .collect();
    let words = || format!("The plain server against itself (A/A): {}.", parts.join(", "));
    (!parts.is_empty()).then(|| Finding::new(words()))
}
