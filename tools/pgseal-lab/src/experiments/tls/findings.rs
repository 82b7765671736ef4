//! The summary in words, and the first screen; all numbers are computed from the data.

use std::collections::{BTreeMap, BTreeSet};

use super::Tls;
use super::arms::{AGAIN, GROUPS_KEY, PLAIN, USUAL_GROUP, USUAL_SUITE, Wanted};
use super::exhibits::of_study;
use super::plan::{CONNECT, MEGABYTE, PERSISTENT, ROWS};
use crate::analysis::{Analysis, ArmAnalysis, CaseAnalysis, ratio_between};
use crate::answer::{Answer, Question, Subject};
use crate::cost::{Cost, change};
use crate::exhibits::Finding;
use crate::published::TlsCipher;
use crate::results::Results;

const SERVER_CPU: &str = "server_cpu_s_per_op";
const CLIENT_CPU: &str = "client_cpu_s_per_op";

/// The findings in reading order.
pub fn findings(
    results: &Results,
    analysis: &Analysis,
    study: &[TlsCipher],
    wanted: &BTreeMap<String, Wanted>,
) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(case) = analysis.case(PERSISTENT) {
        all.extend(persistent(results, analysis, case, study));
    }
    all.extend(sizes(results, analysis));
    if let Some(case) = analysis.case(CONNECT) {
        all.extend(connections(analysis, case));
        all.extend(certificates(results, analysis, case, wanted));
        all.extend(groups(results, case, wanted));
    }
    if let Some(case) = analysis.case(PERSISTENT) {
        all.extend(suites(case));
    }
    all.extend(client_bound(analysis));
    all.extend(missing(results));
    all
}

/// The first screen: the usual suite, by the size of the result.
pub fn answer(results: &Results, analysis: &Analysis, study: &[TlsCipher]) -> Option<Answer> {
    let arm = results.plan.arm(USUAL_SUITE)?;
    let costs = study_costs(study);
    let range = match (costs.first(), costs.last()) {
        (Some((_, least)), Some((_, most))) => {
            format!("2013: {:+.0} to {:+.0} % time", (least - 1.0) * 100.0, (most - 1.0) * 100.0)
        }
        _ => String::new(),
    };
    let theirs = costs.last().map(|(_, times)| *times);
    let cases = vec![
        (PERSISTENT, "one row, connection kept", theirs),
        (ROWS, "100 rows", None),
        (MEGABYTE, "one value of 1 MB", None),
        (CONNECT, "a connection each, RSA-2048", None),
    ];
    let (subject, experiment) = (Subject::Connections, &Tls);
    let (base, arm, study) = ("no TLS", (arm, "TLS 1.3, AES-256-GCM"), range);
    Question { subject, experiment, results, analysis, base, arm, cases, study }.answer()
}

/// The study's suites with their cost, the cheapest first.
pub fn study_costs(study: &[TlsCipher]) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = study
        .iter()
        .filter(|row| row.bits > 0)
        .filter_map(|row| {
            let (_, ratio) = of_study(study, PERSISTENT, &row.cipher)?;
            Some((row.cipher.clone(), 1.0 / ratio))
        })
        .collect();
    all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    all
}

fn tls_arms(case: &CaseAnalysis) -> impl Iterator<Item = &ArmAnalysis> {
    case.arms.iter().filter(|arm| arm.n > 0 && arm.arm != PLAIN && arm.arm != AGAIN)
}

fn micro(arm: &ArmAnalysis, extra: &str) -> Option<f64> {
    arm.extra.get(extra).map(|seconds| seconds * 1e6)
}

fn cost_of(results: &Results, analysis: &Analysis, case: &str, arm: &str) -> Option<Cost> {
    analysis.cost(results.plan.case(case)?, arm)
}

/// Connections that stay, with the study's small rows.
fn persistent(
    results: &Results,
    analysis: &Analysis,
    case: &CaseAnalysis,
    study: &[TlsCipher],
) -> Vec<Finding> {
    let cost = |arm: &str| cost_of(results, analysis, PERSISTENT, arm);
    let place = "for the study's small rows";
    let mut all = Vec::new();
    let theirs: Vec<String> = study_costs(study)
        .iter()
        .map(|(suite, times)| format!("{suite} {}", change(*times)))
        .collect();
    if let Some(found) = cost(USUAL_SUITE) {
        let study = format!("Time against no TLS: {}.", theirs.join(", "));
        all.push(Finding::with_study(found.sentence(USUAL_SUITE, place), study));
    }
    let worst = tls_arms(case)
        .filter_map(|arm| Some((arm.arm.as_str(), cost(&arm.arm)?)))
        .filter(|(_, cost)| cost.differs())
        .max_by(|(_, one), (_, other)| one.times.total_cmp(&other.times));
    if let Some((arm, found)) = worst
        && arm != USUAL_SUITE
    {
        let most = format!("{place}, the most of all");
        all.push(Finding::new(found.sentence(arm, &most)));
    }
    for (suite, times) in study_costs(study) {
        if let Some(found) = cost(&suite)
            && worst.is_none_or(|(arm, _)| arm != suite)
        {
            let study = format!("{suite} {}.", change(times));
            all.push(Finding::with_study(found.sentence(&suite, place), study));
        }
    }
    let usual = case.arm(USUAL_SUITE).filter(|arm| arm.n > 0);
    if let (Some(plain), Some(usual)) = (case.arm(PLAIN), usual)
        && let (Some(without), Some(with)) = (micro(plain, SERVER_CPU), micro(usual, SERVER_CPU))
        && usual.extra_ratio.get(SERVER_CPU).is_some_and(|ratio| ratio.low > 1.0)
    {
        all.push(Finding::new(format!(
            "{USUAL_SUITE} costs the server {:.1} us more CPU time for each small row.",
            with - without
        )));
    }
    all
}

/// Compares the suites by the server's CPU time, where small differences show best.
fn suites(case: &CaseAnalysis) -> Option<Finding> {
    let mut by_cpu: Vec<(&str, f64)> = tls_arms(case)
        .filter_map(|arm| Some((arm.arm.as_str(), micro(arm, SERVER_CPU)?)))
        .collect();
    by_cpu.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((first, least), (last, most)) = (by_cpu.first()?, by_cpu.last()?);
    (by_cpu.len() > 1).then(|| {
        Finding::new(format!(
            "For a small row {last} costs the server {:.0} % more CPU time than {first}.",
            (most / least - 1.0) * 100.0
        ))
    })
}

fn connections(analysis: &Analysis, case: &CaseAnalysis) -> Vec<Finding> {
    let cpu = |arm: &str, side: &str| {
        let found = case.arm(arm).filter(|arm| arm.n > 0);
        found.and_then(|arm| micro(arm, side))
    };
    let handshake = |side: &str| Some(cpu(GROUPS_KEY.name(), side)? - cpu(PLAIN, side)?);
    let mut all = Vec::new();
    for (side, name) in [(SERVER_CPU, "server"), (CLIENT_CPU, "client")] {
        if let Some(cost) = handshake(side).filter(|cost| *cost > 0.0) {
            all.push(Finding::new(format!(
                "A TLS handshake (TLSv1.3, {}) costs the {name} {cost:.0} us of CPU time.",
                GROUPS_KEY.name()
            )));
        }
    }
    let small = |arm: &str| analysis.arm(PERSISTENT, arm).and_then(|arm| micro(arm, SERVER_CPU));
    // Only where the cost for the small result exceeds the noise.
    let proved = analysis
        .arm(PERSISTENT, USUAL_SUITE)
        .and_then(|arm| arm.extra_ratio.get(SERVER_CPU))
        .is_some_and(|ratio| ratio.low > 1.0);
    if let (true, Some(without), Some(with), Some(cost)) =
        (proved, small(PLAIN), small(USUAL_SUITE), handshake(SERVER_CPU))
        && cost > 0.0
    {
        all.push(Finding::new(format!(
            "One handshake costs the server as much as TLS for {:.0} small rows, so keep connections.",
            cost / (with - without)
        )));
    }
    all
}

fn certificates(
    results: &Results,
    analysis: &Analysis,
    case: &CaseAnalysis,
    wanted: &BTreeMap<String, Wanted>,
) -> Vec<Finding> {
    // The same suite and group with each certificate.
    let one = |arm: &ArmAnalysis| {
        let wanted = wanted.get(&arm.arm)?;
        let usual = wanted.suite == USUAL_SUITE && wanted.group == USUAL_GROUP;
        let cost = cost_of(results, analysis, CONNECT, &arm.arm).filter(|_| usual)?;
        let name = format!("TLS with a certificate {}", wanted.certificate);
        Some(Finding::new(cost.sentence(&name, "for a new connection")))
    };
    tls_arms(case).filter_map(one).collect()
}

fn groups(
    results: &Results,
    case: &CaseAnalysis,
    wanted: &BTreeMap<String, Wanted>,
) -> Vec<Finding> {
    let base = GROUPS_KEY.name();
    let Some(planned) = results.plan.case(&case.case) else { return Vec::new() };
    let one = |arm: &ArmAnalysis| {
        let wanted = wanted.get(&arm.arm)?;
        let other = wanted.certificate == base && wanted.group != USUAL_GROUP;
        let ratio = other.then(|| ratio_between(results, &case.case, &arm.arm, base))??;
        let cost = Cost::new(ratio, planned.better, case.noise_floor);
        let group = format!("Group {}", wanted.group);
        Some(Finding::new(cost.against(&group, USUAL_GROUP, "for a new connection")))
    };
    tls_arms(case).filter_map(one).collect()
}

fn sizes(results: &Results, analysis: &Analysis) -> Vec<Finding> {
    [(ROWS, "for a hundred rows"), (MEGABYTE, "for a value of a megabyte")]
        .into_iter()
        .filter_map(|(id, place)| {
            let cost = cost_of(results, analysis, id, USUAL_SUITE)?;
            Some(Finding::new(cost.sentence(USUAL_SUITE, place)))
        })
        .collect()
}

fn client_bound(analysis: &Analysis) -> Vec<Finding> {
    let is = |arm: &&ArmAnalysis| {
        let busy = |name: &str| arm.extra.get(name).copied().unwrap_or(0.0);
        busy("client_busy_share") >= 0.9 && busy("server_busy_share") < 0.9
    };
    let one = |case: &CaseAnalysis| {
        let count = case.arms.iter().filter(is).count();
        (count > 0).then(|| {
            Finding::new(format!(
                "In {} the client was the limit in {count} arms, so look at the server's CPU time.",
                case.case
            ))
        })
    };
    analysis.cases.iter().filter_map(one).collect()
}

fn missing(results: &Results) -> Vec<Finding> {
    let names: BTreeSet<&str> =
        results.missing.iter().map(|missing| missing.what.as_str()).collect();
    let one = |name: &str| {
        let text = format!("{name} could not be measured here, the reason stands below.");
        match name {
            "RC4-SHA" => Finding::with_study(text, "RC4-SHA was the study's fastest suite."),
            _ => Finding::new(text),
        }
    };
    names.into_iter().map(one).collect()
}
