//! What an arm costs against its baseline, in one unit and with one sign: the time for the same
//! work. Above 0 % is always more than the baseline, below 0 % always less.

use crate::analysis::{CaseAnalysis, Verdict, judge};
use crate::plan::{Better, Case};
use crate::report::format::significant;
use crate::stats::Ratio;

/// The noise, in percent, from which a report says "not distinguishable" instead of "no
/// difference".
pub const WIDE_NOISE_PERCENT: f64 = 5.0;
/// From this ratio on a cost is told as a multiple, not in percent.
const MULTIPLE: f64 = 2.0;

/// Whether an arm is a sealed server, by its id.
pub fn is_suite(arm: &str) -> bool {
    arm.starts_with("aes-") || arm.starts_with("aegis-")
}

/// The cost of an arm in a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Time (or bytes) for the same work, over the baseline's: 1 is equal, above 1 is always more.
    pub times: f64,
    /// Lower end of the 95 % interval; NaN with one round.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// The noise floor of the case, a ratio of 1 or more.
    pub noise_floor: f64,
    /// The verdict; worse is more.
    pub verdict: Verdict,
}

impl Cost {
    /// The cost that a ratio of two measurements shows.
    pub fn new(ratio: Ratio, better: Better, noise_floor: f64) -> Cost {
        Cost::judged(ratio, better, noise_floor, judge(ratio, better, noise_floor))
    }

    /// The cost of an arm in a case; none for the baseline, and if one of them was not measured.
    pub fn of(found: &CaseAnalysis, case: &Case, arm: &str) -> Option<Cost> {
        let arm = found.arm(arm)?;
        Some(Cost::judged(arm.ratio?, case.better, found.noise_floor, arm.verdict))
    }

    fn judged(ratio: Ratio, better: Better, noise_floor: f64, verdict: Verdict) -> Cost {
        let Ratio { value, low, high } = ratio;
        let (times, low, high) = match better {
            Better::Lower => (value, low, high),
            Better::Higher => (1.0 / value, 1.0 / high, 1.0 / low),
        };
        Cost { times, low, high, noise_floor, verdict }
    }

    /// Whether the difference is more than noise.
    pub fn differs(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }

    /// In percent of the baseline: 7.1 for 1.071 times.
    pub fn percent(&self) -> f64 {
        (self.times - 1.0) * 100.0
    }

    /// The noise in percent.
    pub fn noise_percent(&self) -> f64 {
        (self.noise_floor - 1.0) * 100.0
    }

    /// `+7.1 %`; `3.12 times` for a multiple.
    pub fn change(&self) -> String {
        change(self.times)
    }

    /// `+3.9 to +19.2 %`; empty without an interval.
    pub fn interval(&self) -> String {
        if !(self.low.is_finite() && self.high.is_finite()) {
            return String::new();
        }
        match self.high {
            MULTIPLE.. => format!("{} to {} times", significant(self.low), significant(self.high)),
            _ => format!("{} to {} %", signed(self.low), signed(self.high)),
        }
    }

    /// The cost in words, without a sentence around it: `+7.1 %`, `no difference`,
    /// `not distinguishable (noise 18 %)`.
    pub fn words(&self) -> String {
        match self.verdict {
            Verdict::Better | Verdict::Worse => self.change(),
            verdict => verdict_words(verdict, self.noise_floor),
        }
    }

    /// A sentence of at most twenty words with one number, of an arm and a place of one to six
    /// words: `aes-256-gcm takes 7.1 % more time in scan-warm.`
    pub fn sentence(&self, arm: &str, place: &str) -> String {
        self.sentence_of("takes", "time", arm, place)
    }

    /// A sentence that compares two arms: `aes-256-gcm takes 7.1 % more time than aes-128-gcm in
    /// scan.`
    pub fn against(&self, arm: &str, other: &str, place: &str) -> String {
        match self.verdict {
            Verdict::Worse | Verdict::Better if self.times >= MULTIPLE => {
                format!("{arm} takes {} times as long as {other} {place}.", significant(self.times))
            }
            Verdict::Worse | Verdict::Better => {
                self.sentence(arm, &format!("than {other} {place}"))
            }
            _ => self.sentence(arm, &format!("against {other} {place}")),
        }
    }

    /// As [`Cost::sentence`], of something else than time: `raw needs 3.8 times as many bytes ...`.
    pub fn sentence_of(&self, verb: &str, what: &str, arm: &str, place: &str) -> String {
        let percent = self.percent();
        let long = if what == "time" { "as long" } else { "as much" };
        match self.verdict {
            Verdict::Worse | Verdict::Better if self.times >= MULTIPLE => {
                format!("{arm} {verb} {} times {long} {place}.", significant(self.times))
            }
            Verdict::Worse => format!("{arm} {verb} {percent:.1} % more {what} {place}."),
            Verdict::Better => format!("{arm} {verb} {:.1} % less {what} {place}.", -percent),
            verdict => format!("{arm} {place}: {}.", verdict_words(verdict, self.noise_floor)),
        }
    }
}

/// `+7.1 %` for 1.071; `3.12 times` for a multiple.
pub fn change(times: f64) -> String {
    match times {
        value if !value.is_finite() => "-".to_owned(),
        MULTIPLE.. => format!("{} times", significant(times)),
        _ => format!("{} %", signed(times)),
    }
}

fn signed(times: f64) -> String {
    let percent = (times - 1.0) * 100.0;
    // Neither "-0.0" nor "+0.0".
    if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") }
}

/// A verdict in words. `no difference` is said only where the noise is low enough to see one.
pub fn verdict_words(verdict: Verdict, noise_floor: f64) -> String {
    let noise = (noise_floor - 1.0) * 100.0;
    match verdict {
        Verdict::NoDifference if noise >= WIDE_NOISE_PERCENT => {
            format!("not distinguishable (noise {noise:.0} %)")
        }
        verdict => verdict.words().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, better: Better, floor: f64) -> Cost {
        Cost::new(Ratio { value, low: value * 0.98, high: value * 1.02 }, better, floor)
    }

    #[test]
    fn a_plus_is_always_more_whatever_is_measured() {
        let slower = of(0.8, Better::Higher, 1.01);
        assert_eq!((slower.verdict, slower.change().as_str()), (Verdict::Worse, "+25.0 %"));
        let slower = of(1.25, Better::Lower, 1.01);
        assert_eq!((slower.verdict, slower.change().as_str()), (Verdict::Worse, "+25.0 %"));
        assert_eq!(slower.interval(), "+22.5 to +27.5 %");
        let faster = of(1.25, Better::Higher, 1.01);
        assert_eq!((faster.verdict, faster.change().as_str()), (Verdict::Better, "-20.0 %"));
        assert_eq!(of(0.25, Better::Higher, 1.01).change(), "4.00 times");
        assert_eq!(of(1.0, Better::Lower, 1.01).change(), "0.0 %");
    }

    #[test]
    fn wide_noise_is_not_called_no_difference() {
        assert_eq!(of(1.01, Better::Lower, 1.02).words(), "no difference");
        assert_eq!(of(1.1, Better::Lower, 1.18).words(), "not distinguishable (noise 18 %)");
        assert_eq!(of(1.3, Better::Lower, 1.18).words(), "+30.0 %");
        let one = Ratio { value: 1.3, low: f64::NAN, high: f64::NAN };
        let one = Cost::new(one, Better::Lower, 1.18);
        assert_eq!((one.words().as_str(), one.interval().as_str()), ("too few rounds", ""));
    }

    #[test]
    fn sentences_say_more_or_less_time() {
        let say = |value, floor| of(value, Better::Lower, floor).sentence("xts", "in scan");
        assert_eq!(say(1.071, 1.01), "xts takes 7.1 % more time in scan.");
        assert_eq!(say(0.9, 1.01), "xts takes 10.0 % less time in scan.");
        assert_eq!(say(3.1, 1.01), "xts takes 3.10 times as long in scan.");
        assert_eq!(say(1.1, 1.18), "xts in scan: not distinguishable (noise 18 %).");
        let bytes = of(3.8, Better::Lower, 1.0).sentence_of("needs", "space", "raw", "on disk");
        assert_eq!(bytes, "raw needs 3.80 times as much on disk.");
    }
}
