//! The report on a terminal: findings, every case against its baseline, missing items, warnings.

use std::fmt::Write;

use super::Entry;
use super::format::{percent_change, quantity, ratio_text};
use crate::results::Missing;

/// Longest line of a wrapped paragraph.
const WIDTH: usize = 100;

/// The whole report.
pub fn text_of(entry: &Entry) -> String {
    let Entry { results, analysis, exhibits, .. } = entry;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}\n", entry.title);
    for finding in &exhibits.findings {
        wrapped(&mut out, "* ", &finding.text);
        if let Some(study) = &finding.study {
            wrapped(&mut out, "    the study: ", study);
        }
    }
    if !exhibits.findings.is_empty() {
        out.push('\n');
    }
    for case in &analysis.cases {
        let Some(planned) = results.plan.case(&case.case) else { continue };
        let _ = writeln!(out, "{} ({})", planned.title, planned.unit);
        for arm in &case.arms {
            let title = results.plan.arm(&arm.arm).map_or(arm.arm.as_str(), |a| a.title.as_str());
            let value =
                if arm.n == 0 { "missing".to_owned() } else { quantity(arm.median, &planned.unit) };
            let against = arm.ratio.map_or(String::new(), |ratio| {
                format!("{}, {}", ratio_text(&ratio), percent_change(ratio.value))
            });
            let _ = writeln!(out, "  {title:38} {value:>14}  {against:36} {}", arm.verdict.words());
        }
    }
    if !results.missing.is_empty() {
        out.push_str("\nMissing:\n");
        for missing in &results.missing {
            wrapped(&mut out, "* ", &missing_text(missing));
        }
    }
    let warnings = entry.warnings();
    if !warnings.is_empty() {
        out.push_str("\nWarnings:\n");
        for warning in warnings {
            wrapped(&mut out, "* ", &warning);
        }
    }
    out
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
    fn paragraphs_hang() {
        let mut out = String::new();
        wrapped(&mut out, "* ", &"word ".repeat(40));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("* word") && lines[1].starts_with("  word"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
    }
}
