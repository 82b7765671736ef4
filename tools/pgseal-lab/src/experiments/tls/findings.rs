//! The summary in words; all numbers are computed from the data.

use std::collections::BTreeMap;

use super::arms::{AGAIN, GROUPS_KEY, PLAIN, USUAL_GROUP, USUAL_SUITE, Wanted};
use super::exhibits::of_study;
use super::plan::{CONNECT, MEGABYTE, PERSISTENT, ROWS};
use crate::analysis::{Analysis, ArmAnalysis, CaseAnalysis, Verdict, ratio_between};
use crate::exhibits::Finding;
use crate::published::TlsCipher;
use crate::results::Results;
use crate::stats::Ratio;

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
        all.extend(persistent(case, study));
        all.extend(suites(case));
    }
    if let Some(case) = analysis.case(CONNECT) {
        all.extend(connections(analysis, case));
        all.extend(certificates(case, wanted));
        all.extend(groups(results, case, wanted));
    }
    all.extend(sizes(analysis));
    all.extend(client_bound(analysis));
    all.extend(missing(results));
    all
}

fn tls_arms(case: &CaseAnalysis) -> impl Iterator<Item = &ArmAnalysis> {
    case.arms.iter().filter(|arm| arm.n > 0 && arm.arm != PLAIN && arm.arm != AGAIN)
}

/// `12.3 %` less or more.
fn cost(ratio: f64) -> String {
    let percent = (1.0 - ratio) * 100.0;
    if percent >= 0.0 { format!("{percent:.1} % less") } else { format!("{:.1} % more", -percent) }
}

/// The cost like [`cost`], with the verdict if it is within the noise.
fn said(arm: &ArmAnalysis, ratio: Ratio) -> String {
    match arm.verdict {
        Verdict::NoDifference => format!("no difference: {}", cost(ratio.value)),
        _ => cost(ratio.value),
    }
}

fn micro(arm: &ArmAnalysis, extra: &str) -> Option<f64> {
    arm.extra.get(extra).map(|seconds| seconds * 1e6)
}

fn interval(ratio: Ratio) -> String {
    if !(ratio.low.is_finite() && ratio.high.is_finite()) {
        return "one round only".to_owned();
    }
    let ends = [(ratio.low - 1.0) * 100.0, (ratio.high - 1.0) * 100.0];
    format!("95 % interval {:+.1} to {:+.1} %", ends[0], ends[1])
}

fn persistent(case: &CaseAnalysis, study: &[TlsCipher]) -> Option<Finding> {
    let plain = case.arm(PLAIN).filter(|arm| arm.n > 0)?;
    let ratio_of = |arm: &&ArmAnalysis| arm.ratio.map(|ratio| ratio.value);
    let best = tls_arms(case)
        .max_by(|a, b| ratio_of(a).unwrap_or(0.0).total_cmp(&ratio_of(b).unwrap_or(0.0)))?;
    let worst = tls_arms(case)
        .min_by(|a, b| ratio_of(a).unwrap_or(0.0).total_cmp(&ratio_of(b).unwrap_or(0.0)))?;
    let (best_ratio, worst_ratio) = (best.ratio?, worst.ratio?);
    let nothing = tls_arms(case).filter(|arm| arm.verdict == Verdict::NoDifference).count();
    let mut text = format!(
        "Over connections that stay, without TLS: {:.0} transactions a second. With TLS, from {} ({}, {}) \
         to {} ({}, {}).",
        plain.median,
        said(best, best_ratio),
        best.arm,
        interval(best_ratio),
        said(worst, worst_ratio),
        worst.arm,
        interval(worst_ratio),
    );
    if nothing > 0 {
        text.push_str(&format!(
            " {nothing} of {} arms are within the noise floor of {:.1} %.",
            tls_arms(case).count(),
            (case.noise_floor - 1.0) * 100.0
        ));
    }
    if let (Some(without), Some(with)) =
        (micro(plain, SERVER_CPU), case.arm(USUAL_SUITE).and_then(|arm| micro(arm, SERVER_CPU)))
    {
        text.push_str(&format!(
            " The server's CPU time per transaction goes from {without:.1} to {with:.1} us with \
             {USUAL_SUITE}."
        ));
    }
    let theirs: Vec<String> = study
        .iter()
        .filter_map(|row| {
            let (_, ratio) = of_study(study, PERSISTENT, &row.cipher)?;
            (row.bits > 0).then(|| format!("{} {}", row.cipher, cost(ratio)))
        })
        .collect();
    let shared: Vec<String> = study
        .iter()
        .filter_map(|row| {
            let ours = case.arm(&row.cipher).filter(|arm| arm.n > 0)?.ratio?;
            Some(format!("{} {}", row.cipher, cost(ours.value)))
        })
        .collect();
    if !shared.is_empty() {
        text.push_str(&format!(" The study's own suites here: {}.", shared.join(", ")));
    }
    let study = format!("TLS costs 12 to 27 % of the throughput: {}.", theirs.join(", "));
    Some(Finding::with_study(text, study))
}

/// Compares the suites by the server's CPU time, where small differences show best.
fn suites(case: &CaseAnalysis) -> Option<Finding> {
    let mut by_cpu: Vec<(&str, f64)> = tls_arms(case)
        .filter_map(|arm| Some((arm.arm.as_str(), micro(arm, SERVER_CPU)?)))
        .collect();
    by_cpu.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((first, least), (last, most)) = (by_cpu.first()?, by_cpu.last()?);
    // Below this ratio the difference does not matter in practice.
    const SMALL: f64 = 1.25;
    let end = if most / least < SMALL {
        ". Which suite is chosen matters less than that there is one"
    } else {
        ""
    };
    (by_cpu.len() > 1).then(|| {
        Finding::new(format!(
            "Among {} arms with TLS the server's CPU time for the study's small rows goes from \
             {least:.1} us ({first}) to {most:.1} us ({last}), {:.1} % more{end}.",
            by_cpu.len(),
            (most / least - 1.0) * 100.0
        ))
    })
}

fn connections(analysis: &Analysis, case: &CaseAnalysis) -> Option<Finding> {
    let plain = case.arm(PLAIN).filter(|arm| arm.n > 0)?;
    let ecdsa = case.arm(GROUPS_KEY.name()).filter(|arm| arm.n > 0)?;
    let server = [micro(plain, SERVER_CPU)?, micro(ecdsa, SERVER_CPU)?];
    let client = [micro(plain, CLIENT_CPU)?, micro(ecdsa, CLIENT_CPU)?];
    let mut text = format!(
        "With a new connection for each transaction: {:.0} a second without TLS, {:.0} with TLS 1.3 and \
         an ECDSA P-256 certificate. The handshake costs the server {:.0} us of CPU time and the client \
         {:.0} us.",
        plain.median,
        ecdsa.median,
        server[1] - server[0],
        client[1] - client[0]
    );
    let small = |arm: &str| analysis.arm(PERSISTENT, arm).and_then(|arm| micro(arm, SERVER_CPU));
    // Only where the cost for the small result exceeds the noise.
    let proved = analysis
        .arm(PERSISTENT, USUAL_SUITE)
        .and_then(|arm| arm.extra_ratio.get(SERVER_CPU))
        .is_some_and(|ratio| ratio.low > 1.0);
    if let (true, Some(without), Some(with)) = (proved, small(PLAIN), small(USUAL_SUITE))
        && server[1] > server[0]
    {
        text.push_str(&format!(
            " On the server one handshake is worth the encryption of {:.0} small results: connections \
             that stay (a pool) save more than any choice of suite.",
            (server[1] - server[0]) / (with - without)
        ));
    }
    Some(Finding::new(text))
}

fn certificates(case: &CaseAnalysis, wanted: &BTreeMap<String, Wanted>) -> Option<Finding> {
    // The same suite and group with each certificate.
    let of: Vec<(String, &ArmAnalysis)> = tls_arms(case)
        .filter_map(|arm| {
            let wanted = wanted.get(&arm.arm)?;
            let usual = wanted.suite == USUAL_SUITE && wanted.group == USUAL_GROUP;
            usual.then_some((wanted.certificate.clone(), arm))
        })
        .collect();
    if of.len() < 2 {
        return None;
    }
    let words: Vec<String> = of
        .iter()
        .filter_map(|(name, arm)| {
            let server = micro(arm, SERVER_CPU)?;
            Some(format!("{name} {:.0} a second, {server:.0} us of the server", arm.median))
        })
        .collect();
    Some(Finding::new(format!(
        "Certificates, with a new connection each time ({USUAL_SUITE}): {}.",
        words.join("; ")
    )))
}

fn groups(
    results: &Results,
    case: &CaseAnalysis,
    wanted: &BTreeMap<String, Wanted>,
) -> Option<Finding> {
    let base = GROUPS_KEY.name();
    case.arm(base).filter(|arm| arm.n > 0)?;
    let words: Vec<String> = tls_arms(case)
        .filter_map(|arm| {
            let wanted = wanted.get(&arm.arm)?;
            let other = wanted.certificate == base && wanted.group != USUAL_GROUP;
            let ratio = other.then(|| ratio_between(results, &case.case, &arm.arm, base))??;
            Some(format!("{}: {} ({})", wanted.group, cost(ratio.value), interval(ratio)))
        })
        .collect();
    (!words.is_empty()).then(|| {
        Finding::new(format!(
            "Key-exchange groups, connections a second against {USUAL_GROUP}: {}.",
            words.join("; ")
        ))
    })
}

fn sizes(analysis: &Analysis) -> Option<Finding> {
    let words: Vec<String> = [(PERSISTENT, "one row"), (ROWS, "100 rows"), (MEGABYTE, "1 MB")]
        .into_iter()
        .filter_map(|(id, title)| {
            let case = analysis.case(id)?;
            let arm = case.arm(USUAL_SUITE).or_else(|| tls_arms(case).next())?;
            let ratio = arm.ratio?;
            Some(format!(
                "{title} {} with {} ({})",
                cost(ratio.value),
                arm.arm,
                arm.verdict.words()
            ))
        })
        .collect();
    (words.len() > 1).then(|| {
        Finding::new(format!(
            "Throughput with TLS by the size of the result: {}. The study's rows are tiny; encryption \
             itself shows only in large results.",
            words.join("; ")
        ))
    })
}

fn client_bound(analysis: &Analysis) -> Option<Finding> {
    let is = |arm: &&ArmAnalysis| {
        let busy = |name: &str| arm.extra.get(name).copied().unwrap_or(0.0);
        busy("client_busy_share") >= 0.9 && busy("server_busy_share") < 0.9
    };
    let words: Vec<String> = analysis
        .cases
        .iter()
        .filter_map(|case| {
            let count = case.arms.iter().filter(is).count();
            (count > 0).then(|| format!("{} ({count} of {} arms)", case.case, case.arms.len()))
        })
        .collect();
    (!words.is_empty()).then(|| {
        Finding::new(format!(
            "Client-bound, so that throughput hides the server's cost: {}. There the CPU time per \
             transaction is the figure to look at.",
            words.join(", ")
        ))
    })
}

fn missing(results: &Results) -> Option<Finding> {
    let mut words: Vec<String> = results
        .missing
        .iter()
        .map(|missing| format!("{} ({})", missing.what, missing.why))
        .collect();
    words.sort();
    words.dedup();
    (!words.is_empty()).then(|| {
        let text = format!("Not to be had here: {}.", words.join("; "));
        if results.missing.iter().any(|missing| missing.what == "RC4-SHA") {
            Finding::with_study(text, "RC4-SHA was the study's fastest suite.")
        } else {
            Finding::new(text)
        }
    })
}
