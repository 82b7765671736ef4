//! The HTML page: one self-contained file, readable without a network and without JavaScript.

use std::fmt::Write;

use super::Entry;
use super::colors::Colors;
use super::first;
use super::markup::{date, escape};
use super::section;
use crate::environment::Environment;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Number of findings that the summary of several experiments shows for each.
const SUMMARY_FINDINGS: usize = 4;

/// Where `results.json` and `results.csv` of an experiment are, relative to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// In the page's directory.
    Beside,
    /// In a subdirectory with the experiment's name.
    Below,
}

/// One self-contained page of one experiment, or of several with a summary.
pub fn html_of(entries: &[Entry], files: Files) -> String {
    let title = match entries {
        [one] => one.title.clone(),
        _ => "What encryption costs on this machine".to_owned(),
    };
    let mut out = head(&title);
    let environment = entries.first().map(|entry| &entry.results.environment);
    let colors = Colors::of(entries);
    out.push_str(&masthead(&title, environment, entries));
    out.push_str(&first::screen(entries, &colors));
    if entries.len() > 1 {
        out.push_str(&summary(entries));
    }
    for entry in entries {
        out.push_str(&section::section(entry, entries.len() > 1, files, &colors));
    }
    out.push_str(FOOT);
    let _ = writeln!(out, "<script>{SCRIPT}</script></body></html>");
    out
}

fn head(title: &str) -> String {
    // The Content-Security-Policy blocks all external resources.
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>{} - pgseal lab</title><style>{STYLE}</style></head><body>\n",
        escape(title)
    )
}

fn masthead(title: &str, environment: Option<&Environment>, entries: &[Entry]) -> String {
    let mut out = String::from("<header class=\"top\"><div class=\"bar\">");
    out.push_str("<span class=\"brand\">pgseal <b>lab</b></span>");
    out.push_str("<nav aria-label=\"Parts of this page\"><a href=\"#answer\">answer</a>");
    match entries {
        [one] => {
            let name = escape(&one.results.experiment);
            let parts = [
                ("found", one.exhibits.findings.is_empty()),
                ("charts", one.exhibits.charts.is_empty()),
                ("cases", false),
            ];
            for (part, _) in parts.iter().filter(|(_, empty)| !empty) {
                let _ = write!(out, "<a href=\"#{name}-{part}\">{part}</a>");
            }
        }
        several => {
            for entry in several {
                let name = escape(&entry.results.experiment);
                let _ = write!(out, "<a href=\"#{name}\">{name}</a>");
            }
        }
    }
    out.push_str("</nav>");
    out.push_str(
        "<button type=\"button\" id=\"theme\" hidden title=\"Light or dark\">Light / dark</button></div>",
    );
    let _ = write!(out, "</header><main><h1 id=\"answer\">{}</h1>", escape(title));
    if let Some(machine) = environment {
        let versions = machine.postgresql.first().map(|v| short_version(v)).unwrap_or_default();
        let facts = [
            format!("{}, {} CPUs", machine.cpu_model, machine.cpus),
            versions,
            format!("pgseal {}", machine.pgseal),
            date(machine.time_unix_s),
        ];
        let shown: Vec<String> =
            facts.iter().filter(|fact| !fact.is_empty()).map(|fact| escape(fact)).collect();
        let _ = write!(out, "<p class=\"machine\">{}</p>", shown.join(" <i>&middot;</i> "));
    }
    out
}

/// `PostgreSQL 15.18` from `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn short_version(version: &str) -> String {
    let number = version.split_once("(PostgreSQL) ").map_or(version, |(_, rest)| rest);
    format!("PostgreSQL {}", number.split(' ').next().unwrap_or_default())
}

fn summary(entries: &[Entry]) -> String {
    let mut out = String::from("<section class=\"summary\" id=\"summary\">");
    for entry in entries {
        let name = escape(&entry.results.experiment);
        let _ = write!(
            out,
            "<div class=\"card\"><h2><a href=\"#{name}\">{}</a></h2>{}",
            escape(&entry.title),
            section::findings(
                entry.exhibits.findings.iter().take(SUMMARY_FINDINGS),
                !entry.analysis.is_too_noisy()
            )
        );
        if entry.exhibits.findings.is_empty() {
            out.push_str("<p class=\"note\">No findings yet.</p>");
        }
        let _ =
            write!(out, "<p class=\"more\"><a href=\"#{name}\">Charts and tables</a></p></div>");
    }
    out.push_str("</section>");
    out
}

const FOOT: &str = "<footer><p>Made by <code>pgseal lab</code>. Figures of a study stand in shaded \
    columns and dashed or hatched in charts; they were published by the study, measured on its machine \
    and with its software, and are never mixed with those measured here.</p></footer></main>\
    <div id=\"tip\" role=\"status\" hidden></div>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_short() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)";
        assert_eq!(short_version(debian), "PostgreSQL 15.18");
        assert_eq!(short_version("postgres (PostgreSQL) 19devel"), "PostgreSQL 19devel");
    }
}
