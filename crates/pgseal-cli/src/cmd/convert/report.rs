//! The report of a conversion, for people and as JSON.

use std::io::{self, Write};

use pgseal_convert::Found;
use pgseal_convert::engine::Task;
use pgseal_convert::plan::Action;
use serde::Serialize;

use crate::exit;
use crate::out::{self, Out};

/// The most names of files in a line.
const SHOWN: usize = 8;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No obstacle.
    Ok,
    /// A remark, no obstacle.
    Note,
    /// The settings do not allow it.
    Settings,
    /// The state of the data directory does not allow it.
    State,
    /// Something is damaged.
    Damage,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub what: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The result in words, with the next step.
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
struct Damaged {
    file: String,
    blocks: Vec<String>,
    text: Option<String>,
}

/// Everything about one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    operation: &'static str,
    data_directory: String,
    check_only: bool,
    /// Whether an interrupted conversion was resumed.
    pub resumed: bool,
    /// Whether the conversion is complete.
    pub done: bool,
    /// The checks before the first change.
    pub checks: Vec<Check>,
    /// Files written anew.
    pub files: u64,
    /// Their plain bytes.
    pub plain_bytes: u64,
    /// Files removed: temporary ones, and damaged ones that PostgreSQL rebuilds.
    pub removed: u64,
    /// The time of the conversion, in seconds.
    pub seconds: f64,
    /// Threads.
    pub jobs: usize,
    /// Files that are not PostgreSQL's and were not converted.
    pub left_alone: Vec<String>,
    damaged: Vec<Damaged>,
    /// What to do next.
    pub next: Vec<String>,
}

impl Report {
    /// An empty report.
    pub fn new(operation: &'static str, data_directory: String, check_only: bool) -> Report {
        Report {
            operation,
            data_directory,
            check_only,
            resumed: false,
            done: false,
            checks: Vec::new(),
            files: 0,
            plain_bytes: 0,
            removed: 0,
            seconds: 0.0,
            jobs: 0,
            left_alone: Vec::new(),
            damaged: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Adds a check.
    pub fn check(&mut self, what: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.checks.push(Check { what, verdict, text: text.into() });
    }

    /// Adds damaged files.
    pub fn add_damage(&mut self, found: &[Found]) {
        for found in found {
            let blocks = found.blocks.iter().map(out::blocks).collect();
            let (file, text) = (found.file.clone(), found.text.clone());
            self.damaged.push(Damaged { file, blocks, text });
        }
    }

    /// Sets the files that are not converted.
    pub fn set_left_alone(&mut self, tasks: &[Task]) {
        let foreign = tasks.iter().filter(|task| task.action == Action::Foreign);
        self.left_alone = foreign.map(|task| task.item.name()).collect();
    }

    /// The worst of the checks.
    pub fn worst(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// The exit status.
    pub fn exit_code(&self) -> u8 {
        match self.worst() {
            _ if self.done && self.damaged.is_empty() => exit::SOUND,
            _ if self.done => exit::DAMAGE,
            Verdict::Ok | Verdict::Note => exit::SOUND,
            Verdict::Settings => exit::SETTINGS,
            Verdict::State => exit::NOT_NOW,
            Verdict::Damage => exit::DAMAGE,
        }
    }

    /// Prints it for people.
    pub fn print(&self, out: &mut Out, quiet: bool) -> io::Result<()> {
        let all = self.check_only || self.worst() > Verdict::Note;
        for check in &self.checks {
            let mark = match check.verdict {
                Verdict::Ok if quiet || !all => continue,
                Verdict::Note if quiet => continue,
                Verdict::Ok => "ok  ",
                Verdict::Note => "note",
                _ => "STOP",
            };
            writeln!(out, "{mark}  {}: {}", check.what, check.text)?;
        }
        for damaged in self.damaged.iter().take(100) {
            let blocks = match damaged.blocks.len() {
                0 => String::new(),
                _ => format!(" blocks {}", damaged.blocks.join(", ")),
            };
            let text = damaged.text.as_deref().unwrap_or("not pages that PostgreSQL accepts");
            writeln!(out, "DAMAGED  {}:{blocks} {text}", damaged.file)?;
        }
        if self.damaged.len() > 100 {
            writeln!(
                out,
                "DAMAGED  and {} more files; --json lists them",
                self.damaged.len() - 100
            )?;
        }
        if quiet {
            return Ok(());
        }
        if !self.left_alone.is_empty() && self.operation == "encrypt" {
            let shown = self.left_alone.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
            let more = self.left_alone.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(
                out,
                "note  not PostgreSQL's, and left plain: {}{more}; move them away if they hold data",
                shown.join(", ")
            )?;
        }
        if self.done {
            let rate =
                if self.seconds > 0.0 { self.plain_bytes as f64 / self.seconds } else { 0.0 };
            writeln!(
                out,
                "{}: {}, {} written anew in {:.1} s ({}/s, {}).",
                self.data_directory,
                out::count(self.files, "file"),
                out::human_bytes(self.plain_bytes),
                self.seconds,
                out::human_bytes(rate as u64),
                out::count(self.jobs as u64, "thread"),
            )?;
        }
        for line in &self.next {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}
