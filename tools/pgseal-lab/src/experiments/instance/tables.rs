//! Tables and charts.

use super::Instance;
use super::figures::{Size, compared, data_bytes, others, plain_extra, suites};
use super::plan::{AGAIN, spec_of};
use crate::analysis::Analysis;
use crate::answer::cost_cell;
use crate::cost::Cost;
use crate::error::LabError;
use crate::exhibits::{Axis, Cell, Chart, ChartKind, Column, Point, Series, Table, Tone};
use crate::plan::{Arm, Case};
use crate::results::Results;

/// All tables.
pub fn tables(
    results: &Results,
    analysis: &Analysis,
    sizes: &[Size<'_>],
) -> Result<Vec<Table>, LabError> {
    let all = [
        sweep_table(results, analysis, sizes),
        others_table(results, analysis),
        cpu_table(results, analysis),
        state_table(results, analysis)?,
    ];
    Ok(all.into_iter().filter(|table| !table.rows.is_empty()).collect())
}

/// All charts.
pub fn charts(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Vec<Chart> {
    let all = [
        cost_chart(results, analysis, sizes),
        rate_chart(results, analysis, sizes),
        bars(results, analysis),
    ];
    all.into_iter().filter(|chart| chart.series.iter().any(|s| !s.points.is_empty())).collect()
}

fn sweep_table(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Table {
    let mut columns = vec![
        Column::number("shared_buffers", "MB"),
        Column::number("data to buffers", "times"),
        Column::number("blocks read", "1/transaction"),
        Column::number("plain", "1/s"),
    ];
    columns.extend(compared(&results.plan).map(|arm| Column::number(&arm.id, "time")));
    let rows = sizes.iter().map(|size| {
        let mut row = vec![
            Cell::number(size.buffers_mb, format!("{:.0}", size.buffers_mb)),
            number(size.data_to_buffers, 2),
            number(size.blocks_read, 2),
            number(plain_median(results, analysis, size.case), 0),
        ];
        row.extend(
            compared(&results.plan).map(|arm| against_plain(results, analysis, size.case, arm)),
        );
        row
    });
    Table {
        id: "instance-sweep".to_owned(),
        title: "pgbench -S over shared_buffers: time for a transaction against the plain server".to_owned(),
        columns,
        rows: rows.collect(),
        note: Some(
            "Blocks of 8 kB that are not in shared_buffers and come from the OS cache; each is decrypted. \
             Plus is more time than plain, minus is less."
                .to_owned(),
        ),
    }
}

fn others_table(results: &Results, analysis: &Analysis) -> Table {
    let mut columns = vec![Column::text("case"), Column::number("plain", ""), Column::text("unit")];
    columns.extend(compared(&results.plan).map(|arm| Column::number(&arm.id, "time")));
    let rows = others(results).map(|case| {
        let digits = if case.unit == "s" { 3 } else { 0 };
        let mut row = vec![
            Cell::text(&case.title).hint(&case.id),
            number(plain_median(results, analysis, case), digits),
            Cell::text(&case.unit),
        ];
        row.extend(compared(&results.plan).map(|arm| against_plain(results, analysis, case, arm)));
        row
    });
    Table {
        id: "instance-cases".to_owned(),
        title: "What the study left out, against the plain server".to_owned(),
        columns,
        rows: rows.collect(),
        note: Some(
            "Time for the same work: plus is more than plain, minus is less. Unit 1/s: transactions a \
             second of the plain server."
                .to_owned(),
        ),
    }
}

fn cpu_table(results: &Results, analysis: &Analysis) -> Table {
    let mut columns = vec![
        Column::text("case"),
        Column::number("plain server", "CPU ms"),
        Column::number("client", "CPU ms"),
    ];
    columns.extend(compared(&results.plan).map(|arm| Column::number(&arm.id, "ratio")));
    let rows = results.plan.cases.iter().map(|case| {
        let ms = |name| plain_extra(results, analysis, case, name).map(|s| s * 1000.0);
        let mut row = vec![
            Cell::text(&case.title).hint(&case.id),
            number(ms("server_cpu_s_per_op"), 3),
            number(ms("client_cpu_s_per_op"), 3),
        ];
        row.extend(compared(&results.plan).map(|arm| {
            let ratio = analysis
                .arm(&case.id, &arm.id)
                .and_then(|found| found.extra_ratio.get("server_cpu_s_per_op"));
            match ratio.filter(|ratio| ratio.value.is_finite()) {
                Some(ratio) => Cell::number(ratio.value, format!("{:.2}", ratio.value))
                    .hint(format!("95 %: {:.2} to {:.2}", ratio.low, ratio.high)),
                None => absent(results, case, arm),
            }
        }));
        row
    });
    Table {
        id: "instance-cpu".to_owned(),
        title: "CPU time of the server, for one transaction or one run".to_owned(),
        columns,
        rows: rows.collect(),
        note: Some(
            "Time of the server's own processes: what gocryptfs does in its process is not in it."
                .to_owned(),
        ),
    }
}

fn state_table(results: &Results, analysis: &Analysis) -> Result<Table, LabError> {
    let columns = vec![
        Column::text("case"),
        Column::number("data to buffers", "times"),
        Column::text("cache"),
        Column::number("table in the OS cache", "%"),
        Column::number("blocks read", "1/run"),
        Column::number("WAL", "bytes/run"),
        Column::text("settings"),
    ];
    let rows = results.plan.cases.iter().map(|case| {
        let spec = spec_of(case)?;
        let extra = |name| plain_extra(results, analysis, case, name);
        let ratio = data_bytes(results, analysis, case)
            .map(|bytes| bytes / spec.shared_buffers_bytes as f64);
        let mut cache = spec.cache.words().to_owned();
        if let Some(bytes) = spec.memory_limit_bytes {
            cache += &format!(": server and cache together {} MB (control group)", bytes >> 20);
        }
        Ok(vec![
            Cell::text(&case.id),
            number(ratio, 2),
            Cell::text(cache),
            number(extra("os_cache_share").map(|share| share * 100.0), 0),
            number(extra("blocks_read_per_op"), 1),
            number(extra("wal_bytes_per_op"), 0),
            Cell::text(spec.settings.join(" ")),
        ])
    });
    Ok(Table {
        id: "instance-state".to_owned(),
        title: "Where the data were: the plain server".to_owned(),
        columns,
        rows: rows.collect::<Result<_, LabError>>()?,
        note: Some(format!(
            "The share in the OS cache was looked at with fincore before each value. In all cases: {}, \
             autovacuum=off, data checksums on.",
            super::work::COMMON.join(", ")
        )),
    })
}

fn cost_chart(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Chart {
    let series = compared(&results.plan).map(|arm| Series {
        name: arm.title.clone(),
        arm: arm.id.clone(),
        points: sizes
            .iter()
            .filter_map(|size| {
                let cost = analysis.cost(size.case, &arm.id)?;
                Some(cost_point(Point::at(size.buffers_mb, cost.percent()), &cost))
            })
            .collect(),
        ..Series::default()
    });
    Chart {
        id: "instance-cost-over-buffers".to_owned(),
        title: "Cost over shared_buffers (pgbench -S)".to_owned(),
        kind: ChartKind::Lines,
        x: Axis { title: "shared_buffers".to_owned(), unit: "MB".to_owned(), log: true },
        y: Axis { title: "more time than plain".to_owned(), unit: "%".to_owned(), log: false },
        series: series.filter(|series| !series.points.is_empty()).collect(),
        note: Some(data_note(results, analysis, sizes)),
    }
}

fn rate_chart(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> Chart {
    let series = results.plan.arms.iter().map(|arm| Series {
        name: arm.title.clone(),
        arm: arm.id.clone(),
        points: sizes
            .iter()
            .filter_map(|size| {
                let found = analysis.arm(&size.case.id, &arm.id).filter(|found| found.n > 0)?;
                let (low, high) = found.interval;
                Some(with_interval(Point::at(size.buffers_mb, found.median), low, high))
            })
            .collect(),
        ..Series::default()
    });
    Chart {
        id: "instance-rate-over-buffers".to_owned(),
        title: "Throughput over shared_buffers (pgbench -S)".to_owned(),
        kind: ChartKind::Lines,
        x: Axis { title: "shared_buffers".to_owned(), unit: "MB".to_owned(), log: true },
        y: Axis { title: "transactions".to_owned(), unit: "1/s".to_owned(), log: false },
        series: series.filter(|series| !series.points.is_empty()).collect(),
        note: Some(data_note(results, analysis, sizes)),
    }
}

fn bars(results: &Results, analysis: &Analysis) -> Chart {
    let mut arms: Vec<&Arm> = results.plan.arms.iter().filter(|arm| arm.id == AGAIN).collect();
    // The arms that take every case.
    let everywhere = |arm: &&Arm| {
        others(results).all(|case| results.plan.arms_of(case).any(|one| one.id == arm.id))
    };
    arms.extend(suites(&results.plan).filter(everywhere));
    let series = arms.into_iter().map(|arm| Series {
        name: arm.title.clone(),
        arm: arm.id.clone(),
        points: cost_points(analysis, others(results), arm),
        ..Series::default()
    });
    cost_bars("instance-cost-by-case", "Cost by workload", series.collect())
}

/// A point for each case that was measured: what an arm costs in it.
pub fn cost_points<'a>(
    analysis: &Analysis,
    cases: impl Iterator<Item = &'a Case>,
    arm: &Arm,
) -> Vec<Point> {
    let point = |case: &Case| {
        let cost = analysis.cost(case, &arm.id)?;
        Some(cost_point(Point::label(&case.id, cost.percent()), &cost))
    };
    cases.filter_map(point).collect()
}

/// The chart of what arms cost in each case.
pub fn cost_bars(id: &str, title: &str, series: Vec<Series>) -> Chart {
    Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        kind: ChartKind::Bars,
        x: Axis { title: "case".to_owned(), ..Axis::default() },
        y: Axis { title: "more time than plain".to_owned(), unit: "%".to_owned(), log: false },
        series,
        note: Some("Below 0: less time than the plain server, or noise.".to_owned()),
    }
}

fn data_note(results: &Results, analysis: &Analysis, sizes: &[Size<'_>]) -> String {
    let bytes = sizes.iter().find_map(|size| data_bytes(results, analysis, size.case));
    match bytes {
        Some(bytes) => format!("The data are {:.0} MB.", bytes / 1048576.0),
        None => "Nothing measured yet.".to_owned(),
    }
}

/// A point in percent, with the cost's interval.
fn cost_point(point: Point, cost: &Cost) -> Point {
    let percent = |times: f64| (times - 1.0) * 100.0;
    with_interval(point, percent(cost.low), percent(cost.high))
}

/// Sets the interval of a point, if there is one.
pub fn with_interval(point: Point, low: f64, high: f64) -> Point {
    if low.is_finite() && high.is_finite() { point.between(low, high) } else { point }
}

fn plain_median(results: &Results, analysis: &Analysis, case: &Case) -> Option<f64> {
    analysis.median(&case.id, &results.plan.baseline_of(case)?.id)
}

fn number(value: Option<f64>, digits: usize) -> Cell {
    match value.filter(|value| value.is_finite()) {
        Some(value) => Cell::number(value, format!("{value:.digits$}")),
        None => Cell::text("").tone(Tone::Faint),
    }
}

fn against_plain(results: &Results, analysis: &Analysis, case: &Case, arm: &Arm) -> Cell {
    match analysis.arm(&case.id, &arm.id).filter(|found| found.n > 0) {
        Some(_) => cost_cell(&Instance, analysis, case, &arm.id),
        None => absent(results, case, arm),
    }
}

/// An empty cell: missing with its reason, or not part of the profile.
fn absent(results: &Results, case: &Case, arm: &Arm) -> Cell {
    match results.missing_of(&case.id, &arm.id) {
        Some(missing) => Cell::missing(format!("{}: {}", missing.what, missing.why)),
        None => {
            Cell::text("-").hint("not part of this profile, or not measured yet").tone(Tone::Faint)
        }
    }
}
