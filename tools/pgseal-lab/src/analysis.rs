//! Computes medians, ratios and verdicts from samples.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::batches;
use crate::cost::Cost;
use crate::experiments;
use crate::plan::{Better, Case};
use crate::results::{Results, Sample};
use crate::stats::{Ratio, median, ratio};
use crate::warning::Warning;

/// Width of the A/A interval, in percent, from which a machine is called noisy.
pub const NOISY_PERCENT: f64 = 10.0;
/// Shortest acceptable step of a throughput measurement, in seconds: in shorter steps start-up and
/// chance weigh too much.
pub const LEAST_STEP_S: f64 = 1.0;
/// Shortest acceptable duration of a timed operation, in seconds.
pub const LEAST_TIMED_S: f64 = 0.01;
/// Fewest rounds for a meaningful bootstrap interval.
pub const LEAST_ROUNDS: u32 = 5;
/// An arm that does its baseline's work and more cannot take less than this part of the baseline's
/// time: such a figure is withheld.
pub const LEAST_TIMES: f64 = 0.8;
/// From this share of noisy cases on a machine is too noisy to tell anything.
const TOO_NOISY_SHARE: f64 = 0.5;

/// The analysis of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// In the order of the plan.
    pub cases: Vec<CaseAnalysis>,
    /// Reasons in the samples to trust the figures less.
    pub warnings: Vec<Warning>,
}

/// The analysis of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseAnalysis {
    /// Id of the case.
    pub case: String,
    /// Id of the arm that the others are compared with.
    pub baseline: String,
    /// Ratio of the two measurements of the baseline (A/A); none if the case has no second one.
    pub noise: Option<Ratio>,
    /// The noise floor: a ratio between `1 / noise_floor` and `noise_floor` counts as no
    /// difference. From this case's A/A pair, else the widest of the run; 1 if the run has none.
    pub noise_floor: f64,
    /// In the order of the plan.
    pub arms: Vec<ArmAnalysis>,
}

/// The analysis of one arm in one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmAnalysis {
    /// Id of the arm.
    pub arm: String,
    /// Number of samples.
    pub n: usize,
    /// Median of the samples, in the case's unit.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// 95 % bootstrap interval of the median.
    pub interval: (f64, f64),
    /// Ratio of this arm's median to the baseline's in the same rounds; none for the baseline, and
    /// if it is withheld.
    pub ratio: Option<Ratio>,
    /// Comparison with the baseline.
    pub verdict: Verdict,
    /// Why the comparison is withheld; none: it is not.
    pub withheld: Option<String>,
    /// Medians of the further figures.
    pub extra: BTreeMap<String, f64>,
    /// Ratios of the further figures to the baseline's figures.
    pub extra_ratio: BTreeMap<String, Ratio>,
}

/// How far the two measurements of the baseline are apart over a whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// Cases in which the baseline was measured twice, in rounds enough for an interval.
    pub cases: usize,
    /// Those of them in which the machine was noisy ([`NOISY_PERCENT`]).
    pub noisy: usize,
    /// Middle noise of these cases, in percent.
    pub middle_percent: f64,
    /// The case with the widest noise.
    pub worst: String,
    /// Its noise in percent.
    pub worst_percent: f64,
}

impl Noise {
    /// Whether so many cases were noisy that the run tells nothing.
    pub fn is_too_much(&self) -> bool {
        self.noisy as f64 > self.cases as f64 * TOO_NOISY_SHARE
    }

    /// The noise of a run in one line.
    pub fn line(&self) -> String {
        format!(
            "Noise: {:.0} % in the middle, {:.0} % at most ({}); {} of {} cases are noisy.",
            self.middle_percent, self.worst_percent, self.worst, self.noisy, self.cases
        )
    }
}

/// The comparison of an arm with the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The baseline itself.
    Baseline,
    /// The interval touches 1, or the ratio lies within the noise floor.
    NoDifference,
    /// Better than the baseline.
    Better,
    /// Worse than the baseline.
    Worse,
    /// Fewer than two rounds: no verdict.
    TooFew,
    /// The arm does the baseline's work and more, and took much less time: the figure cannot be
    /// right.
    Withheld,
    /// Not measured.
    Missing,
}

impl Verdict {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::NoDifference => "no difference",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::TooFew => "too few rounds",
            Self::Withheld => "withheld",
            Self::Missing => "missing",
        }
    }
}

impl Analysis {
    /// Analyses results, also of an unfinished run.
    pub fn of(results: &Results) -> Self {
        let noises: Vec<Option<Ratio>> =
            results.plan.cases.iter().map(|case| noise_of(results, case)).collect();
        let widest = noises.iter().flatten().map(floor_of).fold(1.0, f64::max);
        let cases: Vec<CaseAnalysis> = results
            .plan
            .cases
            .iter()
            .zip(noises)
            .map(|(case, noise)| analyse(results, case, noise, widest))
            .collect();
        let warnings = warnings_of(results, &cases);
        Self { cases, warnings }
    }

    /// The case of this id.
    pub fn case(&self, case: &str) -> Option<&CaseAnalysis> {
        self.cases.iter().find(|analysis| analysis.case == case)
    }

    /// One arm in one case.
    pub fn arm(&self, case: &str, arm: &str) -> Option<&ArmAnalysis> {
        self.case(case)?.arm(arm)
    }

    /// The noise of the whole run; none if the baseline was not measured twice in enough rounds.
    pub fn noise(&self) -> Option<Noise> {
        let mut found: Vec<(f64, &str, bool)> = self
            .cases
            .iter()
            .filter_map(|case| {
                let width = width_percent(case.noise.as_ref()?)?;
                let floor = (case.noise_floor - 1.0) * 100.0;
                Some((floor, case.case.as_str(), width.max(floor) > NOISY_PERCENT))
            })
            .collect();
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (worst_percent, worst, _) = *found.last()?;
        Some(Noise {
            cases: found.len(),
            noisy: found.iter().filter(|(_, _, noisy)| *noisy).count(),
            middle_percent: found.get(found.len() / 2)?.0,
            worst: worst.to_owned(),
            worst_percent,
        })
    }

    /// Whether the machine was too noisy to tell anything.
    pub fn is_too_noisy(&self) -> bool {
        self.noise().is_some_and(|noise| noise.is_too_much())
    }

    /// What an arm costs in a case.
    pub fn cost(&self, case: &Case, arm: &str) -> Option<Cost> {
        Cost::of(self.case(&case.id)?, case, arm)
    }

    /// Median of one arm in one case, if it was measured.
    pub fn median(&self, case: &str, arm: &str) -> Option<f64> {
        self.arm(case, arm).filter(|arm| arm.n > 0).map(|arm| arm.median)
    }
}

impl CaseAnalysis {
    /// The arm of this id.
    pub fn arm(&self, arm: &str) -> Option<&ArmAnalysis> {
        self.arms.iter().find(|analysis| analysis.arm == arm)
    }
}

/// Ratio of two arms in one case, over their common rounds.
pub fn ratio_between(results: &Results, case: &str, over: &str, under: &str) -> Option<Ratio> {
    let (over, under) = paired(results, case, over, under, |sample| Some(sample.value));
    (!over.is_empty()).then(|| ratio_in(results, case, &over, &under))
}

/// Of medians; in a case that is measured in blocks, of batches of them.
fn ratio_in(results: &Results, case: &str, over: &[f64], under: &[f64]) -> Ratio {
    let blocks = results.plan.case(case).is_some_and(|case| matches!(case.until(), Ok(Some(_))));
    if blocks { batches::ratio(over, under) } else { ratio(over, under) }
}

/// Width of the widest interval of a ratio to the baseline in a case, in percent of the ratio;
/// infinite while there is none.
pub fn widest_percent(results: &Results, case: &Case) -> f64 {
    let plan = &results.plan;
    let Some(baseline) = plan.baseline_of(case) else { return f64::INFINITY };
    let compared = plan.arms_of(case).filter(|arm| arm.id != baseline.id);
    let compared = compared.filter(|arm| results.missing_of(&case.id, &arm.id).is_none());
    let ratio = |arm: &str| ratio_between(results, &case.id, arm, &baseline.id);
    let width =
        |found: Option<Ratio>| found.map_or(f64::INFINITY, |found| batches::width_percent(&found));
    compared.map(|arm| width(ratio(&arm.id))).fold(0.0, f64::max)
}

/// The verdict on a ratio.
pub fn judge(found: Ratio, better: Better, noise_floor: f64) -> Verdict {
    if !(found.low.is_finite() && found.high.is_finite()) {
        return Verdict::TooFew;
    }
    let within = (1.0 / noise_floor..=noise_floor).contains(&found.value);
    if within || (found.low <= 1.0 && found.high >= 1.0) {
        return Verdict::NoDifference;
    }
    match (better, found.value > 1.0) {
        (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
        _ => Verdict::Worse,
    }
}

fn noise_of(results: &Results, case: &Case) -> Option<Ratio> {
    let plan = &results.plan;
    let (again, first) = (plan.again()?, plan.arms.first()?);
    ratio_between(results, &case.id, &again.id, &first.id)
}

/// The noise floor that an A/A ratio shows: the end of its interval that is farther from 1, as a
/// ratio above 1.
pub(crate) fn floor_of(noise: &Ratio) -> f64 {
    let away = |end: f64| if end.is_finite() && end > 0.0 { end.max(1.0 / end) } else { 1.0 };
    away(noise.low).max(away(noise.high)).max(away(noise.value))
}

fn paired(
    results: &Results,
    case: &str,
    over: &str,
    under: &str,
    value: impl Fn(&Sample) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let by_round: BTreeMap<u32, f64> =
        results.of(case, under).filter_map(|s| Some((s.round, value(s)?))).collect();
    results
        .of(case, over)
        .filter_map(|sample| Some((value(sample)?, *by_round.get(&sample.round)?)))
        .unzip()
}

fn analyse(results: &Results, case: &Case, noise: Option<Ratio>, widest: f64) -> CaseAnalysis {
    let plan = &results.plan;
    let baseline = plan.baseline_of(case).map(|arm| arm.id.clone()).unwrap_or_default();
    let noise_floor = noise.as_ref().map_or(widest, floor_of);
    let arms = plan
        .arms_of(case)
        .map(|arm| analyse_arm(results, case, &arm.id, &baseline, noise_floor))
        .map(|arm| checked(results, case, arm))
        .collect();
    CaseAnalysis { case: case.id.clone(), baseline, noise, noise_floor, arms }
}

fn analyse_arm(
    results: &Results,
    case: &Case,
    arm: &str,
    baseline: &str,
    noise_floor: f64,
) -> ArmAnalysis {
    let samples: Vec<&Sample> = results.of(&case.id, arm).collect();
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let found =
        (arm != baseline).then(|| ratio_between(results, &case.id, arm, baseline)).flatten();
    let verdict = match found {
        _ if values.is_empty() => Verdict::Missing,
        _ if arm == baseline => Verdict::Baseline,
        None => Verdict::TooFew,
        Some(found) => judge(found, case.better, noise_floor),
    };
    let mut extra = BTreeMap::new();
    let mut extra_ratio = BTreeMap::new();
    let names: std::collections::BTreeSet<&String> =
        samples.iter().flat_map(|sample| sample.extra.keys()).collect();
    for name in names {
        let of: Vec<f64> = samples.iter().filter_map(|s| s.extra.get(name).copied()).collect();
        extra.insert(name.clone(), median(&of));
        if arm != baseline {
            let pick = |sample: &Sample| sample.extra.get(name).copied();
            let (over, under) = paired(results, &case.id, arm, baseline, pick);
            if !over.is_empty() {
                extra_ratio.insert(name.clone(), ratio_in(results, &case.id, &over, &under));
            }
        }
    }
    ArmAnalysis {
        arm: arm.to_owned(),
        n: values.len(),
        median: median(&values),
        min: values.iter().copied().fold(f64::NAN, f64::min),
        max: values.iter().copied().fold(f64::NAN, f64::max),
        interval: crate::stats::median_interval(&values),
        ratio: found,
        verdict,
        withheld: None,
        extra,
        extra_ratio,
    }
}

/// Withholds the comparison of an arm that cannot take so little time.
fn checked(results: &Results, case: &Case, mut arm: ArmAnalysis) -> ArmAnalysis {
    let plan = &results.plan;
    let (Some(ratio), Some(planned)) = (arm.ratio, plan.arm(&arm.arm)) else { return arm };
    let adds = experiments::named(&plan.experiment).is_some_and(|one| one.only_adds(case, planned));
    let times = Cost::new(ratio, case.better, 1.0).times;
    if adds && times < LEAST_TIMES {
        let unit = if case.unit == "bytes" { "bytes" } else { "time" };
        arm.verdict = Verdict::Withheld;
        arm.ratio = None;
        arm.withheld = Some(format!(
            "{times:.2} of the plain {unit} cannot be: this does the plain work and more. Something else \
             slowed the plain server, or ran it in another way. Measure again while the machine is quiet."
        ));
    }
    arm
}

/// Width of an A/A interval in percent; none without an interval.
fn width_percent(noise: &Ratio) -> Option<f64> {
    let width = (noise.high - noise.low) * 100.0;
    width.is_finite().then_some(width)
}

fn warnings_of(results: &Results, cases: &[CaseAnalysis]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for case in cases {
        let Some(floor_percent) = case.noise.as_ref().and_then(width_percent) else { continue };
        if floor_percent > NOISY_PERCENT {
            warnings.push(Warning::NoisyMachine {
                case: case.case.clone(),
                floor_percent,
                limit_percent: NOISY_PERCENT,
            });
        }
    }
    warnings.extend(results.plan.cases.iter().filter_map(|case| too_short(results, case)));
    let rounds = results.rounds_done();
    if rounds < LEAST_ROUNDS {
        warnings.push(Warning::TooFewRounds { rounds, least: LEAST_ROUNDS });
    }
    warnings
}

/// Warns of steps that are too short, for throughputs per second and for times. Other units, and
/// loops inside one process, have their own minimum.
fn too_short(results: &Results, case: &Case) -> Option<Warning> {
    if experiments::named(&results.plan.experiment).is_some_and(|one| one.loops_in_one_process()) {
        return None;
    }
    // A slice begins after the server's start, and many slices make up for the length of one.
    if matches!(case.until(), Ok(Some(_))) {
        return None;
    }
    let of = |value: fn(&Sample) -> f64| {
        let samples = results.samples.iter().filter(|sample| sample.case == case.id);
        median(&samples.map(value).collect::<Vec<f64>>())
    };
    let (step_s, least_s) = match case.unit.as_str() {
        "1/s" | "tps" => (of(|sample| sample.step_s), LEAST_STEP_S),
        "s" => (of(|sample| sample.value), LEAST_TIMED_S),
        _ => return None,
    };
    let case = case.id.clone();
    (step_s < least_s).then_some(Warning::TooShort { case, step_s, least_s })
}
