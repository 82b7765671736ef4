//! Tables and charts, computed only from the data.

use std::collections::BTreeMap;

use super::Tls;
use super::arms::{PLAIN, USUAL_KEY, USUAL_SUITE, Wanted};
use super::findings;
use super::plan::{CONNECT, PERSISTENT};
use crate::analysis::{Analysis, ArmAnalysis, CaseAnalysis};
use crate::answer::cost_cell;
use crate::cost::{Cost, change};
use crate::error::LabError;
use crate::exhibits::{
    Axis, Cell, Chart, ChartKind, Column, Exhibits, Origin, Point, Series, Table, Tone,
};
use crate::plan::Case;
use crate::published::{self, TlsCipher};
use crate::report::format::rounds;
use crate::results::Results;

/// The study's name of the baseline.
const STUDY_PLAIN: &str = "none (hostnossl)";

/// All exhibits.
///
/// # Errors
///
/// [`LabError::Plan`] for a plan of another experiment.
pub fn exhibits(results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
    let study = published::tls_ciphers();
    let wanted = Wanted::by_arm(&results.plan)?;
    let mut exhibits = Exhibits {
        findings: findings::findings(results, analysis, &study, &wanted),
        answer: findings::answer(results, analysis, &study),
        ..Exhibits::default()
    };
    for case in &results.plan.cases {
        let Some(found) = analysis.case(&case.id) else { continue };
        exhibits.tables.push(table(results, analysis, case, (&study, &wanted)));
        exhibits.charts.push(time(results, case, found, &study));
        exhibits.charts.push(cpu_time(results, case, found));
    }
    Ok(exhibits)
}

/// The study's figure for an arm: transactions per second, and the ratio to the study's baseline.
pub fn of_study(study: &[TlsCipher], case: &str, arm: &str) -> Option<(f64, f64)> {
    if case != PERSISTENT {
        return None;
    }
    let tps = |name: &str| {
        study.iter().find(|row| row.cipher == name).map(|row| row.tps_excluding_connecting)
    };
    let plain = tps(STUDY_PLAIN)?;
    let found = tps(if arm == PLAIN { STUDY_PLAIN } else { arm })?;
    Some((found, found / plain))
}

fn table(
    results: &Results,
    analysis: &Analysis,
    case: &Case,
    (study, wanted): (&[TlsCipher], &BTreeMap<String, Wanted>),
) -> Table {
    let has_study = case.id == PERSISTENT;
    let arms = analysis.case(&case.id).map_or(&[][..], |found| found.arms.as_slice());
    let mut columns = vec![
        Column::text("Arm"),
        Column::text("Certificate"),
        Column::text("Key exchange"),
        Column::number("Throughput", "1/s"),
        Column::number("Against no TLS", "time"),
        Column::number("Server CPU", "us per transaction"),
        Column::number("Client CPU", "us per transaction"),
        Column::number("Server busy", "%"),
        Column::number("Client busy", "%"),
    ];
    if has_study {
        columns.push(Column::study("Study: throughput", "1/s"));
        columns.push(Column::study("Study: against no TLS", "time"));
    }
    let plan = &results.plan;
    let rows = arms.iter().map(|arm| {
        let wanted = wanted.get(&arm.arm);
        let title = plan.arm(&arm.arm).map_or(arm.arm.as_str(), |arm| arm.title.as_str());
        let missing = results.missing_of(&case.id, &arm.arm);
        let mut row = vec![
            Cell::text(title),
            Cell::text(wanted.map_or("-", |wanted| wanted.certificate.as_str())),
            Cell::text(key_exchange(wanted)),
        ];
        match missing.filter(|_| arm.n == 0) {
            Some(missing) => {
                row.push(Cell::missing(format!("{}; {}", missing.why, missing.remedy)));
                row.extend((0..5).map(|_| Cell::text("-").tone(Tone::Faint)));
            }
            None => row.extend(measured(analysis, case, arm)),
        }
        if has_study {
            match of_study(study, &case.id, &arm.arm) {
                Some((tps, ratio)) => {
                    row.push(Cell::number(tps, format!("{tps:.0}")));
                    row.push(Cell::number(1.0 / ratio, change(1.0 / ratio)));
                }
                None => row.extend((0..2).map(|_| Cell::text("").tone(Tone::Faint))),
            }
        }
        row
    });
    let floor = analysis.case(&case.id).map_or(1.0, |found| found.noise_floor);
    let noise = floor * 100.0 - 100.0;
    Table {
        id: format!("tls-{}", case.id),
        title: case.title.clone(),
        columns,
        rows: rows.collect(),
        note: Some(format!(
            "Medians of {}. Time for the same work: plus is more than without TLS. Differences below \
             {noise:.1} % cannot be told from noise: no TLS measured twice differs as much. Busy: CPU time over the time of the CPUs that the side \
             has (of the client at most one for each thread).{}",
            rounds(plan.rounds_of(case)),
            if has_study {
                " The study's figures are of PostgreSQL 9.3 and OpenSSL 0.9.8e on two hosts in 2013."
            } else {
                ""
            }
        )),
    }
}

fn key_exchange(wanted: Option<&Wanted>) -> String {
    match wanted {
        None => "-".to_owned(),
        Some(wanted) if wanted.uses_group() => wanted.group.clone(),
        Some(wanted) if wanted.suite.starts_with("DHE") => "DHE".to_owned(),
        Some(_) => "RSA".to_owned(),
    }
}

fn measured(analysis: &Analysis, case: &Case, arm: &ArmAnalysis) -> Vec<Cell> {
    let micro = |name: &str| match arm.extra.get(name) {
        Some(seconds) => Cell::number(seconds * 1e6, format!("{:.1}", seconds * 1e6)),
        None => Cell::text("-"),
    };
    let busy = |name: &str| match arm.extra.get(name) {
        Some(share) => Cell::number(share * 100.0, format!("{:.0}", share * 100.0)),
        None => Cell::text("-"),
    };
    vec![
        Cell::number(arm.median, format!("{:.0}", arm.median)).hint(format!(
            "{}, {:.0} to {:.0}",
            rounds(arm.n as u64),
            arm.min,
            arm.max
        )),
        cost_cell(&Tls, analysis, case, &arm.arm),
        micro("server_cpu_s_per_op"),
        micro("client_cpu_s_per_op"),
        busy("server_busy_share"),
        busy("client_busy_share"),
    ]
}

/// The arm's id, short enough for a chart.
fn label(case: &str, arm: &str) -> String {
    // In this case the arm represents its certificate.
    if case == CONNECT && arm == USUAL_SUITE {
        return USUAL_KEY.name().to_owned();
    }
    let text = match arm.strip_prefix("TLS_") {
        Some(suite) => format!("1.3 {}", suite.replace("AES_", "AES").replace('_', "-")),
        None => arm.replace("-RSA-", " ").replace("-ECDSA-", " "),
    };
    let text = text.replace("-POLY1305", "");
    // With authenticated encryption the hash in the suite's name does not affect its speed.
    let aead = text.contains("GCM") || text.contains("CHACHA20");
    let end = ["-SHA256", "-SHA384"].into_iter().find(|end| aead && text.ends_with(end));
    end.and_then(|end| text.strip_suffix(end)).unwrap_or(&text).to_owned()
}

fn time(results: &Results, case: &Case, found: &CaseAnalysis, study: &[TlsCipher]) -> Chart {
    let there = || found.arms.iter().filter(|arm| arm.n > 0);
    // Without TLS the time is 1; a figure that is withheld has no bar.
    let ours = there().filter(|arm| arm.withheld.is_none()).map(|arm| {
        let point = |times| Point::label(label(&case.id, &arm.arm), times);
        match Cost::of(found, case, &arm.arm) {
            Some(cost) if cost.low.is_finite() && cost.high.is_finite() => {
                point(cost.times).between(cost.low, cost.high)
            }
            Some(cost) => point(cost.times),
            None => point(1.0),
        }
    });
    let mut series = vec![Series {
        name: "measured".to_owned(),
        arm: "time".to_owned(),
        origin: Origin::Measured,
        points: ours.collect(),
    }];
    let theirs: Vec<Point> = found
        .arms
        .iter()
        .filter_map(|arm| {
            let (_, ratio) = of_study(study, &case.id, &arm.arm)?;
            Some(Point::label(label(&case.id, &arm.arm), 1.0 / ratio))
        })
        .collect();
    if !theirs.is_empty() {
        series.push(Series {
            name: "study, 2013".to_owned(),
            arm: "time".to_owned(),
            origin: Origin::Study,
            points: theirs,
        });
    }
    Chart {
        id: format!("tls-{}-time", case.id),
        title: format!("Time against no TLS: {}", case.title),
        kind: ChartKind::Bars,
        x: Axis { title: "Arm".to_owned(), ..Axis::default() },
        y: Axis {
            title: "Time over that without TLS".to_owned(),
            unit: "ratio".to_owned(),
            log: false,
        },
        series,
        note: Some(format!(
            "Bars: median ratio of the same rounds; lines: 95 % interval. {}.",
            rounds(results.plan.rounds_of(case))
        )),
    }
}

fn cpu_time(results: &Results, case: &Case, found: &CaseAnalysis) -> Chart {
    let side = |name: &str, extra: &str| {
        let points = found.arms.iter().filter_map(|arm| {
            Some(Point::label(label(&case.id, &arm.arm), arm.extra.get(extra)? * 1e6))
        });
        Series { name: name.to_owned(), points: points.collect(), ..Series::default() }
    };
    Chart {
        id: format!("tls-{}-cpu", case.id),
        title: format!("CPU time: {}", case.title),
        kind: ChartKind::Bars,
        x: Axis { title: "Arm".to_owned(), ..Axis::default() },
        y: Axis { title: "CPU time per transaction".to_owned(), unit: "us".to_owned(), log: false },
        series: vec![
            side("server", "server_cpu_s_per_op"),
            side("client (pgbench)", "client_cpu_s_per_op"),
        ],
        note: Some(format!("Medians of {}.", rounds(results.plan.rounds_of(case)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_tell_suites_apart() {
        for (arm, want) in [
            ("TLS_AES_256_GCM_SHA384", "1.3 AES256-GCM"),
            ("TLS_CHACHA20_POLY1305_SHA256", "1.3 CHACHA20"),
            ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE AES128-GCM"),
            ("ECDHE-RSA-AES128-SHA256", "ECDHE AES128-SHA256"),
            ("DHE-RSA-AES256-SHA", "DHE AES256-SHA"),
            ("plain-again", "plain-again"),
            ("X25519MLKEM768", "X25519MLKEM768"),
        ] {
            assert_eq!(label(PERSISTENT, arm), want);
        }
        assert_eq!(label(CONNECT, "TLS_AES_256_GCM_SHA384"), "rsa-2048");
    }
}
