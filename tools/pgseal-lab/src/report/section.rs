//! The section of one experiment on the HTML page.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::chart;
use super::colors::Colors;
use super::emphasis::emphasised;
use super::format::rounds;
use super::html::Files;
use super::markup::{date, escape, script_json};
use super::tables;
use super::{CSV, Entry, json_of};
use crate::analysis::{ArmAnalysis, CaseAnalysis, Verdict};
use crate::environment::Environment;
use crate::exhibits::{Finding, Tone};
use crate::store::RESULTS;
use crate::warning::Warning;

/// Size limit of the JSON embedded in the page; a larger `results.json` is only linked.
const EMBED_BYTES: usize = 4 << 20;
/// Number of warnings of one kind that are shown unfolded.
const SHOWN_WARNINGS: usize = 2;

/// The whole section. `nested`: the page has other sections, so this one gets a heading.
pub fn section(entry: &Entry, nested: bool, files: Files, colors: &Colors) -> String {
    let Entry { results, exhibits, .. } = entry;
    let name = &results.experiment;
    let mut out = format!("<section class=\"experiment\" id=\"{}\">", escape(name));
    // Writing to a String cannot fail.
    if nested {
        let _ = write!(out, "<h2 class=\"head\">{}</h2>", escape(&entry.title));
    }
    let _ = write!(out, "<p class=\"study-line\">Repeats: {}</p>", escape(&entry.study));
    out.push_str(&badges(entry));
    if !exhibits.findings.is_empty() {
        let _ = write!(
            out,
            "<div class=\"card found\" id=\"{}-found\"><h2>What was found</h2>{}<p \
             class=\"note\">{}</p></div>",
            escape(name),
            findings(exhibits.findings.iter(), !entry.analysis.is_too_noisy()),
            escape(&entry.analysis.noise().map(|noise| noise.line()).unwrap_or_default())
        );
    }
    out.push_str(&warnings(entry));
    out.push_str(&missing(entry));
    if !exhibits.charts.is_empty() {
        let _ = write!(out, "<div class=\"charts\" id=\"{}-charts\">", escape(name));
        for chart in &exhibits.charts {
            out.push_str(&chart::figure(name, chart, colors));
        }
        out.push_str("</div>");
    }
    for table in &exhibits.tables {
        out.push_str(&tables::exhibit(name, table));
    }
    out.push_str(&tables::cases(entry));
    out.push_str(&environment(&results.environment));
    out.push_str(&reproduce(entry, files));
    out.push_str("</section>");
    out
}

/// The list of findings, each with the study's finding if there is one. `bold`: figures are bold,
/// which those of a noisy machine must not be.
pub fn findings<'a>(findings: impl Iterator<Item = &'a Finding>, bold: bool) -> String {
    let mut out = String::from("<ul class=\"findings\">");
    for finding in findings {
        let text = if bold { emphasised(&finding.text) } else { escape(&finding.text) };
        let _ = write!(out, "<li><p>{text}</p>");
        if let Some(study) = &finding.study {
            let _ = write!(
                out,
                "<p class=\"study\"><span class=\"tag\">study</span> {}</p>",
                escape(study)
            );
        }
        out.push_str("</li>");
    }
    out.push_str("</ul>");
    out
}

fn badges(entry: &Entry) -> String {
    let Entry { results, analysis, .. } = entry;
    let plan = &results.plan;
    let mut badges: Vec<(&str, String)> = Vec::new();
    if !results.finished {
        badges.push(("warn", "not finished: go on with --resume".to_owned()));
    }
    badges.push(("", format!("profile {}", plan.profile)));
    badges.push(("", rounds(results.rounds_done())));
    badges.push(("", format!("{} samples", results.samples.len())));
    // The second measurement of the baseline is not a result.
    let again = plan.again().map(|arm| arm.id.as_str());
    let arms =
        || analysis.cases.iter().flat_map(|case| case.arms.iter().map(move |arm| (case, arm)));
    let arms = || arms().filter(|(_, arm)| Some(arm.arm.as_str()) != again);
    let count = |verdict| arms().filter(|(_, arm)| arm.verdict == verdict).count();
    let tone = |case: &CaseAnalysis, arm: &ArmAnalysis| {
        entry.costs.get(&(case.case.clone(), arm.arm.clone())).map(|cell| cell.tone)
    };
    let beyond = arms().filter(|(case, arm)| tone(case, arm) == Some(Tone::Bad)).count();
    for (class, number, words) in [
        ("good", count(Verdict::Better), "cost less"),
        ("", count(Verdict::Worse), "cost more"),
        ("bad", beyond, "more than they should"),
        ("", count(Verdict::NoDifference), "not distinguishable"),
        ("warn", count(Verdict::Withheld), "withheld"),
    ] {
        if number > 0 {
            badges.push((class, format!("{number} {words}")));
        }
    }
    let floors = analysis.cases.iter().filter(|case| case.noise.is_some());
    let widest = floors.map(|case| case.noise_floor).fold(1.0, f64::max);
    if widest > 1.0 {
        badges.push(("", format!("noise floor up to {:.1} %", (widest - 1.0) * 100.0)));
    }
    let mut out = String::from("<p class=\"badges\">");
    for (class, text) in badges {
        let _ = write!(out, "<span class=\"badge {class}\">{}</span>", escape(&text));
    }
    out.push_str("</p>");
    out
}

fn warnings(entry: &Entry) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    let mut by_kind: BTreeMap<&str, Vec<&Warning>> = BTreeMap::new();
    for warning in entry.results.warnings.iter().chain(&entry.analysis.warnings) {
        if !kinds.contains(&warning.kind()) {
            kinds.push(warning.kind());
        }
        by_kind.entry(warning.kind()).or_default().push(warning);
    }
    if kinds.is_empty() {
        return String::new();
    }
    let total: usize = by_kind.values().map(Vec::len).sum();
    let noun = if total == 1 { "warning" } else { "warnings" };
    let mut out = format!("<div class=\"card warnings\"><h2>{total} {noun}</h2><ul>");
    for warnings in kinds.iter().filter_map(|kind| by_kind.get(kind)) {
        for warning in warnings.iter().take(SHOWN_WARNINGS) {
            let _ = write!(out, "<li>{}</li>", escape(&warning.text()));
        }
        let more = warnings.len().saturating_sub(SHOWN_WARNINGS);
        if more > 0 {
            let _ = write!(out, "<li><details><summary>{more} more of this kind</summary><ul>");
            for warning in warnings.iter().skip(SHOWN_WARNINGS) {
                let _ = write!(out, "<li>{}</li>", escape(&warning.text()));
            }
            out.push_str("</ul></details></li>");
        }
    }
    out.push_str("</ul></div>");
    out
}

/// What is missing, why, and what would help.
type Reason<'a> = (&'a str, &'a str, &'a str);

fn missing(entry: &Entry) -> String {
    let missing = &entry.results.missing;
    if missing.is_empty() {
        return String::new();
    }
    // One row for each reason, with all places that it applies to.
    let mut reasons: Vec<(Reason<'_>, Vec<String>)> = Vec::new();
    for one in missing {
        let reason = (one.what.as_str(), one.why.as_str(), one.remedy.as_str());
        let place = match &one.arm {
            Some(arm) => format!("{}, {arm}", one.case),
            None => one.case.clone(),
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, places)) => places.push(place),
            None => reasons.push((reason, vec![place])),
        }
    }
    let mut out = String::from(
        "<div class=\"card missing\"><h2>Not measured here</h2><div class=\"scroll\"><table \
         class=\"sortable\"><thead><tr><th>What</th><th>Why</th><th>What would help</th>\
         <th>Where</th></tr></thead><tbody>",
    );
    for ((what, why, remedy), places) in reasons {
        let shown = match places.as_slice() {
            few if few.len() <= 3 => escape(&few.join("; ")),
            many => format!(
                "<details><summary>{} places</summary>{}</details>",
                many.len(),
                escape(&many.join("; "))
            ),
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{shown}</td></tr>",
            escape(what),
            escape(why),
            escape(remedy)
        );
    }
    out.push_str("</tbody></table></div></div>");
    out
}

fn environment(machine: &Environment) -> String {
    let or = |text: &Option<String>, other: &str| text.clone().unwrap_or_else(|| other.to_owned());
    let mhz = machine.frequency_mhz.map_or("not told".to_owned(), |mhz| format!("{mhz:.0} MHz"));
    let rows = [
        ("CPU", machine.cpu_model.clone()),
        ("CPUs in use", machine.cpus.to_string()),
        ("CPU flags that matter", machine.cpu_flags.join(" ")),
        ("Virtual", or(&machine.virtual_cpu, "no sign of it")),
        ("Clock", format!("{mhz}, governor {}", or(&machine.governor, "not told"))),
        ("Memory", super::format::quantity(machine.memory_bytes as f64, "bytes")),
        ("Kernel", machine.kernel.clone()),
        ("Distribution", machine.distribution.clone()),
        ("File system of the clusters", machine.file_system.clone()),
        ("PostgreSQL", machine.postgresql.join("; ")),
        ("OpenSSL of the system", or(&machine.openssl, "none")),
        ("pgseal", machine.pgseal.clone()),
        ("Load before", load(machine)),
        ("Started", date(machine.time_unix_s)),
    ];
    let mut out = String::from(
        "<details class=\"card environment\" open><summary><h2>Environment</h2></summary><dl class=\"env\">",
    );
    for (name, value) in rows {
        let value = if value.is_empty() { "not told".to_owned() } else { value };
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    out.push_str("</dl></details>");
    out
}

fn load(machine: &Environment) -> String {
    match machine.others_before {
        Some(cpus) => format!("other programs used {cpus:.2} CPUs"),
        None => format!("load average {:.2}", machine.load_before),
    }
}

fn reproduce(entry: &Entry, files: Files) -> String {
    let results = &entry.results;
    let name = escape(&results.experiment);
    let mut out = format!(
        "<div class=\"card\"><h2>Measure it again</h2><pre><code>{}</code></pre><p class=\"note\">Plan \
         <code>{}</code>, seed {}. Results compare only if their plans are the same: <code>pgseal lab \
         compare A B</code>.</p>",
        escape(&results.command),
        escape(results.plan_hash.get(..16).unwrap_or(&results.plan_hash)),
        results.plan.seed,
    );
    let below = match files {
        Files::Beside => String::new(),
        Files::Below => format!("{name}/"),
    };
    let _ = write!(
        out,
        "<p>All samples: <a href=\"{below}{RESULTS}\">{RESULTS}</a>, <a href=\"{below}{CSV}\">{CSV}</a> \
         (beside this page)"
    );
    let json = json_of(entry).ok().and_then(|json| String::from_utf8(json).ok());
    let json = json.and_then(|json| compact(&json)).filter(|json| json.len() <= EMBED_BYTES);
    if let Some(json) = json {
        let _ = write!(
            out,
            "<button type=\"button\" class=\"save\" hidden data-from=\"data-{name}\" \
             data-name=\"{name}-results.json\">Save the copy in this page</button></p>\
             <script type=\"application/json\" id=\"data-{name}\">{}</script></div>",
            script_json(&json)
        );
    } else {
        out.push_str(".</p></div>");
    }
    out
}

fn compact(json: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    serde_json::to_string(&value).ok()
}
