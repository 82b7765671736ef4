//! The figures behind tables, charts and findings.

use super::plan::{AGAIN, GOCRYPTFS, PLAIN, PLAIN_WITHOUT_CHECKSUMS, SELECT, spec_of};
use crate::analysis::Analysis;
use crate::error::LabError;
use crate::plan::{Arm, Case, Plan};
use crate::results::Results;

const MB: f64 = 1048576.0;

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
    let others = [PLAIN, AGAIN, PLAIN_WITHOUT_CHECKSUMS, GOCRYPTFS];
    plan.arms.iter().filter(move |arm| !others.contains(&arm.id.as_str()))
}

/// `shared_buffers` as PostgreSQL writes the setting.
pub fn size_words(size: &Size<'_>) -> String {
    format!("at shared_buffers={:.0}MB", size.buffers_mb)
}
