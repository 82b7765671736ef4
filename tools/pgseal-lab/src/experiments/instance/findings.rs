//! The summary in words.

use super::figures::{
    Cost, Size, beyond_limit, data_bytes, others, plain_extra, size_words, suites,
};
use super::plan::{AGAIN, GOCRYPTFS, spec_of};
use crate::analysis::{Analysis, Verdict, ratio_between};
use crate::error::LabError;
use crate::exhibits::Finding;
use crate::plan::{Arm, Better, Case};
use crate::results::Results;

/// All findings.
pub fn findings(
    results: &Results,
    analysis: &Analysis,
    sizes: &[Size<'_>],
) -> Result<Vec<Finding>, LabError> {
    let mut all = Vec::new();
    all.extend(over_buffers(results, analysis, sizes));
    all.extend(per_block(results, analysis, sizes));
    all.extend(key_length(results, sizes));
    all.extend(scans(results, analysis));
    all.extend(beyond_memory(results, analysis)?);
    all.extend(suites(&results.plan).filter_map(|arm| workloads(results, analysis, arm)));
    all.extend(peer(results, analysis, sizes));
    all.extend(noise(results, analysis));
    Ok(all)
}

/// The study's main result: cost at both ends of the sweep.
fn over_buffers(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Option<Finding> {
    let (first, last) = (sizes.first()?, sizes.last().filter(|_| sizes.len() > 1)?);
    let mut parts = Vec::new();
    for arm in suites(&results.plan) {
        let at = |size: &Size<'_>| Cost::of(analysis, size.case, &arm.id);
        if let (Some(small), Some(large)) = (at(first), at(last)) {
            parts.push(format!("{}: {}, then {}", arm.id, small.words(), large.words()));
        }
    }
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "pgbench -S loses, with {} and then with {}: {}.",
        size_words(first),
        size_words(last),
        parts.join("; ")
    );
    let study = "The cost falls as shared_buffers grows and is close to zero once the data fits.";
    Some(Finding::with_study(text, study))
}

/// CPU time per block read, from the difference to the plain server.
fn per_block(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Option<Finding> {
    const BLOCK_BYTES: f64 = 8192.0;
    let size = sizes.first()?;
    let blocks = size.blocks_read.filter(|blocks| *blocks > 0.1)?;
    let plain_s = plain_extra(results, analysis, size.case, "server_cpu_s_per_op")?;
    let mut parts = Vec::new();
    for arm in suites(&results.plan) {
        let found = analysis.arm(&size.case.id, &arm.id);
        let Some(sealed_s) = found.and_then(|found| found.extra.get("server_cpu_s_per_op")) else {
            continue;
        };
        let block_s = (sealed_s - plain_s) / blocks;
        let apart = found.and_then(|found| found.extra_ratio.get("server_cpu_s_per_op"));
        if block_s > 0.0 && apart.is_some_and(|ratio| ratio.low > 1.0) {
            let gb_s = BLOCK_BYTES / block_s / 1e9;
            parts.push(format!("{} {:.1} us ({gb_s:.1} GB/s)", arm.id, block_s * 1e6));
        }
    }
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "With {} a transaction reads {blocks:.1} blocks of 8 kB from the OS cache. Reading one costs the \
         server this much more CPU time than the plain one, all that belongs to it counted: {}.",
        size_words(size),
        parts.join("; ")
    );
    let study = "The AES of the patch was slow; a prototype with the CPU's AES instructions ran at 3 GB/s \
                 for each core on Haswell (1.25 bytes a cycle).";
    Some(Finding::with_study(text, study))
}

fn key_length(results: &Results, sizes: &[Size<'_>]) -> Option<Finding> {
    let size = sizes.first()?;
    let mut parts = Vec::new();
    for mode in ["gcm", "xts", "ctr"] {
        let (long, short) = (format!("aes-256-{mode}"), format!("aes-128-{mode}"));
        let found = ratio_between(results, &size.case.id, &long, &short);
        if let Some(ratio) = found.filter(|ratio| ratio.low.is_finite()) {
            let words = if ratio.low <= 1.0 && ratio.high >= 1.0 { ", no difference" } else { "" };
            parts.push(format!(
                "{mode} {:.3} (95 %: {:.3} to {:.3}{words})",
                ratio.value, ratio.low, ratio.high
            ));
        }
    }
    if parts.is_empty() {
        return None;
    }
    Some(Finding::new(format!(
        "Throughput with a 256-bit key over that with a 128-bit key, {}: {}.",
        size_words(size),
        parts.join("; ")
    )))
}

/// The same scan from the OS cache and from disk.
fn scans(results: &Results, analysis: &Analysis) -> Option<Finding> {
    let (warm, cold) = (results.plan.case("scan-warm")?, results.plan.case("scan-cold")?);
    let mut parts = Vec::new();
    for arm in suites(&results.plan) {
        let at = |case: &Case| Cost::of(analysis, case, &arm.id);
        if let (Some(warm), Some(cold)) = (at(warm), at(cold)) {
            parts.push(format!("{}: {} warm, {} cold", arm.id, warm.words(), cold.words()));
        }
    }
    let plain = &results.plan.baseline_of(warm)?.id;
    let (warm_s, cold_s) = (analysis.median(&warm.id, plain)?, analysis.median(&cold.id, plain)?);
    if parts.is_empty() {
        return None;
    }
    Some(Finding::new(format!(
        "A sequential scan takes the plain server {warm_s:.3} s from a warm OS cache and {cold_s:.3} s from a \
         cold one. Sealing adds: {}.",
        parts.join("; ")
    )))
}

fn beyond_memory(results: &Results, analysis: &Analysis) -> Result<Option<Finding>, LabError> {
    let Some(case) = results.plan.case("beyond-memory") else { return Ok(None) };
    let limit = spec_of(case)?.memory_limit_bytes;
    Ok(limit.and_then(|limit| beyond_limit_of(results, analysis, case, limit)))
}

fn beyond_limit_of(
    results: &Results,
    analysis: &Analysis,
    case: &Case,
    limit: u64,
) -> Option<Finding> {
    let share = plain_extra(results, analysis, case, "os_cache_share")?;
    let blocks = plain_extra(results, analysis, case, "blocks_read_per_op")?;
    let data = data_bytes(results, analysis, case)?;
    let costs = costs(results, analysis, case);
    let (data_mb, limit_mb) = (data / 1048576.0, limit >> 20);
    let larger = if beyond_limit(data, limit) {
        format!(
            "With data ({data_mb:.0} MB) larger than shared_buffers and OS cache together (at most {limit_mb} MB)"
        )
    } else {
        format!(
            "beyond-memory did not get beyond memory: the data ({data_mb:.0} MB) fit into its limit of \
             {limit_mb} MB. There"
        )
    };
    (!costs.is_empty()).then(|| {
        Finding::new(format!(
            "{larger} pgbench -S loses ({:.0} % of the table in the OS cache after a run, {blocks:.1} blocks \
             read a transaction): {costs}.",
            share * 100.0
        ))
    })
}

fn costs(results: &Results, analysis: &Analysis, case: &Case) -> String {
    let parts = suites(&results.plan).filter_map(|arm| {
        Some(format!("{} {}", arm.id, Cost::of(analysis, case, &arm.id)?.words()))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Which cases outside the sweep have a cost, and which have none.
fn workloads(results: &Results, analysis: &Analysis, arm: &Arm) -> Option<Finding> {
    let mut worse: Vec<(f64, String)> = Vec::new();
    let (mut same, mut better, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    let mut count = 0;
    for case in others(results) {
        let Some(cost) = Cost::of(analysis, case, &arm.id) else { continue };
        count += 1;
        let what = match case.better {
            Better::Higher => "less throughput",
            Better::Lower => "more time",
        };
        match cost.verdict {
            _ if !cost.enough_rounds() => {
                unclear.push(format!("{} ({:+.1} %)", case.id, cost.percent))
            }
            Verdict::Worse => {
                worse.push((cost.percent, format!("{} {:.1} % {what}", case.id, cost.percent)));
            }
            Verdict::Better => better.push(format!("{} ({:.1} %)", case.id, -cost.percent)),
            Verdict::NoDifference => same.push(case.id.clone()),
            _ => {}
        }
    }
    // Those that take few cases are in the table.
    if count < others(results).count()
        || worse.len() + same.len() + better.len() + unclear.len() == 0
    {
        return None;
    }
    worse.sort_by(|a, b| b.0.total_cmp(&a.0));
    let worse: Vec<String> = worse.into_iter().map(|(_, words)| words).collect();
    let parts: Vec<String> = [
        ("costs, most first", worse),
        ("costs nothing beyond the noise in", same),
        ("is faster than plain in", better),
        ("was measured in too few rounds to tell cost from noise in", unclear),
    ]
    .into_iter()
    .filter(|(_, list)| !list.is_empty())
    .map(|(words, list)| format!("{words}: {}", list.join(", ")))
    .collect();
    let study = "The study measured pgbench -S only.";
    let text = format!("In the other workloads {} {}.", arm.id, parts.join("; "));
    Some(Finding::with_study(text, study))
}

fn peer(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Option<Finding> {
    let arm = suites(&results.plan).next()?;
    let mut parts = Vec::new();
    let cases = sizes.first().map(|size| size.case).into_iter();
    for case in cases.chain(others(results)) {
        let (Some(theirs), Some(ours)) =
            (Cost::of(analysis, case, GOCRYPTFS), Cost::of(analysis, case, &arm.id))
        else {
            continue;
        };
        parts.push(format!("{} {:.1} % against {:.1} %", case.id, theirs.percent, ours.percent));
    }
    if parts.is_empty() {
        return None;
    }
    Some(Finding::new(format!(
        "A plain server on gocryptfs (AES-256-GCM in user space, through FUSE) costs, against {}: {}.",
        arm.id,
        parts.join("; ")
    )))
}

fn noise(results: &Results, analysis: &Analysis) -> Option<Finding> {
    let mut found: Vec<(f64, &str)> = results
        .plan
        .cases
        .iter()
        .filter_map(|case| {
            let cost = Cost::of(analysis, case, AGAIN)?;
            Some((cost.percent.abs(), case.id.as_str()))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (widest, case) = *found.first()?;
    let middle = found.get(found.len() / 2)?.0;
    Some(Finding::new(format!(
        "Two plain clusters differ by {middle:.1} % in the middle of {} cases and by {widest:.1} % at most \
         ({case}): differences of that size are noise.",
        found.len()
    )))
}
