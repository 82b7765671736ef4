//! The table of verdicts in `spec/threat-model.md`.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The verdict on a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server does not start.
    Prevented,
    /// A query that needs the data fails.
    AtRead,
    /// Nothing fails, but `pgseal verify` finds it.
    ByVerify,
    /// The rows are right, and `verify` reports nothing.
    NoEffect,
    /// The rows are wrong, and nothing reports it.
    Not,
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// The kind of file.
    pub class: String,
    /// What was changed.
    pub change: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// What PostgreSQL said.
    pub text: String,
    /// What `pgseal verify` said before the start.
    pub found: ByVerify,
}

/// What `pgseal verify` says of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByVerify {
    /// Its exit status is 1.
    Finds,
    /// It names the file as one that PostgreSQL rebuilds, which is no failure.
    Rebuilt,
    /// It counts zero blocks where there were none, which is no failure.
    Zeros,
    /// Nothing.
    Nothing,
    /// The file does not outlive its server.
    NotAsked,
}

const BEGIN: &str =
    "<!-- tamper table: begin (written by tests/pgseal-scenarios/scenarios/tamper.rs) -->";
const END: &str = "<!-- tamper table: end -->";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/threat-model.md")
}

/// The major version whose words the table quotes.
const MAJOR_OF_TABLE: &str = "15";

/// Compares the verdicts with the table, or writes the table if `UPDATE_EXPECT=1`. Messages are not
/// compared on other major versions than that of the table, because they differ.
pub fn compare(rows: &[Row], major: &str) {
    let path = document();
    let text = fs::read_to_string(&path).expect("spec/threat-model.md is there");
    let start = text.find(BEGIN).expect("the mark before the table") + BEGIN.len();
    let end = text.find(END).expect("the mark behind the table");
    let made = format!("\n\n{}\n", rendered(rows));
    let same_words = major == MAJOR_OF_TABLE;
    if same_words && env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        let new = format!("{}{made}{}", &text[..start], &text[end..]);
        fs::write(&path, new).expect("spec/threat-model.md can be written");
        return;
    }
    let old: Vec<&str> = text[start..end].lines().collect();
    let made: Vec<&str> = made.lines().collect();
    let is_same =
        |old: &str, new: &str| if same_words { old == new } else { verdict(old) == verdict(new) };
    let mut differences = String::new();
    for (old, new) in old.iter().zip(&made).filter(|(old, new)| !is_same(old, new)) {
        // Writing to a string cannot fail.
        let _ = writeln!(differences, "- {old}\n+ {new}");
    }
    assert!(
        differences.is_empty(),
        "spec/threat-model.md differs on {major}; with {MAJOR_OF_TABLE}, UPDATE_EXPECT=1 writes \
         it anew:\n{differences}"
    );
    assert_eq!(old.len(), made.len(), "spec/threat-model.md differs in length");
}

/// A line of the table without PostgreSQL's message. Below a running server it depends on the
/// version which process reads a page and what that process still knows of the file (18 has I/O
/// workers), so who detects a change is left out there.
fn verdict(line: &str) -> Vec<&str> {
    let columns = line.split('|').enumerate().filter(|(index, _)| *index != 4);
    let is_running = line.contains("while the server runs");
    let shown = |column| match column {
        "detected at read" | "detected by verify" if is_running => "detected",
        column => column,
    };
    columns.map(|(_, column)| shown(column.trim())).collect()
}

fn rendered(rows: &[Row]) -> String {
    let mut text = String::from(
        "| file | change | verdict | what PostgreSQL says | `pgseal verify` |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let verdict = match row.verdict {
            Verdict::Prevented => "prevented",
            Verdict::AtRead => "detected at read",
            Verdict::ByVerify => "detected by verify",
            Verdict::NoEffect => "no effect",
            Verdict::Not => "**not detected**",
        };
        let verify = match row.found {
            ByVerify::Finds => "finds it",
            ByVerify::Rebuilt => "names it: PostgreSQL rebuilds it",
            ByVerify::Zeros => "lists the zero block",
            ByVerify::Nothing => "finds nothing",
            ByVerify::NotAsked => "-",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {verdict} | {} | {verify} |",
            row.class, row.change, row.text
        );
    }
    text
}

/// The line of a server's log that says why it did not start: pgseal's line, or else PostgreSQL's.
pub fn reason_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("pgseal: LOG:")).collect();
    from_mark(&lines.join("\n"), &["pgseal: ", "PANIC:", "FATAL:"])
}

/// The line of a failed query that says why.
pub fn error_of(said: &str) -> String {
    from_mark(said, &["FATAL:", "ERROR:"])
}

fn from_mark(text: &str, marks: &[&str]) -> String {
    let found = marks.iter().find_map(|mark| text.find(mark));
    found.map_or("no reason given", |at| text[at..].lines().next().unwrap_or_default()).to_owned()
}

/// A message without the parts that differ between runs: numbers of files, names of directories.
pub fn plain(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        words.push(word.split('/').map(part).collect::<Vec<_>>().join("/"));
    }
    let mut text = words.join(" ").replace('|', "/");
    // Where the test happens to run.
    while let Some(start) = text.find("/tmp/")
        && let Some(end) = text[start..].find("/h/")
    {
        text.replace_range(start..start + end + "/h/".len(), "");
    }
    // How much WAL there is before a test differs between runs.
    const PAGE_OF_WAL: &str = "\"pg_wal/N\": block ";
    if let Some(at) = text.find(PAGE_OF_WAL).map(|at| at + PAGE_OF_WAL.len())
        && let Some(end) = text[at..].find(' ')
    {
        text.replace_range(at..at + end, "N");
    }
    text
}

/// A part of a path; numbers, also hexadecimal ones, of three digits and more become `N`.
fn part(part: &str) -> String {
    let edges = ['"', ',', ';', ':', '.'];
    let core = part.trim_matches(edges);
    let is_number = core.len() >= 3
        && core.contains(|letter: char| letter.is_ascii_digit())
        && core.chars().all(|letter| letter.is_ascii_hexdigit());
    if is_number {
        return part.replacen(core, "N", 1);
    }
    match core.strip_prefix("pgsql_tmp") {
        Some(number) if !number.is_empty() => part.replacen(number, "N", 1),
        _ => part.to_owned(),
    }
}
