//! The measured figures that the recommendations use.

use crate::analysis::{Verdict, judge, ratio_between};
use crate::error::LabError;
use crate::experiments::modes::figures::Figures;
use crate::plan::{Arm, Better, Case};
use crate::report::Entry;
use crate::stats::Ratio;

/// The results of all experiments that were read.
pub struct Evidence<'a> {
    entries: &'a [Entry],
    modes: Option<Figures<'a>>,
}

/// The comparison of two arms in one case, as a slowdown: above 1 is always slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Ratio of times, or inverse ratio of throughputs; above 1 is slower.
    pub slowdown: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// The verdict, given the noise floor; worse is slower.
    pub verdict: Verdict,
}

impl Effect {
    /// Whether the difference is more than noise.
    pub fn differs(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }

    /// `12.3 % slower (95 %: 10.1 to 14.2)`, or that there is no difference.
    pub fn words(&self) -> String {
        let percent = |value: f64| (value - 1.0) * 100.0;
        let interval = if self.low.is_finite() && self.high.is_finite() {
            format!(" (95 %: {:+.1} to {:+.1})", percent(self.low), percent(self.high))
        } else {
            " (too few rounds for an interval)".to_owned()
        };
        match self.verdict {
            Verdict::NoDifference => format!("no difference beyond the noise{interval}"),
            _ if self.slowdown >= 3.0 => format!("{:.1} times as slow", self.slowdown),
            _ if self.slowdown >= 1.0 => {
                format!("{:.1} % slower{interval}", percent(self.slowdown))
            }
            _ => format!("{:.1} % faster{interval}", -percent(self.slowdown)),
        }
    }
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

    /// The results of an experiment.
    pub fn entry(&self, experiment: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.results.experiment == experiment)
    }

    /// The figures of the bare ciphers.
    pub fn modes(&self) -> Option<&Figures<'a>> {
        self.modes.as_ref()
    }
}

/// Compares an arm with another in a case; none if they have no common rounds.
pub fn effect(entry: &Entry, case: &Case, arm: &str, against: &str) -> Option<Effect> {
    let ratio = ratio_between(&entry.results, &case.id, arm, against)?;
    let floor = entry.analysis.case(&case.id).map_or(1.0, |found| found.noise_floor);
    Some(effect_of(ratio, case.better, floor))
}

/// Converts a ratio to a slowdown.
pub fn effect_of(ratio: Ratio, better: Better, floor: f64) -> Effect {
    let verdict = judge(ratio, better, floor);
    match better {
        Better::Lower => {
            Effect { slowdown: ratio.value, low: ratio.low, high: ratio.high, verdict }
        }
        Better::Higher => Effect {
            slowdown: 1.0 / ratio.value,
            low: 1.0 / ratio.high,
            high: 1.0 / ratio.low,
            verdict,
        },
    }
}

/// Geometric mean of slowdowns; none for an empty slice.
pub fn mean(effects: &[Effect]) -> Option<f64> {
    if effects.is_empty() {
        return None;
    }
    let logs: f64 = effects.iter().map(|effect| effect.slowdown.ln()).sum();
    Some((logs / effects.len() as f64).exp())
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

/// `+12.0 %` for a slowdown of 1.12; negative below 1.
pub fn percent(slowdown: f64) -> String {
    format!("{:+.1} %", (slowdown - 1.0) * 100.0)
}
