//! A chart for each series, one table, and the summary in words.

use super::plan::{SERIES, Series as Family, place_of};
use crate::analysis::{Analysis, ArmAnalysis};
use crate::error::LabError;
use crate::exhibits::{
    Axis, Cell, Chart, ChartKind, Column, Exhibits, Finding, Point, Series, Table, Tone,
};
use crate::experiments::cost::plan::Specs;
use crate::experiments::cost::table::{conditions, ended, floor, ratio_of};
use crate::experiments::instance::figures::{compared, suites};
use crate::experiments::instance::tables::{cost_bars, cost_points, with_interval};
use crate::plan::{Arm, Case};
use crate::results::Results;

/// All of them.
pub fn exhibits(results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
    let specs = Specs::of(&results.plan)?;
    let mut charts = Vec::new();
    for family in SERIES {
        charts.extend(chart(results, analysis, family)?);
    }
    Ok(Exhibits {
        findings: suites(&results.plan)
            .filter_map(|arm| most(results, analysis, arm))
            .chain(client_bound(results, analysis))
            .collect(),
        tables: vec![ratios(results, analysis), conditions("scale-conditions", results, &specs)],
        charts,
        answer: None,
    })
}

/// The cases of a series, each with its position.
fn cases_of(results: &Results, family: Family) -> Result<Vec<(&Case, Option<f64>)>, LabError> {
    let mut cases = Vec::new();
    for case in &results.plan.cases {
        let place = place_of(case)?;
        if place.series == family.name {
            cases.push((case, place.x));
        }
    }
    Ok(cases)
}

/// What each arm costs along the axis of a series; none if nothing of it was measured.
fn chart(
    results: &Results,
    analysis: &Analysis,
    family: Family,
) -> Result<Option<Chart>, LabError> {
    let cases = cases_of(results, family)?;
    let id = format!("scale-{}", family.name);
    let series = |points: &dyn Fn(&Arm) -> Vec<Point>| -> Vec<Series> {
        let of = |arm: &Arm| Series {
            name: arm.id.clone(),
            arm: arm.id.clone(),
            points: points(arm),
            ..Series::default()
        };
        compared(&results.plan).map(of).collect()
    };
    let chart = if cases.iter().any(|(_, x)| x.is_none()) {
        let bars = |arm: &Arm| cost_points(analysis, cases.iter().map(|(case, _)| *case), arm);
        cost_bars(&id, family.title, series(&bars))
    } else {
        let point = |arm: &Arm, (case, x): &(&Case, Option<f64>)| {
            let cost = analysis.cost(case, &arm.id)?;
            let percent = |times: f64| (times - 1.0) * 100.0;
            let point = Point::at((*x)?, cost.percent());
            Some(with_interval(point, percent(cost.low), percent(cost.high)))
        };
        let lines = |arm: &Arm| cases.iter().filter_map(|one| point(arm, one)).collect();
        Chart {
            id,
            title: family.title.to_owned(),
            kind: ChartKind::Lines,
            x: Axis {
                title: family.axis.0.to_owned(),
                unit: family.axis.1.to_owned(),
                log: cases.iter().all(|(_, x)| x.is_some_and(|x| x > 0.0)),
            },
            y: Axis { title: "more time than plain".to_owned(), unit: "%".to_owned(), log: false },
            series: series(&lines),
            note: Some("Below 0: less time than the plain server, or noise.".to_owned()),
        }
    };
    Ok(Some(chart).filter(|chart| chart.series.iter().any(|series| !series.points.is_empty())))
}

/// A line for each case and arm.
fn ratios(results: &Results, analysis: &Analysis) -> Table {
    let rows = results.plan.cases.iter().flat_map(|case| {
        compared(&results.plan).filter_map(move |arm| {
            let found = analysis.arm(&case.id, &arm.id)?;
            let shown = match (&found.withheld, found.ratio) {
                (Some(why), _) => Cell::text("withheld").hint(why).tone(Tone::Faint),
                (None, ratio) => Cell::number(ratio?.value, format!("{:.3}", ratio?.value)),
            };
            let interval = found.ratio.filter(|ratio| ratio.low.is_finite());
            let interval = interval.map(|ratio| format!("{:.3} to {:.3}", ratio.low, ratio.high));
            Some(vec![
                Cell::text(&case.title).hint(&case.id),
                Cell::text(&arm.id),
                Cell::text(if case.unit == "s" { "time" } else { "throughput" }),
                shown,
                Cell::text(interval.unwrap_or_default()),
                ratio_of(found, "server_cpu_s_per_op"),
                floor(analysis, case, found).unwrap_or_default(),
                client_cell(found),
                ended(results, case),
            ])
        })
    });
    Table {
        id: "scale-ratios".to_owned(),
        title: "Against the plain server".to_owned(),
        columns: vec![
            Column::text("case"),
            Column::text("against plain"),
            Column::text("of"),
            Column::number("ratio", ""),
            Column::text("95 %"),
            Column::number("CPU ratio", ""),
            Column::number("floor", ""),
            Column::number("client", "% of CPU time"),
            Column::text("ended"),
        ],
        rows: rows.collect(),
        note: Some(
            "As in pgseal lab cost. client: the part of the processor time of client and server that \
             the sessions took, which run on the same CPUs; from half on, the client is what is \
             measured."
                .to_owned(),
        ),
    }
}

/// The part of the processor time that the sessions took, from 0 to 1.
fn client_share(found: &ArmAnalysis) -> Option<f64> {
    let client = found.extra.get("client_cpu_s_per_op")?;
    let server = found.extra.get("server_cpu_s_per_op")?;
    Some(client / (client + server)).filter(|share| share.is_finite())
}

fn client_cell(found: &ArmAnalysis) -> Cell {
    client_share(found).map_or_else(Cell::default, |share| {
        let tone = if share >= 0.5 { Tone::Bad } else { Tone::Plain };
        Cell::number(share * 100.0, format!("{:.0}", share * 100.0)).tone(tone)
    })
}

/// Where an arm costs most.
fn most(results: &Results, analysis: &Analysis, arm: &Arm) -> Option<Finding> {
    let costs = results.plan.cases.iter().filter_map(|case| {
        let cost = analysis.cost(case, &arm.id).filter(|cost| cost.times.is_finite())?;
        Some((case, cost))
    });
    let (case, cost) = costs.max_by(|(_, one), (_, other)| one.times.total_cmp(&other.times))?;
    Some(Finding::new(match cost.differs() {
        true => format!(
            "{} costs most in {}: {:.1} % more time than plain.",
            arm.id,
            case.id,
            cost.percent()
        ),
        false => format!("{}: no case differs from plain by more than the noise.", arm.id),
    }))
}

/// Whether a client was the bottleneck of a case.
fn client_bound(results: &Results, analysis: &Analysis) -> Option<Finding> {
    let plain = |case: &&Case| {
        let found = results.plan.baseline_of(case).and_then(|arm| analysis.arm(&case.id, &arm.id));
        found.and_then(client_share).is_some_and(|share| share >= 0.5)
    };
    let bound = results.plan.cases.iter().filter(plain).count();
    (bound > 0).then(|| {
        Finding::new(format!("In {bound} cases the client takes half of the CPU time or more."))
    })
}
