//! Tables of the HTML page.

use std::fmt::Write;

use super::Entry;
use super::format::{quantity, span};
use super::markup::{escape, identifier};
use crate::analysis::{ArmAnalysis, CaseAnalysis, Verdict};
use crate::cost::{Cost, verdict_words};
use crate::exhibits::{Cell, Column, Origin, Table, Tone};
use crate::plan::Case;

/// A table with more rows than this is shown folded.
const FOLD: usize = 60;

/// An experiment's own table.
pub fn exhibit(prefix: &str, table: &Table) -> String {
    let id = format!("{prefix}-table-{}", identifier(&table.id));
    let mut inner = String::from("<div class=\"scroll\"><table class=\"sortable\"><thead><tr>");
    for column in &table.columns {
        inner.push_str(&head(column));
    }
    inner.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        inner.push_str("<tr>");
        for (column, cell) in table.columns.iter().zip(row) {
            inner.push_str(&field(column, cell));
        }
        inner.push_str("</tr>");
    }
    inner.push_str("</tbody></table></div>");
    if let Some(note) = &table.note {
        let _ = write!(inner, "<p class=\"note\">{}</p>", escape(note));
    }
    folded(&id, &table.title, table.rows.len(), &inner)
}

/// A card, folded if it is long.
fn folded(id: &str, title: &str, rows: usize, inner: &str) -> String {
    let open = if rows > FOLD { "" } else { " open" };
    format!(
        "<details class=\"card table\" id=\"{id}\"{open}><summary><h3>{}</h3><span class=\"count\">{rows} \
         {}</span></summary>{inner}</details>",
        escape(title),
        if rows == 1 { "row" } else { "rows" }
    )
}

fn head(column: &Column) -> String {
    let mut class = String::new();
    if column.numeric {
        class.push_str("n ");
    }
    let tag = if column.origin == Origin::Study {
        class.push_str("study");
        " <span class=\"tag\">study</span>"
    } else {
        ""
    };
    let unit = if column.unit.is_empty() {
        String::new()
    } else {
        format!(" <small>{}</small>", escape(&column.unit))
    };
    format!("<th class=\"{}\">{}{unit}{tag}</th>", class.trim_end(), escape(&column.title))
}

/// The class of an emphasis.
pub fn class_of(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Faint => "faint",
    }
}

/// A field of a column.
pub fn field(column: &Column, cell: &Cell) -> String {
    let mut class = String::new();
    if column.numeric {
        class.push_str("n ");
    }
    if column.origin == Origin::Study {
        class.push_str("study ");
    }
    class.push_str(class_of(cell.tone));
    let value = cell.value.map(|value| format!(" data-v=\"{value}\"")).unwrap_or_default();
    let text = escape(&cell.text);
    let text = match &cell.hint {
        Some(hint) => format!(
            "<span class=\"hint\" data-tip=\"{hint}\" title=\"{hint}\">{text}</span>",
            hint = escape(hint)
        ),
        None => text,
    };
    format!("<td class=\"{}\"{value}>{text}</td>", class.trim_end())
}

/// The table of every arm in every case, compared with the case's baseline.
pub fn cases(entry: &Entry) -> String {
    let (plan, analysis) = (&entry.results.plan, &entry.analysis);
    let mut rows = 0;
    let mut inner = String::from(
        "<p class=\"note\">Median of the rounds with its 95 % bootstrap interval. Cost: time (or bytes) for \
         the same work against the baseline of the same rounds; plus is more, minus is less, in every case. \
         A cost within the noise floor, which the baseline measured twice gives, or whose interval touches \
         0, cannot be told from noise. In the drawing: the grey band is the noise floor, the line in its \
         middle is the baseline, and right is more.</p><div class=\"scroll\"><table \
         class=\"sortable\"><thead><tr><th>Case</th><th>Arm</th><th class=\"n\">Median</th>\
         <th class=\"n\">95 % interval</th><th class=\"n\">Cost</th><th class=\"n\">95 % interval</th>\
         <th class=\"still\">Cost drawn</th><th>Verdict</th><th class=\"n\">Rounds</th></tr></thead><tbody>",
    );
    for case in &analysis.cases {
        let Some(planned) = plan.case(&case.case) else { continue };
        for arm in &case.arms {
            rows += 1;
            inner.push_str(&case_row(entry, planned, case, arm));
        }
    }
    inner.push_str("</tbody></table></div>");
    folded(&format!("{}-cases", entry.results.experiment), "Every case", rows, &inner)
}

fn case_row(entry: &Entry, planned: &Case, case: &CaseAnalysis, arm: &ArmAnalysis) -> String {
    let plan = &entry.results.plan;
    let title = plan.arm(&arm.arm).map_or(arm.arm.as_str(), |arm| arm.title.as_str());
    let mut out = format!(
        "<tr><td class=\"w\"><span class=\"hint\" data-tip=\"{}\">{}</span></td><td class=\"w\">{}</td>",
        escape(&case.case),
        escape(&planned.title),
        escape(title),
    );
    if arm.n == 0 {
        let why = entry.results.missing_of(&case.case, &arm.arm);
        let why = why.map_or("not measured yet".to_owned(), |m| format!("{}: {}", m.what, m.why));
        let _ = write!(
            out,
            "<td class=\"n faint\"><span class=\"hint\" data-tip=\"{why}\" title=\"{why}\">missing\
             </span></td><td></td><td></td><td></td><td></td><td class=\"faint\">missing</td>\
             <td class=\"n\">0</td></tr>",
            why = escape(&why)
        );
        return out;
    }
    let of = |value: f64| escape(&quantity(value, &planned.unit));
    let interval = match arm.interval {
        (low, high) if low.is_finite() && high.is_finite() => {
            escape(&span(low, high, &planned.unit))
        }
        _ => String::new(),
    };
    let _ = write!(
        out,
        "<td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\">{interval}</td>",
        arm.median,
        of(arm.median)
    );
    let shown = entry.costs.get(&(case.case.clone(), arm.arm.clone()));
    let tone = shown.map_or(Tone::Faint, |cell| cell.tone);
    match (Cost::of(case, planned, &arm.arm), &arm.withheld) {
        (Some(cost), _) => {
            let _ = write!(
                out,
                "<td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\">{}</td><td>{}</td>",
                cost.times,
                cost.change(),
                cost.interval(),
                drawn(case, planned, &cost, tone),
            );
        }
        (None, Some(why)) => {
            let _ = write!(
                out,
                "<td class=\"n faint\"><span class=\"hint\" data-tip=\"{why}\" title=\"{why}\">withheld\
                 </span></td><td></td><td></td>",
                why = escape(why)
            );
        }
        (None, None) => out.push_str("<td></td><td></td><td></td>"),
    }
    let again = plan.again().is_some_and(|again| again.id == arm.arm);
    let words = match arm.verdict {
        _ if again => "noise floor".to_owned(),
        Verdict::Better => "costs less".to_owned(),
        Verdict::Worse if tone == Tone::Bad => "more than it should".to_owned(),
        Verdict::Worse => "costs more".to_owned(),
        verdict => verdict_words(verdict, case.noise_floor),
    };
    let class = if again { "faint" } else { class_of(tone) };
    let _ = write!(out, "<td class=\"{class}\">{words}</td><td class=\"n\">{}</td></tr>", arm.n);
    out
}

/// Draws the cost and its interval on a small logarithmic axis, with the noise floor behind them.
fn drawn(case: &CaseAnalysis, planned: &Case, cost: &Cost, tone: Tone) -> String {
    let (width, middle, height) = (132.0, 66.0, 16.0);
    let reach = case
        .arms
        .iter()
        .filter_map(|arm| Cost::of(case, planned, &arm.arm))
        .flat_map(|cost| [cost.times, cost.low, cost.high])
        .filter(|end| end.is_finite() && *end > 0.0)
        .map(|end| end.ln().abs())
        .fold(case.noise_floor.ln().max(0.02), f64::max)
        // Values beyond a factor of 2 are drawn at the edge.
        .min(std::f64::consts::LN_2);
    let at = |value: f64| middle + (value.max(1e-9).ln() / reach).clamp(-1.0, 1.0) * (middle - 5.0);
    let band = at(case.noise_floor) - at(1.0 / case.noise_floor);
    let interval = if cost.low.is_finite() && cost.high.is_finite() {
        format!("<path class=\"span\" d=\"M{:.1} 8H{:.1}\"/>", at(cost.low), at(cost.high))
    } else {
        String::new()
    };
    format!(
        "<svg class=\"mini {}\" width=\"{width}\" height=\"{height}\" aria-hidden=\"true\"><rect \
         class=\"band\" x=\"{:.1}\" y=\"1\" width=\"{band:.1}\" height=\"14\"/><path class=\"one\" \
         d=\"M{middle} 0V{height}\"/>{interval}<circle class=\"dot\" cx=\"{:.1}\" cy=\"8\" r=\"3.5\"/></svg>",
        class_of(tone),
        at(1.0 / case.noise_floor),
        at(cost.times)
    )
}
