//! The figures in tables, the studies' in columns of their own.

use super::algorithm::{Algorithm, Direction};
use super::figures::{At, Figures};
use super::plan::{PAGE_BYTES, figure};
use super::protocol::KeyKind;
use super::published::{Study, speed_at};
use super::{plan::CaseWork, table};
use crate::error::LabError;
use crate::exhibits::{Cell, Column, Table};
use crate::report::format::{quantity, significant};

/// Arms that have a table of sizes.
const BY_SIZE: [(&str, &str, &str); 4] = [
    ("openssl", "sizes-openssl", "Speed by size of the message: system OpenSSL, context kept"),
    (
        "openssl-setup",
        "sizes-setup",
        "Speed by size: system OpenSSL, set up for each call (as pgcrypto)",
    ),
    (
        "openssl-speed",
        "sizes-speed",
        "Speed by size: system OpenSSL as openssl speed -evp, and study 1",
    ),
    ("aws-lc", "sizes-aws-lc", "Speed by size of the message: AWS-LC (as pgseal)"),
];

/// Columns of the page table: heading, arm.
const PAGE_ARMS: [(&str, &str); 9] = [
    ("OpenSSL", "openssl"),
    ("without VAES", "openssl-novaes"),
    ("without AES", "openssl-noaes"),
    ("set up per call", "openssl-setup"),
    ("as openssl speed", "openssl-speed"),
    ("as openssl speed, without AES", "openssl-speed-noaes"),
    ("AWS-LC", "aws-lc"),
    ("AWS-LC without VAES", "aws-lc-novaes"),
    ("AWS-LC without AES", "aws-lc-noaes"),
];

/// All tables that the data allow.
///
/// # Errors
///
/// [`LabError::Plan`] for a plan of another experiment.
pub fn tables(figures: &Figures<'_>) -> Result<Vec<Table>, LabError> {
    let study = Study::read();
    let mut tables: Vec<Table> = page(figures, &study).into_iter().collect();
    for (arm, id, title) in BY_SIZE {
        tables.extend(by_size(figures, &study, arm, id, title));
    }
    tables.extend(speed(figures, &study));
    tables.extend(keys(figures, &study)?);
    Ok(tables)
}

fn rows_of(figures: &Figures<'_>) -> Vec<(Algorithm, Direction)> {
    let both = |a: Algorithm| Direction::ALL.map(|direction| (a, direction));
    figures.algorithms().into_iter().flat_map(both).collect()
}

fn at(algorithm: Algorithm, direction: Direction, arm: &str, bytes: usize) -> At<'_> {
    At { algorithm, arm, direction, bytes }
}

fn rate_cell(figures: &Figures<'_>, at: At<'_>) -> Cell {
    let case = at.algorithm.to_string();
    let Some(rate) = figures.rate(at) else { return missing(figures, &case, at.arm) };
    let cell = Cell::number(rate, quantity(rate, "bytes/s"));
    match figures.per_cycle(at) {
        Some(value) => cell.hint(format!(
            "{} bytes per core cycle; {} a message",
            significant(value),
            quantity(at.bytes as f64 / rate, "s")
        )),
        None => cell,
    }
}

/// Why there is no figure.
fn missing(figures: &Figures<'_>, case: &str, arm: &str) -> Cell {
    let planned = figures.results.plan.case(case);
    match figures.results.missing_of(case, arm) {
        Some(missing) => Cell::missing(format!("{}; {}", missing.why, missing.remedy)),
        None if planned.is_some_and(|case| case.arms.iter().any(|id| id == arm)) => {
            Cell::missing("not measured yet")
        }
        None => Cell::text(""),
    }
}

fn page(figures: &Figures<'_>, study: &Study) -> Option<Table> {
    if figures.algorithms().is_empty() {
        return None;
    }
    let arms: Vec<(&str, &str)> =
        PAGE_ARMS.into_iter().filter(|(_, arm)| figures.has_arm(arm)).collect();
    let mut columns = vec![Column::text("Algorithm"), Column::text("Direction")];
    for (title, arm) in &arms {
        columns.push(Column::number(*title, "bytes/s"));
        if *arm == "openssl" || *arm == "aws-lc" {
            columns.push(Column::number(format!("{title}, per cycle"), "bytes/cycle"));
        }
    }
    columns.push(Column::study("Study 1 with AES-NI", "bytes/s"));
    columns.push(Column::study("Study 1 without", "bytes/s"));
    let mut rows = Vec::new();
    for (algorithm, direction) in rows_of(figures) {
        let mut row = vec![Cell::text(algorithm.title()), Cell::text(direction.id())];
        for (_, arm) in &arms {
            let place = at(algorithm, direction, arm, PAGE_BYTES);
            row.push(rate_cell(figures, place));
            if *arm == "openssl" || *arm == "aws-lc" {
                let per_cycle = figures.per_cycle(place);
                row.push(per_cycle.map_or(Cell::text(""), |v| Cell::number(v, significant(v))));
            }
        }
        for aes in [true, false] {
            let theirs = study.rate(algorithm.mode, algorithm.key_bits, direction, aes, PAGE_BYTES);
            row.push(study_cell(theirs));
        }
        rows.push(row);
    }
    Some(Table {
        id: "page".to_owned(),
        title: format!("A page of {PAGE_BYTES} bytes, one core"),
        columns,
        rows,
        note: figures.cycles_from().map(|source| format!("Cycles are from {source}.")),
    })
}

fn study_cell(rate: Option<f64>) -> Cell {
    rate.map_or(Cell::text(""), |rate| Cell::number(rate, quantity(rate, "bytes/s")))
}

fn by_size(
    figures: &Figures<'_>,
    study: &Study,
    arm: &str,
    id: &str,
    title: &str,
) -> Option<Table> {
    let measured = |(a, direction): &(Algorithm, Direction)| {
        figures.rate(at(*a, *direction, arm, PAGE_BYTES)).is_some()
    };
    let rows: Vec<(Algorithm, Direction)> = rows_of(figures).into_iter().filter(measured).collect();
    if rows.is_empty() {
        return None;
    }
    let with_study = arm == "openssl-speed";
    let mut columns = vec![Column::text("Algorithm"), Column::text("Direction")];
    for size in &figures.sizes {
        columns.push(Column::number(format!("{size} bytes"), "bytes/s"));
        if with_study {
            columns.push(Column::study(format!("study, {size} bytes"), "bytes/s"));
        }
    }
    let row = |(algorithm, direction): (Algorithm, Direction)| {
        let mut row = vec![Cell::text(algorithm.title()), Cell::text(direction.id())];
        for size in &figures.sizes {
            row.push(rate_cell(figures, at(algorithm, direction, arm, *size)));
            if with_study {
                let Algorithm { mode, key_bits } = algorithm;
                row.push(study_cell(study.rate(mode, key_bits, direction, true, *size)));
            }
        }
        row
    };
    Some(Table {
        id: id.to_owned(),
        title: title.to_owned(),
        columns,
        rows: rows.into_iter().map(row).collect(),
        note: None,
    })
}

/// Study 2's `openssl speed` table.
fn speed(figures: &Figures<'_>, study: &Study) -> Option<Table> {
    let planned = |entry: &table::Entry| {
        figures.results.plan.case(&format!("speed.{}", entry.id())).is_some()
    };
    let entries: Vec<table::Entry> = table::ENTRIES.into_iter().filter(planned).collect();
    if entries.is_empty() {
        return None;
    }
    let mut columns = vec![Column::text("Algorithm"), Column::text("Provider")];
    for size in &figures.sizes {
        columns.push(Column::number(format!("{size} bytes"), "bytes/s"));
        columns.push(Column::study(format!("2013, {size} bytes"), "bytes/s"));
    }
    let mut rows = Vec::new();
    for entry in entries {
        let case = format!("speed.{}", entry.id());
        let theirs = study.speed.iter().find(|row| row.algorithm == entry.name);
        let provider = figures.fact(&case, "openssl", "provider").unwrap_or_default();
        let mut row = vec![Cell::text(entry.name), Cell::text(provider)];
        for size in &figures.sizes {
            let rate = figures.named(&case, "openssl", &figure(Direction::Encrypt, *size));
            row.push(match rate {
                Some(rate) => Cell::number(rate, quantity(rate, "bytes/s")),
                None => missing(figures, &case, "openssl"),
            });
            row.push(study_cell(theirs.and_then(|row| speed_at(row, *size))));
        }
        rows.push(row);
    }
    Some(Table {
        id: "openssl-speed".to_owned(),
        title: "The openssl speed table of study 2, today".to_owned(),
        columns,
        rows,
        note: Some(
            "Study 2: OpenSSL 0.9.8e on a machine of 2013. IDEA, SEED and Camellia belonged to openssl \
             speed of its day and are not in its table."
                .to_owned(),
        ),
    })
}

fn keys(figures: &Figures<'_>, study: &Study) -> Result<Option<Table>, LabError> {
    let mut kinds: Vec<KeyKind> = Vec::new();
    for case in &figures.results.plan.cases {
        if let Some(CaseWork::Signature { kind, verify: false }) = case.parameter("work")? {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() {
        return Ok(None);
    }
    let columns = vec![
        Column::text("Key"),
        Column::number("sign", "1/s"),
        Column::number("verify", "1/s"),
        Column::study("2013, sign", "1/s"),
        Column::study("2013, verify", "1/s"),
    ];
    let row = |kind: KeyKind| {
        let cell = |verb: &str| {
            let case = format!("{verb}.{}", kind.id());
            match figures.named(&case, "openssl", "") {
                Some(rate) => Cell::number(rate, quantity(rate, "1/s")),
                None => missing(figures, &case, "openssl"),
            }
        };
        let theirs = study
            .keys
            .iter()
            .find(|row| row.algorithm == kind.algorithm.id() && row.bits == kind.bits);
        let old = |rate: Option<f64>| {
            rate.map_or(Cell::text(""), |rate| Cell::number(rate, quantity(rate, "1/s")))
        };
        vec![
            Cell::text(kind.id()),
            cell("sign"),
            cell("verify"),
            old(theirs.map(|row| row.sign_per_second)),
            old(theirs.map(|row| row.verify_per_second)),
        ]
    };
    Ok(Some(Table {
        id: "public-key".to_owned(),
        title: "Signatures a second of one core, system OpenSSL".to_owned(),
        columns,
        rows: kinds.into_iter().map(row).collect(),
        note: None,
    }))
}
