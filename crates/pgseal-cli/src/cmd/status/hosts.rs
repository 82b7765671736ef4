//! `pgseal status --hosts`: many clusters in one table. A path is a data directory of this machine;
//! `HOST` and `HOST:DIR` are asked through `ssh`, where pgseal must be installed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protection::{Protection, Sealed};
use crate::error::CliError;
use crate::hosts::{Asking, Target};
use crate::out::{self, Out};
use crate::{diff, exit};

/// What one target answered.
#[derive(Debug, Serialize)]
pub struct Row {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Answer>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is shown of `pgseal status --brief --json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    data_directory: String,
    postgresql: Option<String>,
    server_pid: Option<u32>,
    suite: Option<String>,
    provider: Option<String>,
    protection: Protection,
}

/// How many are asked at once.
const AT_ONCE: usize = 32;

/// Asks all targets, and prints the table.
pub fn run(words: &[String], timeout: Duration, json: bool) -> Result<u8, CliError> {
    let targets: Vec<Target> =
        words.iter().map(|word| Target::parse(word)).collect::<Result<_, _>>()?;
    let asking = Asking {
        words: &["status", "--brief", "--json"],
        timeout,
        at_once: AT_ONCE,
        ssh_options: Vec::new(),
        remote: "pgseal".to_owned(),
    };
    let answers = asking.ask_all::<Answer>(&targets, &|| {})?;
    let rows: Vec<Row> = targets
        .into_iter()
        .zip(answers)
        .map(|(Target { name: target, .. }, answer)| match answer {
            Ok(answer) => Row { target, status: Some(answer), error: None },
            Err(why) => Row { target, status: None, error: Some(why) },
        })
        .collect();
    let mut out = Out::new();
    if json {
        out.json(&rows)?;
    } else {
        print(&mut out, &rows)?;
    }
    out.flush()?;
    for row in &rows {
        if let Some(error) = &row.error {
            out::complain(&format!("{}: {error}", diff::shown(&row.target)));
        }
    }
    Ok(if rows.iter().any(|row| row.error.is_some()) {
        exit::IO
    } else if rows.iter().all(Row::is_sealed) {
        exit::SOUND
    } else {
        exit::DAMAGE
    })
}

impl Row {
    fn is_sealed(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.protection.sealed == Sealed::Yes)
    }
}

const COLUMNS: [&str; 10] = [
    "Cluster",
    "PG",
    "Server",
    "Sealed",
    "Suite",
    "Since",
    "Rotated",
    "Keys",
    "Escrow",
    "Backup checked",
];

fn print(out: &mut Out, rows: &[Row]) -> io::Result<()> {
    let cells: Vec<[String; COLUMNS.len()]> = rows.iter().map(cells).collect();
    let mut widths: BTreeMap<usize, usize> = BTreeMap::new();
    for row in cells.iter().map(|row| row.each_ref().map(String::as_str)).chain([COLUMNS]) {
        for (at, cell) in row.iter().enumerate() {
            let width = widths.entry(at).or_default();
            *width = (*width).max(cell.chars().count());
        }
    }
    let rule: String = widths.values().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
    let line = |row: [&str; COLUMNS.len()]| -> String {
        let cells = row.iter().zip(widths.values());
        cells.map(|(cell, width)| format!("| {cell:width$} ")).collect()
    };
    writeln!(out, "{rule}+\n{}|\n{rule}+", line(COLUMNS))?;
    for row in &cells {
        writeln!(out, "{}|", line(row.each_ref().map(String::as_str)))?;
    }
    writeln!(out, "{rule}+")
}

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let target = diff::shown(&row.target);
    let Some(status) = &row.status else {
        let mut cells: [String; COLUMNS.len()] = Default::default();
        cells[0] = target;
        cells[3] = "no answer".to_owned();
        return cells;
    };
    let kept = &status.protection;
    let text = |text: &Option<String>| diff::shown(text.as_deref().unwrap_or("-"));
    // Of a time, the day.
    let day = |time: &Option<String>| text(time).chars().take(10).collect::<String>();
    [
        target,
        text(&status.postgresql),
        if status.server_pid.is_some() { "running" } else { "stopped" }.to_owned(),
        kept.sealed.shown().to_owned(),
        text(&status.suite),
        day(&kept.since),
        day(&kept.key_rotated),
        // The keyring's own key, and those of the recipients.
        if kept.since.is_some() { (1 + kept.recipients.len()).to_string() } else { "-".to_owned() },
        match &kept.escrow {
            None => "NONE".to_owned(),
            Some(copy) if copy.lacks.is_empty() => day(&Some(copy.made.clone())),
            Some(_) => "OLD".to_owned(),
        },
        match &kept.backup_checked {
            None => "-".to_owned(),
            Some(check) if check.sound => day(&Some(check.when.clone())),
            Some(_) => "NOT SOUND".to_owned(),
        },
    ]
}
