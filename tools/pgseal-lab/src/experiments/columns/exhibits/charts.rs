//! Charts.

use super::Data;
use crate::exhibits::{Axis, Chart, ChartKind, Origin, Point, Series};
use crate::plan::Arm;

pub fn all(data: &Data<'_>) -> Vec<Chart> {
    let charts = [
        growth(data, "insert"),
        growth(data, "copy"),
        growth(data, "insert-keys"),
        growth(data, "copy-keys"),
        queries(data, false),
        queries(data, true),
        sizes(data),
    ];
    charts.into_iter().flatten().collect()
}

fn axis(title: &str, unit: &str, log: bool) -> Axis {
    Axis { title: title.to_owned(), unit: unit.to_owned(), log }
}

/// Load time against volume.
fn growth(data: &Data<'_>, case: &str) -> Option<Chart> {
    let case = data.results.plan.case(case)?;
    let series: Vec<Series> = data
        .results
        .plan
        .arms_of(case)
        .filter_map(|arm| {
            let total = data.extra(&case.id, &arm.id, "total_volume_bytes")?;
            let at = |percent: u32| {
                let seconds =
                    data.extra(&case.id, &arm.id, &format!("at_{percent:03}_percent_s"))?;
                Some(Point::at(total * f64::from(percent) / 100.0, seconds))
            };
            let mut points: Vec<Point> = (1..=20).filter_map(|place| at(place * 5)).collect();
            if points.is_empty() {
                // The load was stopped before the first twentieth.
                let volume = data.extra(&case.id, &arm.id, "volume_bytes")?;
                points.push(Point::at(volume, data.extra(&case.id, &arm.id, "measured_s")?));
            }
            let (name, id) = (arm.title.clone(), arm.id.clone());
            Some(Series { name, arm: id, points, ..Series::default() })
        })
        .collect();
    let any = series.iter().any(|series| series.points.len() > 1);
    any.then(|| Chart {
        id: format!("columns-{}", case.id),
        title: format!("{}: time against volume", case.title),
        kind: ChartKind::Lines,
        x: axis("Rows loaded", "bytes", false),
        y: axis("Time", "s", false),
        series,
        note: Some(
            "Tables are loaded from the smallest to the largest; a line that ends early was stopped at its \
             time budget."
                .to_owned(),
        ),
    })
}

/// Ratio to plain, by query and arm.
fn queries(data: &Data<'_>, keys: bool) -> Option<Chart> {
    let cases = data.queries(keys);
    let arms = data.others(&cases.first()?.id);
    let series: Vec<Series> = arms
        .into_iter()
        .map(|arm| {
            let point = |case: &str| {
                let ratio = data.arm(case, &arm.id)?.ratio?;
                let point =
                    Point::label(case.trim_end_matches("-keys").to_uppercase(), ratio.value);
                let known = ratio.low.is_finite() && ratio.high.is_finite();
                Some(if known { point.between(ratio.low, ratio.high) } else { point })
            };
            let points = cases.iter().filter_map(|case| point(&case.id)).collect();
            let (name, id) = (arm.title.clone(), arm.id.clone());
            Series { name, arm: id, points, ..Series::default() }
        })
        .filter(|series: &Series| !series.points.is_empty())
        .collect();
    let tail = if keys { "-keys" } else { "" };
    (!series.is_empty()).then(|| Chart {
        id: format!("columns-queries{tail}"),
        title: format!("Queries{}: time against plain", if keys { " with keys" } else { "" }),
        kind: ChartKind::Bars,
        x: axis("Query", "", false),
        y: axis("Time against plain", "times", true),
        series,
        note: None,
    })
}

/// Size relative to plain, with the study's figures.
fn sizes(data: &Data<'_>) -> Option<Chart> {
    let mut series = Vec::new();
    for (case, name) in [("size", "No keys"), ("size-keys", "Keys")] {
        let Some(case) = data.results.plan.case(case) else { continue };
        let point = |arm: &Arm| {
            let ratio = data.ratio(&case.id, &arm.id)?;
            Some(Point::label(arm.title.clone(), ratio))
        };
        let points: Vec<Point> = data.results.plan.arms_of(case).filter_map(point).collect();
        if !points.is_empty() {
            series.push(Series { name: name.to_owned(), points, ..Series::default() });
        }
    }
    (!series.is_empty()).then_some(())?;
    for (keys, name) in [(false, "Study, No keys"), (true, "Study, Keys")] {
        if let Some(ratio) = data.study.storage_ratio(keys) {
            let label = format!("{} (study)", "pgcrypto raw AES");
            let points = vec![Point::label(label, ratio)];
            // The colour of what is measured beside it.
            let arm = name.trim_start_matches("Study, ").to_owned();
            series.push(Series { name: name.to_owned(), arm, origin: Origin::Study, points });
        }
    }
    Some(Chart {
        id: "columns-sizes".to_owned(),
        title: "Size on disk against plain".to_owned(),
        kind: ChartKind::Bars,
        x: axis("Columns", "", false),
        y: axis("Size against plain", "times", false),
        series,
        note: None,
    })
}
