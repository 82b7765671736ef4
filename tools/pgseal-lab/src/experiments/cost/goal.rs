//! The aim of a measure, and whether it is met.

use serde::{Deserialize, Serialize};

use crate::plan::Better;
use crate::stats::Ratio;

/// How a result is judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Time against the plain server: at most this ratio for GCM, and this one for the others.
    TimeAtMost {
        /// `aes-256-gcm` and `aes-128-gcm`.
        gcm: f64,
        /// The other suites.
        other: f64,
    },
    /// Throughput against the plain server: at least this ratio.
    RateAtLeast(f64),
    /// Throughput: no difference beyond the noise of plain against plain.
    RateInNoise,
}

/// Whether an aim is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// By the ratio itself.
    pub met: bool,
    /// Whether the aim lies inside the interval, so that more rounds might turn the verdict.
    pub close: bool,
}

impl Goal {
    /// Which way is good.
    pub fn better(self) -> Better {
        match self {
            Self::TimeAtMost { .. } => Better::Lower,
            Self::RateAtLeast(_) | Self::RateInNoise => Better::Higher,
        }
    }

    /// `at most 1.18`.
    pub fn words(self, suite: &str) -> String {
        match self {
            Self::TimeAtMost { .. } => format!("at most {:.2}", self.time_limit(suite)),
            Self::RateAtLeast(least) => format!("at least {least:.2}"),
            Self::RateInNoise => "within the noise".to_owned(),
        }
    }

    /// The most time against the plain server that meets the aim; none: within the noise.
    pub fn most(self, suite: &str) -> Option<f64> {
        match self {
            Self::TimeAtMost { .. } => Some(self.time_limit(suite)),
            Self::RateAtLeast(least) => Some(1.0 / least),
            Self::RateInNoise => None,
        }
    }

    /// Judges a ratio to the plain server; `noise` is that of plain against plain.
    pub fn judge(self, suite: &str, found: Ratio, noise: Option<Ratio>) -> Judged {
        let inside = |aim: f64| found.low <= aim && aim <= found.high;
        let (met, close) = match self {
            Self::TimeAtMost { .. } => {
                let most = self.time_limit(suite);
                (found.value <= most, inside(most))
            }
            Self::RateAtLeast(least) => (found.value >= least, inside(least)),
            // Not slower than the noise reaches, or no difference from 1 that the samples can show.
            Self::RateInNoise => {
                let floor = noise.map_or(1.0, |noise| noise.low.min(1.0));
                (found.value >= floor || found.high >= 1.0, inside(floor))
            }
        };
        Judged { met, close }
    }

    fn time_limit(self, suite: &str) -> f64 {
        match self {
            Self::TimeAtMost { gcm, .. } if suite.contains("gcm") => gcm,
            Self::TimeAtMost { other, .. } => other,
            _ => f64::NAN,
        }
    }
}

impl Judged {
    /// In words.
    pub fn words(self) -> &'static str {
        match (self.met, self.close) {
            (true, false) => "met",
            (true, true) => "met, closely",
            (false, false) => "MISSED",
            (false, true) => "MISSED, closely",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64) -> Ratio {
        Ratio { value, low: value - 0.02, high: value + 0.02 }
    }

    fn words(goal: Goal, suite: &str, value: f64) -> &'static str {
        goal.judge(suite, of(value), None).words()
    }

    #[test]
    fn each_suite_is_held_against_its_own_limit() {
        let goal = Goal::TimeAtMost { gcm: 1.18, other: 1.13 };
        assert_eq!(words(goal, "aes-256-gcm", 1.15), "met");
        assert_eq!(words(goal, "aes-256-xts", 1.14), "MISSED, closely");
        assert_eq!(words(goal, "aes-256-xts", 1.16), "MISSED");
        assert_eq!(words(Goal::RateAtLeast(0.94), "", 0.95), "met, closely");
        assert_eq!(words(Goal::RateAtLeast(0.94), "", 0.90), "MISSED");
        assert_eq!(goal.words("aes-128-ctr"), "at most 1.13");
    }

    #[test]
    fn a_difference_within_the_noise_is_none() {
        let quiet = Some(Ratio { value: 1.0, low: 0.995, high: 1.005 });
        let noisy = Some(Ratio { value: 1.0, low: 0.95, high: 1.05 });
        let met = |value, noise| Goal::RateInNoise.judge("", of(value), noise).met;
        assert!(!met(0.96, quiet));
        assert!(met(0.96, noisy));
        assert!(met(1.10, quiet));
    }
}
