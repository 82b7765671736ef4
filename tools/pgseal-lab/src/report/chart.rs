//! Charts as inline SVG, each in a wide and a narrow form; the style sheet shows the one that fits.

mod bars;
mod lines;
mod scale;

use std::fmt::Write;

use super::colors::{Colors, key_of};
use super::format::{quantity, span};
use super::markup::{escape, identifier};
use crate::exhibits::{Chart, ChartKind, Origin, Point, Series, X};

/// Size of one form of a chart, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Room {
    class: &'static str,
    width: f64,
    height: f64,
}

const WIDE: Room = Room { class: "wide", width: 580.0, height: 310.0 };
const NARROW: Room = Room { class: "narrow", width: 352.0, height: 300.0 };

/// The figure of a chart: heading, legend, drawing, note, and its values as a table.
pub fn figure(prefix: &str, chart: &Chart, colors: &Colors) -> String {
    let id = format!("{prefix}-chart-{}", identifier(&chart.id));
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<figure class=\"chart card\" id=\"{id}\"><figcaption><h3>{}</h3></figcaption>{}",
        escape(&chart.title),
        legend(chart, colors)
    );
    for room in [WIDE, NARROW] {
        out.push_str(&match chart.kind {
            ChartKind::Lines => lines::svg(chart, room, colors),
            ChartKind::Bars => bars::svg(chart, room, colors),
        });
    }
    if let Some(note) = &chart.note {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    let _ = writeln!(out, "{}</figure>", values(chart));
    out
}

fn class_of(series: &Series, color: usize) -> String {
    let study = if series.origin == Origin::Study { " study" } else { "" };
    format!("s{color}{study}")
}

/// Name of a series in legend and tooltip; a study's series is always labelled as a study's.
fn name_of(series: &Series) -> String {
    match series.origin {
        Origin::Study if !series.name.to_lowercase().contains("study") => {
            format!("{} (study)", series.name)
        }
        _ => series.name.clone(),
    }
}

fn legend(chart: &Chart, colors: &Colors) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (at, series) in chart.series.iter().enumerate() {
        let color = colors.of_series(series);
        let swatch = match chart.kind {
            ChartKind::Lines => format!(
                "<path class=\"line\" d=\"M0 7H26\"/>{}",
                lines::marker(color, series.origin, 13.0, 7.0)
            ),
            ChartKind::Bars => {
                "<rect class=\"bar\" x=\"6\" y=\"1\" width=\"14\" height=\"12\"/>".to_owned()
            }
        };
        let _ = write!(
            out,
            "<li><button type=\"button\" data-series=\"{at}\" data-arm=\"{}\" aria-pressed=\"true\"><svg \
             class=\"{}\" width=\"26\" height=\"14\" aria-hidden=\"true\">{swatch}</svg>{}</button></li>",
            escape(&key_of(series)),
            class_of(series, color),
            escape(&name_of(series))
        );
    }
    out.push_str("</ul>");
    out
}

/// The tooltip of a value.
fn tip(chart: &Chart, series: &Series, point: &Point) -> String {
    let mut text = format!(
        "{}\n{}: {}",
        name_of(series),
        place(chart, point),
        quantity(point.y, &chart.y.unit)
    );
    if let (Some(low), Some(high)) = (point.low, point.high)
        && low.is_finite()
        && high.is_finite()
    {
        let unit = &chart.y.unit;
        let _ = write!(text, "\n95 % interval: {}", span(low, high, unit));
    }
    escape(&text)
}

fn place(chart: &Chart, point: &Point) -> String {
    match &point.x {
        X::Number(x) => quantity(*x, &chart.x.unit),
        X::Label(label) => label.clone(),
    }
}

/// Whether a value can be drawn; on a logarithmic axis it must be above 0.
fn drawable(chart: &Chart, point: &Point) -> bool {
    point.y.is_finite() && (!chart.y.log || point.y > 0.0)
}

/// All values with the ends of their intervals, and 1 if the unit is `ratio`.
fn extent(chart: &Chart) -> impl Iterator<Item = f64> {
    let of = |point: &Point| [Some(point.y), point.low, point.high];
    let reference = (chart.y.unit == "ratio").then_some(1.0);
    chart.series.iter().flat_map(|s| &s.points).flat_map(of).chain([reference]).flatten()
}

fn titled(axis: &crate::exhibits::Axis) -> String {
    // The ticks show these units, or the unit has no name, so the title omits the unit.
    let told = matches!(axis.unit.as_str(), "" | "ratio" | "bytes" | "B" | "bytes/s" | "B/s" | "s");
    let unit = match axis.unit.as_str() {
        "1/s" => "per second",
        unit => unit,
    };
    if told { axis.title.clone() } else { format!("{} ({unit})", axis.title) }
}

/// The values as a table, for readers who cannot see the chart or its tooltips.
fn values(chart: &Chart) -> String {
    let mut out = format!(
        "<details><summary>Values</summary><div class=\"scroll\"><table class=\"sortable\"><thead>\
         <tr><th>Series</th><th>{}</th><th class=\"n\">{}</th><th class=\"n\">95 % interval</th>\
         </tr></thead><tbody>",
        escape(&titled(&chart.x)),
        escape(&titled(&chart.y))
    );
    for series in &chart.series {
        for point in &series.points {
            let unit = &chart.y.unit;
            let interval = match (point.low, point.high) {
                (Some(low), Some(high)) if low.is_finite() && high.is_finite() => {
                    span(low, high, unit)
                }
                _ => String::new(),
            };
            let x = match point.x {
                X::Number(x) => format!(" data-v=\"{x}\""),
                X::Label(_) => String::new(),
            };
            let _ = write!(
                out,
                "<tr><td>{}</td><td{x}>{}</td><td class=\"n\" data-v=\"{}\">{}</td><td \
                 class=\"n\">{interval}</td></tr>",
                escape(&name_of(series)),
                escape(&place(chart, point)),
                point.y,
                escape(&quantity(point.y, unit)),
            );
        }
    }
    out.push_str("</tbody></table></div></details>");
    out
}

/// The opening `svg` tag, with the chart's title as its label for screen readers.
fn open(chart: &Chart, room: Room, height: f64) -> String {
    format!(
        "<svg class=\"plot {}\" viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{}\">",
        room.class,
        room.width,
        escape(&format!("Chart: {}", chart.title))
    )
}

/// Approximate width of text at a font size of 12 pixels; assumes a wide font.
fn text_width(text: &str) -> f64 {
    let of = |c: char| if c.is_ascii_uppercase() || c == '_' { 8.4 } else { 7.1 };
    text.chars().map(of).sum()
}

/// An error bar between two positions, vertical (`upright`) or horizontal.
fn whisker(across: f64, from: f64, to: f64, upright: bool) -> String {
    let cap = 3.5;
    if upright {
        format!(
            "<path class=\"err\" d=\"M{across:.1} {from:.1}V{to:.1}M{:.1} {from:.1}h{w}M{:.1} {to:.1}h{w}\"/>",
            across - cap,
            across - cap,
            w = 2.0 * cap
        )
    } else {
        format!(
            "<path class=\"err\" d=\"M{from:.1} {across:.1}H{to:.1}M{from:.1} {:.1}v{w}M{to:.1} {:.1}v{w}\"/>",
            across - cap,
            across - cap,
            w = 2.0 * cap
        )
    }
}
