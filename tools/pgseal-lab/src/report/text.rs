//! The report on a terminal: findings, every case against its baseline, missing items, warnings.

use std::fmt::Write;

use super::Entry;
use super::format::quantity;
use crate::cost::{Cost, verdict_words};
use crate::exhibits::Table;
use crate::results::Missing;

/// Longest line of a wrapped paragraph.
const WIDTH: usize = 100;

/// The findings, and the noise in one line. `verbose`: with every case against its baseline, what
/// is missing, and all warnings.
pub fn text_of(entry: &Entry, verbose: bool) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}\n", entry.title);
    let analysis = &entry.analysis;
    if analysis.is_too_noisy() {
        let text = "THIS MACHINE WAS TOO NOISY TO TELL. Stop other programs and measure again with \
                    --wait-quiet.";
        wrapped(&mut out, "", text);
        out.push('\n');
    }
    for finding in &entry.exhibits.findings {
        wrapped(&mut out, "* ", &finding.text);
        if let Some(study) = finding.study.as_ref().filter(|_| verbose) {
            wrapped(&mut out, "    the study: ", study);
        }
    }
    if let Some(noise) = analysis.noise() {
        wrapped(&mut out, "", &noise.line());
    }
    // Of a run that decides by its intervals when it ends, they are the result.
    if !entry.results.ends.is_empty()
        && let Some(first) = entry.exhibits.tables.first()
    {
        out.push('\n');
        table(&mut out, first);
        out.push('\n');
    }
    match verbose {
        true => details(&mut out, entry),
        false => counts(&mut out, entry),
    }
    out
}

/// A table in columns.
fn table(out: &mut String, table: &Table) {
    let titles: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
    let lines: Vec<Vec<&str>> = std::iter::once(titles).chain(rows).collect();
    let width = |at: usize| lines.iter().filter_map(|line| Some(line.get(at)?.len())).max();
    for line in &lines {
        let mut text = String::new();
        for (at, cell) in line.iter().enumerate() {
            let _ = write!(text, "{cell:0$}  ", width(at).unwrap_or(0));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    if let Some(note) = &table.note {
        wrapped(out, "", note);
    }
}

/// How much is missing and warned of.
fn counts(out: &mut String, entry: &Entry) {
    let (missing, warnings) = (entry.results.missing.len(), entry.warnings().len());
    let many = |count: usize, one: &str, more: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {more}")),
    };
    let parts = [
        many(missing, "value is missing", "values are missing"),
        many(warnings, "warning", "warnings"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        let _ = writeln!(out, "{} (--verbose shows them, and every case).", parts.join(", "));
    }
}

fn details(out: &mut String, entry: &Entry) {
    let Entry { results, analysis, .. } = entry;
    out.push('\n');
    for case in &analysis.cases {
        let Some(planned) = results.plan.case(&case.case) else { continue };
        let _ = writeln!(out, "{} ({})", planned.title, planned.unit);
        for arm in &case.arms {
            let title = results.plan.arm(&arm.arm).map_or(arm.arm.as_str(), |a| a.title.as_str());
            let value =
                if arm.n == 0 { "missing".to_owned() } else { quantity(arm.median, &planned.unit) };
            let cost = Cost::of(case, planned, &arm.arm);
            let against = cost.map_or(String::new(), |cost| match cost.interval() {
                none if none.is_empty() => cost.change(),
                interval => format!("{} ({interval})", cost.change()),
            });
            let verdict = verdict_words(arm.verdict, case.noise_floor);
            let _ = writeln!(out, "  {title:38} {value:>14}  {against:32} {verdict}");
            if let Some(why) = &arm.withheld {
                wrapped(out, "      ", why);
            }
        }
    }
    if !results.missing.is_empty() {
        out.push_str("\nMissing:\n");
        for missing in &results.missing {
            wrapped(out, "* ", &missing_text(missing));
        }
    }
    let warnings = entry.warnings();
    if !warnings.is_empty() {
        out.push_str("\nWarnings:\n");
        for warning in warnings {
            wrapped(out, "* ", &warning);
        }
    }
}

/// A missing item in words: where, what, why, and the remedy.
pub fn missing_text(missing: &Missing) -> String {
    let arm = missing.arm.as_ref().map(|arm| format!(", {arm}")).unwrap_or_default();
    let Missing { case, what, why, remedy, .. } = missing;
    format!("{case}{arm}: {what}: {why}; {remedy}")
}

/// A paragraph with a hanging indent.
fn wrapped(out: &mut String, lead: &str, text: &str) {
    let mut line = lead.to_owned();
    let indent = " ".repeat(lead.len());
    let mut fresh = true;
    for word in text.split_whitespace() {
        if !fresh && line.len() + 1 + word.len() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clone_from(&indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_columns() {
        use crate::exhibits::{Cell, Column};
        let columns = vec![Column::text("measure"), Column::text("n")];
        let row = |a: &str, b: &str| vec![Cell::text(a), Cell::text(b)];
        let rows = vec![row("a long name", "1"), row("b", "22")];
        let note = Some("What it says.".to_owned());
        let mut out = String::new();
        table(&mut out, &Table { id: String::new(), title: String::new(), columns, rows, note });
        assert_eq!(out, "measure      n\na long name  1\nb            22\nWhat it says.\n");
    }

    #[test]
    fn paragraphs_hang() {
        let mut out = String::new();
        wrapped(&mut out, "* ", &"word ".repeat(40));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("* word") && lines[1].starts_with("  word"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
    }
}
