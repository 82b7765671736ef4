//! Tables.

use std::collections::BTreeSet;

use super::Data;
use crate::answer::cost_cell;
use crate::exhibits::{Cell, Column, Table};
use crate::experiments::columns::Columns;
use crate::plan::{Arm, Case};
use crate::report::format::{quantity, significant};

pub fn all(data: &Data<'_>) -> Vec<Table> {
    let mut tables = vec![against_study(data), loads(data)];
    for keys in [false, true] {
        tables.extend(queries(data, keys));
        tables.extend(sizes(data, keys));
    }
    tables.extend(micro(data));
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The study's ratios beside ours.
fn against_study(data: &Data<'_>) -> Table {
    let study = &data.study;
    let mut rows = Vec::new();
    let mut row = |what: &str, theirs: Option<f64>, case: &str| {
        let arms = ["raw", "raw-hex", "sealed-instance"];
        if data.median(case, "plain").is_none() {
            return;
        }
        let ours = |arm: &str| match data.ratio(case, arm) {
            Some(ratio) => Cell::number(ratio, format!("{ratio:.2}")),
            None => Cell::missing("not measured"),
        };
        let theirs = match theirs {
            Some(ratio) => Cell::number(ratio, format!("{ratio:.2}")),
            None => Cell::missing("the study did not measure it"),
        };
        rows.push([Cell::text(what), theirs].into_iter().chain(arms.map(ours)).collect());
    };
    row("Load, INSERTs, no keys", study.load_ratio(false), "insert");
    row("Load, INSERTs, keys", study.load_ratio(true), "insert-keys");
    row("Load, COPY, no keys", None, "copy");
    row("Load, COPY, keys", None, "copy-keys");
    row("Size on disk, no keys", study.storage_ratio(false), "size");
    row("Size on disk, keys", study.storage_ratio(true), "size-keys");
    Table {
        id: "columns-study".to_owned(),
        title: "Against plain: the study and this run".to_owned(),
        columns: vec![
            Column::text("Measure"),
            Column::study("Study: pgcrypto raw AES", "times"),
            Column::number(data.title("raw"), "times"),
            Column::number(data.title("raw-hex"), "times"),
            Column::number(data.title("sealed-instance"), "times"),
        ],
        rows,
        note: Some("Each against plain columns under the same conditions.".to_owned()),
    }
}

fn loads(data: &Data<'_>) -> Table {
    let mut rows = Vec::new();
    for case in ["insert", "copy", "insert-keys", "copy-keys"] {
        let Some(case) = data.results.plan.case(case) else { continue };
        for arm in data.results.plan.arms_of(case) {
            let Some(found) = data.arm(&case.id, &arm.id) else {
                rows.push(missing_row(data, case, arm));
                continue;
            };
            let measured = data.extrapolated(&case.id, &arm.id);
            let share = measured.unwrap_or(1.0) * 100.0;
            rows.push(vec![
                Cell::text(case.title.clone()),
                Cell::text(arm.title.clone()),
                Cell::number(found.median, quantity(found.median, "s")),
                ratio_cell(data, case, arm),
                Cell::number(
                    share,
                    if measured.is_some() {
                        format!("{share:.1}, extrapolated")
                    } else {
                        "100".to_owned()
                    },
                ),
            ]);
        }
    }
    Table {
        id: "columns-loads".to_owned(),
        title: "Loads".to_owned(),
        columns: vec![
            Column::text("Way"),
            Column::text("Columns"),
            Column::number("Time", ""),
            Column::number("Against plain", "time"),
            Column::number("Measured", "% of the fields"),
        ],
        rows,
        note: Some(
            "COPY with pgcrypto: into a temporary table of text, then INSERT ... SELECT with the \
             encrypting functions; both count."
                .to_owned(),
        ),
    }
}

fn missing_row(data: &Data<'_>, case: &Case, arm: &Arm) -> Vec<Cell> {
    let why = data.results.missing_of(&case.id, &arm.id);
    let why = why.map_or_else(|| "not measured".to_owned(), |missing| missing.why.clone());
    let rest = ["", "", ""].map(|_| Cell::missing(why.clone()));
    [Cell::text(case.title.clone()), Cell::text(arm.title.clone())]
        .into_iter()
        .chain(rest)
        .collect()
}

fn ratio_cell(data: &Data<'_>, case: &Case, arm: &Arm) -> Cell {
    match data.arm(&case.id, &arm.id) {
        Some(_) => cost_cell(&Columns, data.analysis, case, &arm.id),
        None => Cell::missing("not measured"),
    }
}

/// One row per query: the study's mean in seconds for each arm, then the ratio of the medians.
fn queries(data: &Data<'_>, keys: bool) -> Option<Table> {
    let mut cases = data.queries(keys);
    let more = data.results.plan.cases.iter().filter(|case| case.id == "join-keys" && keys);
    cases.extend(more);
    let first = *cases.first()?;
    let arms: Vec<&Arm> = data.results.plan.arms_of(first).collect();
    let mut columns = vec![Column::text("Query")];
    columns.extend(arms.iter().map(|arm| Column::number(arm.title.clone(), "s")));
    let others = data.others(&first.id);
    columns.extend(
        others.iter().map(|arm| Column::number(format!("{}, against plain", arm.title), "time")),
    );
    let rows = cases
        .iter()
        .map(|case| {
            let mut cells = vec![Cell::text(case.title.clone())];
            cells.extend(arms.iter().map(|arm| seconds_cell(data, case, arm)));
            cells.extend(others.iter().map(|arm| ratio_cell(data, case, arm)));
            cells
        })
        .collect();
    let tail = if keys { "-keys" } else { "" };
    Some(Table {
        id: format!("columns-queries{tail}"),
        title: format!("Queries{}", if keys { " with keys" } else { "" }),
        columns,
        rows,
        note: Some(
            "Times are the study's mean: of the rounds, the largest and the smallest are dropped. Against \
             plain: of medians, plus is more time. Queries derived from TPC-H; not comparable with published TPC-H results."
                .to_owned(),
        ),
    })
}

fn seconds_cell(data: &Data<'_>, case: &Case, arm: &Arm) -> Cell {
    match (data.trimmed_mean(&case.id, &arm.id), data.arm(&case.id, &arm.id)) {
        (Some(mean), Some(found)) => Cell::number(mean, significant(mean)).hint(format!(
            "median {}, from {} to {}, {} rounds",
            quantity(found.median, "s"),
            quantity(found.min, "s"),
            quantity(found.max, "s"),
            found.n
        )),
        _ => {
            let missing = data.results.missing_of(&case.id, &arm.id);
            Cell::missing(missing.map_or("not measured", |missing| missing.why.as_str()))
        }
    }
}

/// One row per table or index, one column per arm, and the sums.
fn sizes(data: &Data<'_>, keys: bool) -> Option<Table> {
    let case = data.results.plan.case(if keys { "size-keys" } else { "size" })?;
    let arms: Vec<&Arm> = data.results.plan.arms_of(case).collect();
    let names: BTreeSet<&str> = arms
        .iter()
        .filter_map(|arm| data.first(&case.id, &arm.id))
        .flat_map(|sample| sample.extra.keys())
        .filter(|name| name.starts_with("table_") || name.starts_with("index_"))
        .map(String::as_str)
        .collect();
    // Tables before their indexes.
    let (tables, indexes): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| name.starts_with("table_"));
    let sums = ["tables_bytes", "indexes_bytes"];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for name in tables.into_iter().chain(indexes).chain(sums) {
        let shown = match name {
            "tables_bytes" => "all tables".to_owned(),
            "indexes_bytes" => "all indexes".to_owned(),
            name => name.trim_end_matches("_bytes").replacen('_', " ", 1),
        };
        let cell = |arm: &&Arm| match data.extra(&case.id, &arm.id, name) {
            Some(bytes) => Cell::number(bytes, quantity(bytes, "bytes")),
            None => Cell::text(""),
        };
        rows.push([Cell::text(shown)].into_iter().chain(arms.iter().map(cell)).collect());
    }
    let total = |arm: &&Arm| match data.median(&case.id, &arm.id) {
        Some(bytes) => Cell::number(bytes, quantity(bytes, "bytes")),
        None => Cell::missing("not measured"),
    };
    rows.push([Cell::text("total")].into_iter().chain(arms.iter().map(total)).collect());
    let against = |arm: &&Arm| match data.ratio(&case.id, &arm.id) {
        Some(ratio) => Cell::number(ratio, format!("{ratio:.2} times")),
        None => Cell::missing("not measured"),
    };
    rows.push([Cell::text("against plain")].into_iter().chain(arms.iter().map(against)).collect());
    let mut columns = vec![Column::text("Relation")];
    columns.extend(arms.iter().map(|arm| Column::number(arm.title.clone(), "")));
    Some(Table {
        id: if keys { "columns-sizes-keys" } else { "columns-sizes" }.to_owned(),
        title: format!("Size on disk{}", if data.keyed.contains(case.id.as_str()) { " with keys" } else { "" }),
        columns,
        rows,
        note: Some(
            "Lengths of the files. A sealed instance has more of them than the server itself counts."
                .to_owned(),
        ),
    })
}

fn micro(data: &Data<'_>) -> Option<Table> {
    let is_micro = |case: &&Case| case.unit == "ns";
    let cases: Vec<&Case> = data.results.plan.cases.iter().filter(is_micro).collect();
    let arms: Vec<&Arm> = data.results.plan.arms_of(cases.first()?).collect();
    let mut columns = vec![Column::text("What")];
    columns.extend(arms.iter().map(|arm| Column::number(arm.title.clone(), "ns")));
    let rows = cases
        .iter()
        .map(|case| {
            let cell = |arm: &&Arm| match data.arm(&case.id, &arm.id) {
                Some(found) => {
                    let fact = data.first(&case.id, &arm.id);
                    let fact = fact.and_then(|sample| sample.facts.get("expression").cloned());
                    Cell::number(found.median, format!("{:.0}", found.median))
                        .hint(fact.unwrap_or_default())
                }
                None => Cell::missing("not measured"),
            };
            [Cell::text(case.title.clone())].into_iter().chain(arms.iter().map(cell)).collect()
        })
        .collect();
    let rows_of = data.micro_rows;
    Some(Table {
        id: "columns-micro".to_owned(),
        title: "One value".to_owned(),
        columns,
        rows,
        note: Some(format!(
            "In SQL over {rows_of} values (PGP: one in 200 of them), less the same query without the \
             function. With raw AES, bigint is its eight bytes, and turning them back into a number is \
             not counted."
        )),
    })
}
