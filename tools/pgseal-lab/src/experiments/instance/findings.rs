//! The summary in words, and the first screen.

use super::Instance;
use super::figures::{Size, beyond_limit, data_bytes, others, plain_extra, size_words, suites};
use super::plan::{GOCRYPTFS, spec_of};
use crate::analysis::{Analysis, Verdict, ratio_between};
use crate::answer::{Answer, Question, Subject};
use crate::cost::{Cost, is_suite};
use crate::error::LabError;
use crate::exhibits::Finding;
use crate::plan::{Arm, Case};
use crate::results::Results;

/// All findings.
pub fn findings(
    results: &Results,
    analysis: &Analysis,
    sizes: &[Size<'_>],
) -> Result<Vec<Finding>, LabError> {
    let mut all = Vec::new();
    all.extend(over_buffers(results, analysis, sizes));
    all.extend(suites(&results.plan).flat_map(|arm| workloads(results, analysis, arm)));
    all.extend(per_block(results, analysis, sizes));
    all.extend(key_length(results, analysis, sizes));
    all.extend(beyond_memory(results, analysis)?);
    all.extend(peer(results, analysis, sizes));
    Ok(all)
}

/// The time that a sealed server should take at most: the aims of `docs/costs.md`.
pub fn most(case: &str, arm: &str) -> Option<f64> {
    let gcm = arm.contains("gcm");
    if !is_suite(arm) {
        return None;
    }
    match case {
        "scan-warm" => Some(if gcm { 1.18 } else { 1.13 }),
        "churn" => Some(1.0 / 0.95),
        "tpcb" | "tpcb-async" => Some(1.0 / 0.97),
        "index" | "vacuum-full" | "init" => Some(1.10),
        case if case.starts_with("select-") => Some(1.0 / 0.94),
        _ => None,
    }
}

/// The first screen: the first suite, over the sweep's ends and the usual workloads.
pub fn answer(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Option<Answer> {
    let arm = suites(&results.plan).next()?;
    let ends = [sizes.first(), sizes.last().filter(|_| sizes.len() > 1)];
    let mut cases: Vec<(&str, &str, Option<f64>)> = Vec::new();
    for (size, name) in ends.into_iter().zip(["look-ups, few buffers", "look-ups, all in buffers"])
    {
        cases.extend(size.map(|size| (size.case.id.as_str(), name, None)));
    }
    cases.extend([
        ("scan-warm", "sequential scan", None),
        ("tpcb", "writes (TPC-B)", None),
        ("churn", "new connections", None),
        ("init", "loading (pgbench -i)", None),
    ]);
    let study = "near zero once the data fit".to_owned();
    let (experiment, base) = (&Instance, "plain");
    let subject = Subject::Instance;
    Question { subject, experiment, results, analysis, base, arm: (arm, &arm.id), cases, study }
        .answer()
}

/// The study's main result: the cost at both ends of the sweep.
fn over_buffers(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Vec<Finding> {
    let ends = [sizes.first(), sizes.last().filter(|_| sizes.len() > 1)];
    let mut all: Vec<Finding> = Vec::new();
    for size in ends.into_iter().flatten() {
        // Those that take few cases are in the table.
        for arm in suites(&results.plan).take(2) {
            if let Some(cost) = analysis.cost(size.case, &arm.id) {
                all.push(Finding::new(cost.sentence(&arm.id, &size_words(size))));
            }
        }
    }
    if let Some(first) = all.first_mut() {
        let study =
            "The cost falls as shared_buffers grows and is close to zero once the data fits.";
        first.study = Some(study.to_owned());
    }
    all
}

/// CPU time per block read, from the difference to the plain server.
fn per_block(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Vec<Finding> {
    let one = |size: &Size<'_>, arm: &Arm| {
        let blocks = size.blocks_read.filter(|blocks| *blocks > 0.1)?;
        let plain_s = plain_extra(results, analysis, size.case, "server_cpu_s_per_op")?;
        let found = analysis.arm(&size.case.id, &arm.id)?;
        let block_s = (found.extra.get("server_cpu_s_per_op")? - plain_s) / blocks;
        let apart = found.extra_ratio.get("server_cpu_s_per_op")?.low > 1.0;
        (block_s > 0.0 && apart).then(|| {
            Finding::new(format!(
                "Reading a block from the OS cache costs {} {:.1} us more CPU time than plain.",
                arm.id,
                block_s * 1e6
            ))
        })
    };
    let Some(size) = sizes.first() else { return Vec::new() };
    let mut all: Vec<Finding> = suites(&results.plan).filter_map(|arm| one(size, arm)).collect();
    if let Some(first) = all.first_mut() {
        first.study = Some(
            "A prototype with the CPU's AES instructions ran at 3 GB/s for each core on Haswell \
             (1.25 bytes a cycle), which is 2.7 us for a block."
                .to_owned(),
        );
    }
    all
}

fn key_length(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Vec<Finding> {
    let Some(size) = sizes.first() else { return Vec::new() };
    let floor = analysis.case(&size.case.id).map_or(1.0, |case| case.noise_floor);
    let one = |mode: &str| {
        let (long, short) = (format!("aes-256-{mode}"), format!("aes-128-{mode}"));
        let ratio = ratio_between(results, &size.case.id, &long, &short)?;
        let cost = Cost::new(ratio, size.case.better, floor);
        Some(Finding::new(cost.against(&long, &short, &size_words(size))))
    };
    ["gcm", "xts", "ctr"].into_iter().filter_map(one).collect()
}

fn beyond_memory(results: &Results, analysis: &Analysis) -> Result<Vec<Finding>, LabError> {
    let Some(case) = results.plan.case("beyond-memory") else { return Ok(Vec::new()) };
    let Some(limit) = spec_of(case)?.memory_limit_bytes else { return Ok(Vec::new()) };
    let Some(data) = data_bytes(results, analysis, case) else { return Ok(Vec::new()) };
    if !beyond_limit(data, limit) {
        return Ok(vec![Finding::new(format!(
            "beyond-memory did not get beyond memory: the data fit into its limit of {} MB.",
            limit >> 20
        ))]);
    }
    let costs = suites(&results.plan).filter_map(|arm| {
        let cost = analysis.cost(case, &arm.id)?;
        Some(Finding::new(cost.sentence(&arm.id, "with data larger than the memory")))
    });
    Ok(costs.collect())
}

/// Which cases outside the sweep have a cost, and how many have none.
fn workloads(results: &Results, analysis: &Analysis, arm: &Arm) -> Vec<Finding> {
    let mut differ: Vec<(f64, String)> = Vec::new();
    let (mut count, mut same, mut few, mut withheld) = (0, 0, 0, 0);
    let cases = || others(results).filter(|case| case.id != "beyond-memory");
    for case in cases() {
        let Some(found) = analysis.arm(&case.id, &arm.id).filter(|found| found.n > 0) else {
            continue;
        };
        count += 1;
        match (found.verdict, analysis.cost(case, &arm.id)) {
            (Verdict::Better | Verdict::Worse, Some(cost)) => {
                differ.push((cost.times, cost.sentence(&arm.id, &format!("in {}", case.id))));
            }
            (Verdict::NoDifference, _) => same += 1,
            (Verdict::TooFew, _) => few += 1,
            (Verdict::Withheld, _) => withheld += 1,
            _ => {}
        }
    }
    // Those that take few cases are in the table.
    if count < cases().count() {
        return Vec::new();
    }
    differ.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut all: Vec<Finding> = differ.into_iter().map(|(_, text)| Finding::new(text)).collect();
    let many = |count: usize| if count == 1 { "workload" } else { "workloads" };
    for (number, words) in [
        (same, "no cost beyond the noise in"),
        (few, "too few rounds to tell cost from noise in"),
        (withheld, "a figure that cannot be, and is withheld, in"),
    ] {
        if number > 0 {
            all.push(Finding::new(format!("{}: {words} {number} {}.", arm.id, many(number))));
        }
    }
    all
}

/// The other encryption: where it costs most, beside ours.
fn peer(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Vec<Finding> {
    let cases = sizes.first().map(|size| size.case).into_iter().chain(others(results));
    let mut found: Vec<(f64, Cost, &Case)> = cases
        .filter_map(|case| {
            let cost = analysis.cost(case, GOCRYPTFS)?;
            cost.differs().then_some((cost.times, cost, case))
        })
        .collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let say = |(_, cost, case): &(f64, Cost, &Case)| {
        let name = "A plain server on gocryptfs (through FUSE)";
        Finding::new(cost.sentence(name, &format!("in {}", case.id)))
    };
    let ends = match found.as_slice() {
        [] => Vec::new(),
        [one] => vec![one],
        [first, .., last] => vec![first, last],
    };
    ends.into_iter().map(say).collect()
}
