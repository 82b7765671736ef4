//! The measured figures that the recommendations use.

use crate::analysis::ratio_between;
use crate::cost::{Cost, change};
use crate::error::LabError;
use crate::experiments::modes::figures::Figures;
use crate::plan::{Arm, Case};
use crate::report::Entry;

/// The results of all experiments that were read.
pub struct Evidence<'a> {
    entries: &'a [Entry],
    modes: Option<Figures<'a>>,
}

/// Why nothing can be derived from the results of an experiment; none: it can.
pub fn unfit(entry: &Entry) -> Option<String> {
    let name = &entry.results.experiment;
    let noise = entry.analysis.noise();
    match noise.filter(|_| entry.analysis.is_too_noisy()) {
        Some(noise) => Some(format!(
            "{name} decides nothing: the machine was too noisy in {} of {} cases (up to {:.0} %, in {}). \
             Measure again with --wait-quiet.",
            noise.noisy, noise.cases, noise.worst_percent, noise.worst
        )),
        None if entry.results.rounds_done() < 2 => Some(format!(
            "{name} decides nothing: one round has no interval. Measure in the profile quick or full."
        )),
        None => None,
    }
}

/// A cost with its interval, in the one unit of all advice: `+12.3 % time (+10.1 to +14.2 %)`,
/// `not distinguishable (noise 18 %)`.
pub fn words(cost: &Cost) -> String {
    match cost.differs() {
        true if cost.interval().is_empty() => time(cost.times),
        true => format!("{} ({})", time(cost.times), cost.interval()),
        false => cost.words(),
    }
}

/// `+12.3 % time`, `3.10 times the time`.
pub fn time(times: f64) -> String {
    let change = change(times);
    let the = if change.ends_with("times") { " the" } else { "" };
    format!("{change}{the} time")
}

impl<'a> Evidence<'a> {
    /// Collects the evidence from results.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a plan that its experiment does not understand.
    pub fn of(entries: &'a [Entry]) -> Result<Evidence<'a>, LabError> {
        let mut evidence = Evidence { entries, modes: None };
        if let Some(entry) = evidence.entry("modes") {
            evidence.modes = Some(Figures::of(&entry.results)?);
        }
        Ok(evidence)
    }

    /// The results of an experiment, if something can be derived from them.
    pub fn entry(&self, experiment: &str) -> Option<&'a Entry> {
        self.all(experiment).filter(|entry| unfit(entry).is_none())
    }

    /// Why nothing can be derived from the results of an experiment that was measured.
    pub fn unfit(&self, experiment: &str) -> Option<String> {
        self.all(experiment).and_then(unfit)
    }

    fn all(&self, experiment: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.results.experiment == experiment)
    }

    /// The figures of the bare ciphers.
    pub fn modes(&self) -> Option<&Figures<'a>> {
        self.modes.as_ref()
    }
}

/// Compares an arm with another in a case; none if they have no common rounds, or if the figure is
/// withheld.
pub fn effect(entry: &Entry, case: &Case, arm: &str, against: &str) -> Option<Cost> {
    let found = entry.analysis.case(&case.id)?;
    let withheld = |arm: &str| found.arm(arm).is_some_and(|arm| arm.withheld.is_some());
    if withheld(arm) || withheld(against) {
        return None;
    }
    let ratio = ratio_between(&entry.results, &case.id, arm, against)?;
    Some(Cost::new(ratio, case.better, found.noise_floor))
}

/// Geometric mean of costs; none for an empty slice.
pub fn mean(costs: &[Cost]) -> Option<f64> {
    if costs.is_empty() {
        return None;
    }
    let logs: f64 = costs.iter().map(|cost| cost.times.ln()).sum();
    Some((logs / costs.len() as f64).exp())
}

/// Arms that were measured in a case, without the plan's first arm and its second measurement.
pub fn arms_in<'a>(entry: &'a Entry, case: &Case) -> Vec<&'a Arm> {
    let plan = &entry.results.plan;
    let measured = |arm: &&Arm| {
        !arm.again && entry.analysis.arm(&case.id, &arm.id).is_some_and(|found| found.n > 0)
    };
    let takes = |arm: &&Arm| case.arms.is_empty() || case.arms.contains(&arm.id);
    plan.arms.iter().skip(1).filter(takes).filter(measured).collect()
}
