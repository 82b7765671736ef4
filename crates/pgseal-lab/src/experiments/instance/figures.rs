//! What tables, charts and findings are made of.

use super::plan::{AGAIN, GOCRYPTFS, SELECT, spec_of};
use super::work::Spec;
use crate::analysis::{Analysis, LEAST_ROUNDS, Verdict};
use crate::plan::{Arm, Better, Case, Plan};
use crate::results::Results;
use crate::stats::Ratio;

const MB: f64 = 1048576.0;

/// What an arm costs in a case: throughput lost or time added, in percent of the plain server's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The median's; below 0: it gains.
    pub percent: f64,
    /// Lower end of the 95 % interval; NaN of one round.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Against the noise.
    pub verdict: Verdict,
    /// The ratio it comes from.
    pub ratio: Ratio,
    /// Rounds that it was measured in.
    pub rounds: usize,
}

impl Cost {
    /// Of an arm in a case, if both it and the plain one were measured.
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

    /// Whether the interval means something; if not, nothing can be called noise or no noise.
    pub fn enough_rounds(&self) -> bool {
        self.rounds >= LEAST_ROUNDS as usize
    }

    /// `12.3 % (95 %: 10.1 to 14.2)`, or that it is nothing that stands out from the noise, or that the
    /// rounds are too few to tell.
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

/// A size of the sweep.
#[derive(Debug, Clone)]
pub struct Size<'a> {
    /// Its case.
    pub case: &'a Case,
    /// `shared_buffers`, in MB.
    pub buffers_mb: f64,
    /// Size of the data over that of shared_buffers; none where nothing was measured.
    pub data_to_buffers: Option<f64>,
    /// 8 kB blocks a transaction that the plain server read from outside shared_buffers.
    pub blocks_read: Option<f64>,
}

/// The sweep, from the smallest size to the largest.
pub fn sweep<'a>(results: &'a Results, analysis: &Analysis) -> Vec<Size<'a>> {
    let cases = results.plan.cases.iter().filter(|case| case.id.starts_with(SELECT));
    let mut sizes: Vec<Size<'a>> = cases
        .filter_map(|case| {
            let spec = spec_of(case)?;
            let data_to_buffers = data_bytes(results, analysis, case)
                .map(|bytes| bytes / spec.shared_buffers_bytes as f64);
            let blocks_read = plain_extra(results, analysis, case, "blocks_read_per_op");
            let buffers_mb = spec.shared_buffers_bytes as f64 / MB;
            Some(Size { case, buffers_mb, data_to_buffers, blocks_read })
        })
        .collect();
    sizes.sort_by(|a, b| a.buffers_mb.total_cmp(&b.buffers_mb));
    sizes
}

/// The cases besides the sweep.
pub fn others(results: &Results) -> impl Iterator<Item = (&Case, Spec)> {
    let cases = results.plan.cases.iter().filter(|case| !case.id.starts_with(SELECT));
    cases.filter_map(|case| Some((case, spec_of(case)?)))
}

/// Whether the data of a case are larger than what its memory limit lets server and OS cache hold
/// together. Where the limit is not smaller they may have been in memory all the time.
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

/// The arms but the plain one: suites, peers, the plain one again.
pub fn compared(plan: &Plan) -> impl Iterator<Item = &Arm> {
    plan.arms.iter().skip(1)
}

/// The sealed arms.
pub fn suites(plan: &Plan) -> impl Iterator<Item = &Arm> {
    plan.arms.iter().filter(|arm| arm.id != GOCRYPTFS && arm.id != AGAIN).skip(1)
}

/// `shared_buffers` as people write it.
pub fn size_words(size: &Size<'_>) -> String {
    let data = match size.data_to_buffers {
        Some(ratio) if ratio > 1.0 => format!("data {ratio:.1} times as large"),
        Some(ratio) => format!("all data fit, {:.0} % of it", ratio * 100.0),
        None => "not measured".to_owned(),
    };
    format!("{:.0} MB of shared_buffers ({data})", size.buffers_mb)
}
