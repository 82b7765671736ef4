//! The figures behind tables, charts and findings.

use super::plan::{AGAIN, GOCRYPTFS, SELECT, spec_of};
use crate::analysis::{Analysis, LEAST_ROUNDS, Verdict};
use crate::error::LabError;
use crate::plan::{Arm, Better, Case, Plan};
use crate::results::Results;
use crate::stats::Ratio;

const MB: f64 = 1048576.0;

/// The cost of an arm in a case: throughput lost or time added, in percent of the plain server's
/// value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The cost by the medians; negative: a gain.
    pub percent: f64,
    /// Lower end of the 95 % interval; NaN with one round.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// The verdict, given the noise.
    pub verdict: Verdict,
    /// The ratio from which the cost is computed.
    pub ratio: Ratio,
    /// Number of rounds measured.
    pub rounds: usize,
}

impl Cost {
    /// The cost of an arm in a case, if both the arm and the plain server were measured.
    pub fn of(analysis: &Analysis, case: &Case, arm: &str) -> Option<Self> {
        let found = analysis.arm(&case.id, arm)?;
        let ratio = found.ratio?;
        let of = |value: f64| match case.better {
            Better::Higher => (1.0 - value) * 100.0,
            Better::Lower => (value - 1.0) * 100.0,
        };
        let (low, high) = match case.better {
            Better::Higher => (of(ratio.high), of(ratio.low)),
            Better::Lower => (of(ratio.low), of(ratio.high)),
        };
        let (percent, verdict) = (of(ratio.value), found.verdict);
        Some(Self { percent, low, high, verdict, ratio, rounds: found.n })
    }

    /// Whether there are enough rounds for a meaningful interval.
    pub fn enough_rounds(&self) -> bool {
        self.rounds >= LEAST_ROUNDS as usize
    }

    /// `12.3 % (95 %: 10.1 to 14.2)`, or that the cost is within the noise, or that there are too
    /// few rounds.
    pub fn words(&self) -> String {
        let percent = format!("{:.1} %", self.percent);
        if self.low.is_nan() {
            return format!("{percent} (one round, no interval)");
        }
        let interval = format!("95 %: {:.1} to {:.1}", self.low, self.high);
        match self.verdict {
            _ if !self.enough_rounds() => {
                format!(
                    "{percent} ({interval}; {} rounds are too few to tell it from noise)",
                    self.rounds
                )
            }
            Verdict::NoDifference => format!("nothing beyond the noise ({percent}; {interval})"),
            Verdict::Better => format!("less than nothing: it gains ({percent}; {interval})"),
            _ => format!("{percent} ({interval})"),
        }
    }
}

/// One size of shared_buffers in the sweep.
#[derive(Debug, Clone)]
pub struct Size<'a> {
    /// The case of this size.
    pub case: &'a Case,
    /// `shared_buffers`, in MB.
    pub buffers_mb: f64,
    /// Size of the data relative to shared_buffers; none if not measured.
    pub data_to_buffers: Option<f64>,
    /// 8 kB blocks per transaction that the plain server read from outside shared_buffers.
    pub blocks_read: Option<f64>,
}

/// The sweep, from the smallest size to the largest.
///
/// # Errors
///
/// [`LabError::Plan`] for a plan of another experiment.
pub fn sweep<'a>(results: &'a Results, analysis: &Analysis) -> Result<Vec<Size<'a>>, LabError> {
    let cases = results.plan.cases.iter().filter(|case| case.id.starts_with(SELECT));
    let mut sizes = cases
        .map(|case| {
            let spec = spec_of(case)?;
            let data_to_buffers = data_bytes(results, analysis, case)
                .map(|bytes| bytes / spec.shared_buffers_bytes as f64);
            let blocks_read = plain_extra(results, analysis, case, "blocks_read_per_op");
            let buffers_mb = spec.shared_buffers_bytes as f64 / MB;
            Ok(Size { case, buffers_mb, data_to_buffers, blocks_read })
        })
        .collect::<Result<Vec<Size<'a>>, LabError>>()?;
    sizes.sort_by(|a, b| a.buffers_mb.total_cmp(&b.buffers_mb));
    Ok(sizes)
}

/// The cases that are not part of the sweep.
pub fn others(results: &Results) -> impl Iterator<Item = &Case> {
    results.plan.cases.iter().filter(|case| !case.id.starts_with(SELECT))
}

/// Whether the data of a case exceed the memory limit of server and OS cache together. Otherwise
/// the data may have been in memory all the time.
pub fn beyond_limit(data_bytes: f64, limit_bytes: u64) -> bool {
    data_bytes > limit_bytes as f64
}

/// Size of the database of a case in bytes.
pub fn data_bytes(results: &Results, analysis: &Analysis, case: &Case) -> Option<f64> {
    plain_extra(results, analysis, case, "data_bytes")
}

/// A further figure of the plain server.
pub fn plain_extra(results: &Results, analysis: &Analysis, case: &Case, name: &str) -> Option<f64> {
    let plain = results.plan.baseline_of(case)?;
    analysis.arm(&case.id, &plain.id)?.extra.get(name).copied()
}

/// All arms except the plain one: suites, peers, the second measurement of the plain one.
pub fn compared(plan: &Plan) -> impl Iterator<Item = &Arm> {
    plan.arms.iter().skip(1)
}

/// The sealed arms.
pub fn suites(plan: &Plan) -> impl Iterator<Item = &Arm> {
    plan.arms.iter().filter(|arm| arm.id != GOCRYPTFS && arm.id != AGAIN).skip(1)
}

/// `shared_buffers` in words.
pub fn size_words(size: &Size<'_>) -> String {
    let data = match size.data_to_buffers {
        Some(ratio) if ratio > 1.0 => format!("data {ratio:.1} times as large"),
        Some(ratio) => format!("all data fit, {:.0} % of it", ratio * 100.0),
        None => "not measured".to_owned(),
    };
    format!("{:.0} MB of shared_buffers ({data})", size.buffers_mb)
}
