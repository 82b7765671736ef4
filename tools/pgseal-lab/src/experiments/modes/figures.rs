//! Medians and ratios computed from the samples of this experiment.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::algorithm::{Algorithm, Direction, Mode};
use super::plan::{AGAIN, PAGE_BYTES, figure};
use super::protocol::CycleSource;
use crate::analysis::floor_of;
use crate::cost::Cost;
use crate::error::LabError;
use crate::plan::Better;
use crate::results::Results;
use crate::stats::{Ratio, median, ratio};

/// Identifies one figure: its algorithm (the case), arm, direction and size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At<'a> {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Id of the arm.
    pub arm: &'a str,
    /// The direction.
    pub direction: Direction,
    /// Bytes of one message.
    pub bytes: usize,
}

impl<'a> At<'a> {
    /// The figure for encrypting a page.
    pub fn page(mode: Mode, key_bits: u16, arm: &'a str) -> At<'a> {
        let algorithm = Algorithm { mode, key_bits };
        At { algorithm, arm, direction: Direction::Encrypt, bytes: PAGE_BYTES }
    }

    /// The same figure of another arm.
    pub fn arm(self, arm: &'a str) -> At<'a> {
        At { arm, ..self }
    }

    /// The same figure for another message size.
    pub fn bytes(self, bytes: usize) -> At<'a> {
        At { bytes, ..self }
    }

    /// The same figure for decryption.
    pub fn decrypt(self) -> At<'a> {
        At { direction: Direction::Decrypt, ..self }
    }
}

/// Values by case, arm, name and round.
type ByCase<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeMap<&'a str, BTreeMap<u32, f64>>>>;

/// Values by case, arm and name, in the order of the rounds.
pub struct Figures<'a> {
    /// The results.
    pub results: &'a Results,
    /// Bytes of the messages measured.
    pub sizes: Vec<usize>,
    values: ByCase<'a>,
    /// Noise floors computed so far, by case and figure.
    floors: RefCell<BTreeMap<(String, String), f64>>,
}

impl<'a> Figures<'a> {
    /// Groups the samples by case, arm, name and round.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a plan of another experiment.
    pub fn of(results: &'a Results) -> Result<Figures<'a>, LabError> {
        let mut values: ByCase<'a> = BTreeMap::new();
        for sample in &results.samples {
            let arms = values.entry(&sample.case).or_default();
            let names = arms.entry(&sample.arm).or_default();
            let mut add = |name: &'a str, value| {
                names.entry(name).or_default().insert(sample.round, value);
            };
            add("", sample.value);
            for (name, value) in &sample.extra {
                add(name, *value);
            }
        }
        let sizes = results.plan.parameter("sizes")?.unwrap_or_default();
        Ok(Figures { results, sizes, values, floors: RefCell::default() })
    }

    fn rounds(&self, case: &str, arm: &str, name: &str) -> Option<&BTreeMap<u32, f64>> {
        self.values.get(case)?.get(arm)?.get(name)
    }

    /// Median of a named figure; the case's value has no name.
    pub fn named(&self, case: &str, arm: &str, name: &str) -> Option<f64> {
        let values: Vec<f64> = self.rounds(case, arm, name)?.values().copied().collect();
        Some(median(&values)).filter(|value| value.is_finite())
    }

    /// Median in bytes per second.
    pub fn rate(&self, at: At<'_>) -> Option<f64> {
        self.named(&at.algorithm.to_string(), at.arm, &figure(at.direction, at.bytes))
    }

    /// Median of bytes per core cycle.
    pub fn per_cycle(&self, at: At<'_>) -> Option<f64> {
        let hz = self.named(&at.algorithm.to_string(), at.arm, "core_hz")?;
        Some(self.rate(at)? / hz)
    }

    /// Ratio of two named figures over the rounds that both have.
    pub fn named_ratio(
        &self,
        over: (&str, &str, &str),
        under: (&str, &str, &str),
    ) -> Option<Ratio> {
        let over = self.rounds(over.0, over.1, over.2)?;
        let under = self.rounds(under.0, under.1, under.2)?;
        let pairs = over.iter().filter_map(|(round, value)| Some((*value, *under.get(round)?)));
        let (over, under): (Vec<f64>, Vec<f64>) = pairs.unzip();
        (!over.is_empty()).then(|| ratio(&over, &under))
    }

    /// Ratio of two figures.
    pub fn ratio(&self, over: At<'_>, under: At<'_>) -> Option<Ratio> {
        let (over_case, under_case) = (over.algorithm.to_string(), under.algorithm.to_string());
        self.named_ratio(
            (&over_case, over.arm, &figure(over.direction, over.bytes)),
            (&under_case, under.arm, &figure(under.direction, under.bytes)),
        )
    }

    /// The noise floor of an algorithm, direction and size: how far the two measurements of the
    /// baseline (the case's A/A pair) differ, as a ratio above 1; 1 if the pair was not measured.
    pub fn floor(&self, at: At<'_>) -> f64 {
        let key = (at.algorithm.to_string(), figure(at.direction, at.bytes));
        if let Some(known) = self.floors.borrow().get(&key) {
            return *known;
        }
        let noise = self.ratio(at.arm(AGAIN), at.arm("openssl"));
        let floor = noise.map_or(1.0, |noise| floor_of(&noise));
        self.floors.borrow_mut().insert(key, floor);
        floor
    }

    /// The ratio of two figures, and whether they differ: they do if the ratio's interval does not
    /// include 1 and the ratio lies outside the noise floors of both figures.
    pub fn difference(&self, over: At<'_>, under: At<'_>) -> Option<Compared> {
        let found = self.ratio(over, under)?;
        Some(compared(found, self.floor(over).max(self.floor(under))))
    }

    /// The algorithms of the plan, in its order.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        self.results.plan.cases.iter().filter_map(|case| case.id.parse().ok()).collect()
    }

    /// Whether the plan has this arm.
    pub fn has_arm(&self, arm: &str) -> bool {
        self.results.plan.arm(arm).is_some()
    }

    /// Compares the values of two cases like [`Figures::difference`]; used for signatures.
    pub fn named_difference(&self, over: &str, under: &str) -> Option<Compared> {
        let noise = |case| {
            let noise = self.named_ratio((case, AGAIN, ""), (case, "openssl", ""));
            noise.map_or(1.0, |noise| floor_of(&noise))
        };
        let ratio = self.named_ratio((over, "openssl", ""), (under, "openssl", ""))?;
        Some(compared(ratio, noise(over).max(noise(under))))
    }

    /// The source of the cycle counts, in words.
    pub fn cycles_from(&self) -> Option<&'static str> {
        let case = self.algorithms().first()?.to_string();
        let id = self.fact(&case, "openssl", "cycles_from")?;
        CycleSource::by_id(id).map(CycleSource::title)
    }

    /// A fact of the first sample of an arm in a case.
    pub fn fact(&self, case: &str, arm: &str, name: &str) -> Option<&'a str> {
        let sample = self.results.samples.iter().find(|s| s.case == case && s.arm == arm)?;
        sample.facts.get(name).map(String::as_str)
    }
}

/// A comparison of two figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// The ratio.
    pub ratio: Ratio,
    /// Whether the difference exceeds the noise.
    pub differs: bool,
    /// The ratio as a cost in time.
    pub cost: Cost,
}

fn compared(ratio: Ratio, floor: f64) -> Compared {
    let cost = Cost::new(ratio, Better::Higher, floor);
    Compared { ratio, differs: cost.differs(), cost }
}
