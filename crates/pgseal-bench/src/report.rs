//! From samples to results: ratios, verdicts, the table.

use std::fmt::Write;

use serde::Serialize;

use crate::cases::{Case, Goal};
use pgseal_lab::stats::{Ratio, median, ratio};

/// Name of the arm that all others are held against.
pub const PLAIN: &str = "plain";
/// Name of a second cluster made in the same way: the noise floor.
pub const AGAIN: &str = "plain-again";

/// One sample.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Round, from 0.
    pub round: usize,
    /// Place of the run in its round, from 0.
    pub place: usize,
    /// Seconds, or transactions a second.
    pub value: f64,
    /// The server's CPU seconds for one transaction or one run.
    pub cpu_seconds_per_operation: f64,
}

/// The samples of one arm.
#[derive(Debug, Clone, Serialize)]
pub struct Arm {
    /// `plain`, `plain-again` or a suite.
    pub name: String,
    /// In the order of the rounds.
    pub samples: Vec<Sample>,
}

impl Arm {
    fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }

    fn cpu(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.cpu_seconds_per_operation).collect()
    }
}

/// Whether the target is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The ratio meets the target.
    Met,
    /// It does not.
    Missed,
    /// The noise floor: nothing to judge.
    Noise,
}

/// One arm against the plain one.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The arm.
    pub arm: String,
    /// Median of its samples.
    pub median: f64,
    /// Its median over the plain one.
    pub ratio: Ratio,
    /// The same of the CPU time of one transaction or run.
    pub cpu_ratio: Ratio,
    /// Of its ratio; the interval may reach over the target, the table says so.
    pub verdict: Verdict,
    /// Whether the target lies inside the interval, so that more rounds might turn the verdict.
    pub close: bool,
}

/// All of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Its settings.
    pub settings: &'static [&'static str],
    /// State of the caches.
    pub cache: &'static str,
    /// Seconds or transactions a second.
    pub unit: &'static str,
    /// The target.
    pub goal: Goal,
    /// Median of the plain arm.
    pub plain_median: f64,
    /// The other arms against it.
    pub compared: Vec<Compared>,
    /// Raw samples.
    pub arms: Vec<Arm>,
}

/// Holds the arms of a case against the plain one, which is the first.
pub fn judge(case: &Case, arms: Vec<Arm>) -> CaseResult {
    let plain = arms.first().map(Arm::values).unwrap_or_default();
    let plain_cpu = arms.first().map(Arm::cpu).unwrap_or_default();
    let noise = arms.iter().find(|arm| arm.name == AGAIN).map(|arm| ratio(&arm.values(), &plain));
    let compared = arms.iter().skip(1).map(|arm| {
        let found = ratio(&arm.values(), &plain);
        let (verdict, close) = if arm.name == AGAIN {
            (Verdict::Noise, false)
        } else {
            verdict(case.goal, &arm.name, found, noise)
        };
        Compared {
            arm: arm.name.clone(),
            median: median(&arm.values()),
            ratio: found,
            cpu_ratio: ratio(&arm.cpu(), &plain_cpu),
            verdict,
            close,
        }
    });
    CaseResult {
        name: case.name,
        what: case.what,
        settings: case.settings,
        cache: case.cache,
        unit: if case.goal.is_rate() { "1/s" } else { "s" },
        goal: case.goal,
        plain_median: median(&plain),
        compared: compared.collect(),
        arms,
    }
}

fn verdict(goal: Goal, suite: &str, found: Ratio, noise: Option<Ratio>) -> (Verdict, bool) {
    let inside = |target: f64| found.low <= target && target <= found.high;
    let (met, close) = match goal {
        Goal::TimeAtMost { .. } => {
            let most = time_limit(goal, suite);
            (found.value <= most, inside(most))
        }
        Goal::RateAtLeast(least) => (found.value >= least, inside(least)),
        // Not slower than the noise reaches, or no difference from 1 that the samples can show.
        Goal::RateInNoise => {
            let floor = noise.map_or(1.0, |noise| noise.low.min(1.0));
            (found.value >= floor || found.high >= 1.0, inside(floor))
        }
    };
    (if met { Verdict::Met } else { Verdict::Missed }, close)
}

fn time_limit(goal: Goal, suite: &str) -> f64 {
    match goal {
        Goal::TimeAtMost { gcm, .. } if suite.contains("gcm") => gcm,
        Goal::TimeAtMost { other, .. } => other,
        _ => f64::NAN,
    }
}

/// The table that people read, in Markdown; one line for each case and arm.
pub fn table(results: &[CaseResult]) -> String {
    let mut text = String::from(
        "| measure | against plain | ratio | 95 % | CPU ratio | target | verdict |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for result in results {
        for arm in &result.compared {
            let kind = if result.goal.is_rate() { "throughput" } else { "time" };
            let target = match result.goal {
                _ if arm.verdict == Verdict::Noise => "(noise floor)".to_owned(),
                Goal::TimeAtMost { .. } => {
                    format!("at most {:.2}", time_limit(result.goal, &arm.arm))
                }
                Goal::RateAtLeast(least) => format!("at least {least:.2}"),
                Goal::RateInNoise => "within the noise".to_owned(),
            };
            let verdict = match (arm.verdict, arm.close) {
                (Verdict::Noise, _) => "",
                (Verdict::Met, false) => "met",
                (Verdict::Met, true) => "met, closely",
                (Verdict::Missed, false) => "MISSED",
                (Verdict::Missed, true) => "MISSED, closely",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} ({kind}) | {} | {:.3} | {:.3} to {:.3} | {:.3} | {target} | {verdict} |",
                result.what,
                arm.arm,
                arm.ratio.value,
                arm.ratio.low,
                arm.ratio.high,
                arm.cpu_ratio.value,
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64) -> Ratio {
        Ratio { value, low: value - 0.02, high: value + 0.02 }
    }

    #[test]
    fn each_suite_is_held_against_its_own_limit() {
        let goal = Goal::TimeAtMost { gcm: 1.18, other: 1.13 };
        assert_eq!(verdict(goal, "aes-256-gcm", of(1.15), None), (Verdict::Met, false));
        assert_eq!(verdict(goal, "aes-256-xts", of(1.14), None), (Verdict::Missed, true));
        assert_eq!(verdict(goal, "aes-256-xts", of(1.16), None), (Verdict::Missed, false));
        assert_eq!(verdict(Goal::RateAtLeast(0.94), "", of(0.95), None), (Verdict::Met, true));
        assert_eq!(verdict(Goal::RateAtLeast(0.94), "", of(0.90), None), (Verdict::Missed, false));
    }

    #[test]
    fn a_difference_within_the_noise_is_none() {
        let quiet = Some(Ratio { value: 1.0, low: 0.995, high: 1.005 });
        let noisy = Some(Ratio { value: 1.0, low: 0.95, high: 1.05 });
        assert_eq!(verdict(Goal::RateInNoise, "", of(0.96), quiet).0, Verdict::Missed);
        assert_eq!(verdict(Goal::RateInNoise, "", of(0.96), noisy).0, Verdict::Met);
        assert_eq!(verdict(Goal::RateInNoise, "", of(1.10), quiet).0, Verdict::Met);
    }

    #[test]
    fn the_first_arm_is_the_measure_of_the_others() {
        let arm = |name: &str, value: f64| Arm {
            name: name.to_owned(),
            samples: (0..3)
                .map(|round| Sample { round, place: 0, value, cpu_seconds_per_operation: value })
                .collect(),
        };
        let case = crate::cases::CASES.iter().find(|case| case.name == "scan").unwrap();
        let arms = vec![arm(PLAIN, 2.0), arm(AGAIN, 2.0), arm("aes-256-gcm", 3.0)];
        let result = judge(case, arms);
        assert_eq!(result.plain_median, 2.0);
        let seen: Vec<_> = result.compared.iter().map(|c| (c.ratio.value, c.verdict)).collect();
        assert_eq!(seen, [(1.0, Verdict::Noise), (1.5, Verdict::Missed)]);
        assert!(
            table(&[result]).contains(
                "| aes-256-gcm | 1.500 | 1.500 to 1.500 | 1.500 | at most 1.18 | MISSED |"
            )
        );
    }
}
