//! `pgseal status --hosts`: many clusters in one table. A path is a data directory of this machine;
//! `HOST` and `HOST:DIR` are asked through `ssh`, where pgseal must be installed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protection::{Protection, Sealed};
use crate::error::CliError;
use crate::out::{self, Out};
use crate::{child, diff, exit, library};

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

/// Asks all targets at once, and prints the table.
pub fn run(targets: &[String], timeout: Duration, json: bool) -> Result<u8, CliError> {
    if let Some(bad) = targets.iter().find(|target| target.starts_with('-') || target.is_empty()) {
        return Err(CliError::Usage(format!("status --hosts: \"{bad}\" is no host and no path")));
    }
    let program = library::program()?;
    let rows: Vec<Row> = thread::scope(|scope| {
        let ask = |target: &'_ String| -> Row {
            let (status, error) = match ask(&program.clone().into_os_string(), target, timeout) {
                Ok(answer) => (Some(answer), None),
                Err(why) => (None, Some(why)),
            };
            Row { target: target.clone(), status, error }
        };
        let started: Vec<_> =
            targets.iter().map(|target| scope.spawn(move || ask(target))).collect();
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
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

fn ask(program: &OsString, target: &str, timeout: Duration) -> Result<Answer, String> {
    let mut command = match target.split_once(':') {
        _ if target.contains('/') && !target.split('/').next().unwrap_or("").contains(':') => {
            let mut command = Command::new(program);
            command.args(["status", "--brief", "--json", "-D", target]);
            command
        }
        Some((host, dir)) => remote(host, Some(dir), timeout),
        None => remote(target, None, timeout),
    };
    let said = child::output_within(&mut command, timeout).map_err(|error| error.to_string())?;
    let answer = serde_json::from_slice(&said.stdout);
    answer.map_err(|_| {
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no answer");
        let last = last.strip_prefix("pgseal: ").unwrap_or(last);
        match said.status.code() {
            Some(127) => format!("{}; install pgseal there", diff::shown(last)),
            Some(code) => format!("{} (exit status {code})", diff::shown(last)),
            None => diff::shown(last),
        }
    })
}

/// `ssh` never asks, and gives up in time. The remote shell gets one quoted word as the directory.
fn remote(host: &str, dir: Option<&str>, timeout: Duration) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", "BatchMode=yes", "-o"]);
    command.arg(format!("ConnectTimeout={}", timeout.as_secs().max(1))).args(["--", host]);
    let quoted = dir.map(|dir| format!(" -D '{}'", dir.replace('\'', "'\\''")));
    command.arg(format!("pgseal status --brief --json{}", quoted.unwrap_or_default()));
    command
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
