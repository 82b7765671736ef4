//! The table of ratios and aims, and its chart.

use super::counters::FIGURES;
use super::findings::judged;
use super::floor::PAGE_BYTES;
use super::plan::Specs;
use crate::analysis::{Analysis, ArmAnalysis};
use crate::exhibits::{Cell, Chart, Column, Series, Table, Tone};
use crate::experiments::instance::figures::{compared, suites};
use crate::experiments::instance::plan::PLAIN_WITHOUT_CHECKSUMS;
use crate::experiments::instance::tables::{cost_bars, cost_points};
use crate::plan::{Arm, Better, Case};
use crate::results::{Because, Results};
use crate::stats::Ratio;

/// All tables.
pub fn tables(results: &Results, analysis: &Analysis, specs: &Specs) -> Vec<Table> {
    let all = [ratios(results, analysis, specs), conditions("cost-conditions", results, specs)];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// All charts.
pub fn charts(results: &Results, analysis: &Analysis) -> Vec<Chart> {
    let chart = bars(results, analysis);
    if chart.series.iter().any(|series| !series.points.is_empty()) { vec![chart] } else { vec![] }
}

/// The CPU's counters that some arm has, with their titles.
fn counted(analysis: &Analysis) -> Vec<(&'static str, &'static str)> {
    let mut arms = analysis.cases.iter().flat_map(|case| &case.arms);
    let has = |(name, _): &(&str, &str)| arms.any(|arm| arm.extra_ratio.contains_key(*name));
    FIGURES.into_iter().filter(has).collect()
}

/// A line for each case and arm.
fn ratios(results: &Results, analysis: &Analysis, specs: &Specs) -> Table {
    let counted = counted(analysis);
    let counted = &counted;
    let rows = results.plan.cases.iter().flat_map(|case| {
        compared(&results.plan).filter_map(move |arm| {
            let found = analysis.arm(&case.id, &arm.id)?;
            match (&found.withheld, found.ratio) {
                (Some(why), _) => Some(withheld(case, arm, why, counted.len())),
                (None, ratio) => {
                    let mut row = row(specs, analysis, case, arm, found, ratio?);
                    row.push(ended(results, case));
                    row.extend(counted.iter().map(|(name, _)| ratio_of(found, name)));
                    Some(row)
                }
            }
        })
    });
    let mut columns = vec![
        Column::text("measure"),
        Column::text("against plain"),
        Column::number("ratio", ""),
        Column::text("95 %"),
        Column::number("CPU ratio", ""),
        Column::number("floor", ""),
        Column::text("aim"),
        Column::text("verdict"),
        Column::text("ended"),
    ];
    columns.extend(counted.iter().map(|(_, title)| Column::number(*title, "")));
    Table {
        id: "cost-ratios".to_owned(),
        title: "Against the plain server, with the aim of each measure".to_owned(),
        columns,
        rows: rows.collect(),
        note: Some(
            "Geometric means over batches of blocks, with Student's interval. CPU: time of the server's \
             processes for one transaction, row or run. floor: the ratio if the bare cipher over what \
             the plain server moves to and from files were all that is added; what is beyond it is \
             ours. plain-again: a second plain cluster, the noise floor. ended: whether the intervals \
             are as narrow as asked, and after how many blocks."
                .to_owned(),
        ),
    }
}

fn withheld(case: &Case, arm: &Arm, why: &str, counters: usize) -> Vec<Cell> {
    let mut row = vec![Cell::text(&case.title).hint(&case.id), Cell::text(&arm.id)];
    row.push(Cell::text("withheld").hint(why).tone(Tone::Faint));
    row.extend((0..6 + counters).map(|_| Cell::default()));
    row
}

/// The ratio of a further figure, with its interval.
pub fn ratio_of(found: &ArmAnalysis, name: &str) -> Cell {
    match found.extra_ratio.get(name).filter(|ratio| ratio.value.is_finite()) {
        None => Cell::default(),
        Some(ratio) if !ratio.low.is_finite() => {
            Cell::number(ratio.value, format!("{:.3}", ratio.value))
        }
        Some(Ratio { value, low, high }) => {
            Cell::number(*value, format!("{value:.3} ({low:.3} to {high:.3})"))
        }
    }
}

fn row(
    specs: &Specs,
    analysis: &Analysis,
    case: &Case,
    arm: &Arm,
    found: &ArmAnalysis,
    ratio: Ratio,
) -> Vec<Cell> {
    let kind = if case.better == Better::Higher { "throughput" } else { "time" };
    let interval = match ratio.low.is_finite() {
        true => format!("{:.3} to {:.3}", ratio.low, ratio.high),
        false => "one round".to_owned(),
    };
    let (aim, verdict) = match judged(specs, analysis, case, &arm.id) {
        Some(_) if arm.id == PLAIN_WITHOUT_CHECKSUMS => (Cell::default(), Cell::default()),
        Some(judged) if !arm.again => {
            let goal = specs.of_case(case).and_then(|spec| spec.goal);
            let aim = goal.map(|goal| goal.words(&arm.id)).unwrap_or_default();
            let tone = if judged.met { Tone::Plain } else { Tone::Bad };
            (Cell::text(aim), Cell::text(judged.words()).tone(tone))
        }
        _ => (Cell::text("(noise floor)").tone(Tone::Faint), Cell::default()),
    };
    vec![
        Cell::text(format!("{} ({kind})", case.title)).hint(&case.id),
        Cell::text(&arm.id),
        Cell::number(ratio.value, format!("{:.3}", ratio.value)),
        Cell::text(interval),
        ratio_of(found, "server_cpu_s_per_op"),
        floor(analysis, case, found).unwrap_or_default(),
        aim,
        verdict,
    ]
}

/// The ratio if the bare cipher were all that sealing adds.
pub fn floor(analysis: &Analysis, case: &Case, found: &ArmAnalysis) -> Option<Cell> {
    let cipher_s = found.extra.get("cipher_s_per_page")?;
    let plain = &analysis.arm(&case.id, &analysis.case(&case.id)?.baseline)?.extra;
    let pages = plain.get("file_bytes_per_op")? / PAGE_BYTES;
    let times = 1.0 + pages * cipher_s / plain.get("wall_s_per_op")?;
    let ratio = if case.better == Better::Higher { 1.0 / times } else { times };
    Some(Cell::number(ratio, format!("{ratio:.3}")))
}

/// Why the case ended; nothing before it did.
pub fn ended(results: &Results, case: &Case) -> Cell {
    results.end_of(&case.id).map_or_else(Cell::default, |end| {
        let tone = if end.because == Because::Narrow { Tone::Plain } else { Tone::Bad };
        Cell::text(format!("{}, {} blocks", end.because.words(), end.blocks)).tone(tone)
    })
}

/// What holds while a case is measured.
pub fn conditions(id: &str, results: &Results, specs: &Specs) -> Table {
    let limit = |case: &Case| specs.of_case(case)?.memory_limit_bytes;
    let is_limited = results.plan.cases.iter().any(|case| limit(case).is_some());
    let rows = results.plan.cases.iter().filter_map(|case| {
        let spec = specs.of_case(case)?;
        let mut row =
            vec![Cell::text(&case.title).hint(&case.id), Cell::text(spec.settings.join(" "))];
        if is_limited {
            let memory = limit(case).map(|bytes| bytes >> 20);
            row.push(
                memory.map_or_else(Cell::default, |mib| Cell::number(mib as f64, mib.to_string())),
            );
        }
        row.push(Cell::text(&spec.cache));
        Some(row)
    });
    let mut columns = vec![Column::text("case"), Column::text("settings")];
    columns.extend(is_limited.then(|| Column::number("memory", "MiB")));
    columns.push(Column::text("data"));
    Table {
        id: id.to_owned(),
        title: "How each case is measured".to_owned(),
        columns,
        rows: rows.collect(),
        note: Some(
            "In all cases: data checksums on but for the arms without them (the sealed ones have \
             wal_log_hints=on instead, the plain one has not), autovacuum=off max_wal_size=8GB \
             checkpoint_timeout=1h jit=off, else initdb's; the servers of all arms are up, and those \
             that are not measured are stopped with SIGSTOP; sync(1) before each whole run."
                .to_owned(),
        ),
    }
}

fn bars(results: &Results, analysis: &Analysis) -> Chart {
    let is_plain = |arm: &&Arm| arm.again || arm.id == PLAIN_WITHOUT_CHECKSUMS;
    let plain = results.plan.arms.iter().filter(is_plain);
    let series = suites(&results.plan).chain(plain).map(|arm| Series {
        name: arm.id.clone(),
        arm: arm.id.clone(),
        points: cost_points(analysis, results.plan.cases.iter(), arm),
        ..Series::default()
    });
    cost_bars("cost-bars", "What sealing costs", series.collect())
}
