//! Bar charts: one bar per series at each label. The bars are horizontal to leave room for long
//! labels.

use std::fmt::Write;

use super::scale::Scale;
use super::{Room, class_of, drawable, extent, open, place, text_width, tip, titled, whisker};
use crate::exhibits::Chart;
use crate::report::colors::Colors;
use crate::report::format::{quantity, tick};
use crate::report::markup::escape;

const BAR: f64 = 15.0;
const GAP: f64 = 3.0;
const GROUP_GAP: f64 = 13.0;
/// Widest column of labels beside the bars, in pixels; if wider, labels stand above their bars.
const LABELS: f64 = 240.0;

/// The SVG drawing.
pub fn svg(chart: &Chart, room: Room, colors: &Colors) -> String {
    let labels = labels_of(chart);
    let widest = labels.iter().map(|label| text_width(label)).fold(0.0, f64::max);
    let beside = room.class == "wide" && widest <= LABELS;
    let left = if beside { widest + 14.0 } else { 4.0 };
    let above = if beside { 0.0 } else { 18.0 };
    let unit = chart.y.unit.as_str();
    let written = chart.series.iter().flat_map(|s| &s.points).map(|p| quantity(p.y, unit));
    let right = room.width - 12.0 - written.map(|text| text_width(&text)).fold(30.0, f64::max);
    let top = 32.0;
    let across = Scale::over(extent(chart), chart.y.log, true, (left, right));
    let across = if chart.y.log { widened(across) } else { across };
    let groups: Vec<usize> = labels.iter().map(|label| group(chart, label).len()).collect();
    let height_of = |bars: usize| above + bars as f64 * (BAR + GAP) + GROUP_GAP;
    let bottom = top + groups.iter().map(|bars| height_of(*bars)).sum::<f64>();
    let height = bottom + 26.0;

    let mut out = open(chart, room, height);
    let _ =
        write!(out, "<text class=\"axis\" x=\"2\" y=\"14\">{}</text>", escape(&titled(&chart.y)));
    let mut free_from = f64::NEG_INFINITY;
    for value in across.ticks(5, unit) {
        let (x, text) = (across.at(value), tick(value, unit));
        let _ = write!(out, "<path class=\"grid\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/>", top - 6.0);
        let half = text_width(&text) / 2.0;
        if x - half >= free_from {
            free_from = x + half + 8.0;
            let anchor = if x - half < 0.0 { "start" } else { "middle" };
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                bottom + 16.0,
                escape(&text)
            );
        }
    }
    let mut y = top;
    for (label, bars) in labels.iter().zip(&groups) {
        let (x, text_y, anchor) = if beside {
            (left - 9.0, y + *bars as f64 * (BAR + GAP) / 2.0 + 3.0, "end")
        } else {
            (left, y + 12.0, "start")
        };
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{x:.1}\" y=\"{text_y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(label)
        );
        draw_group(&mut out, (chart, colors), label, &across, y + above);
        y += height_of(*bars);
    }
    if unit == "ratio" {
        let x = across.at(1.0);
        let _ = write!(out, "<path class=\"one\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/>", top - 6.0);
    }
    out.push_str("</svg>");
    out
}

/// Makes a logarithmic axis begin below its smallest value, so that the value's bar has a length.
fn widened(scale: Scale) -> Scale {
    Scale { low: 10_f64.powf((scale.low / 1.5).log10().floor()), ..scale }
}

fn labels_of(chart: &Chart) -> Vec<String> {
    let mut labels = Vec::new();
    for point in chart.series.iter().flat_map(|series| &series.points) {
        let label = place(chart, point);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

/// Index and point of each series that has a value at a label.
fn group<'a>(chart: &'a Chart, label: &str) -> Vec<(usize, &'a crate::exhibits::Point)> {
    let of = |(number, series): (usize, &'a crate::exhibits::Series)| {
        let point = series.points.iter().find(|point| place(chart, point) == label)?;
        drawable(chart, point).then_some((number, point))
    };
    chart.series.iter().enumerate().filter_map(of).collect()
}

fn draw_group(
    out: &mut String,
    (chart, colors): (&Chart, &Colors),
    label: &str,
    across: &Scale,
    top: f64,
) {
    for (row, (number, point)) in group(chart, label).into_iter().enumerate() {
        let Some(series) = chart.series.get(number) else { continue };
        let y = top + row as f64 * (BAR + GAP);
        let zero = across.at(if chart.y.log { across.low } else { 0.0 });
        let end = across.at(point.y);
        let tip = tip(chart, series, point);
        let _ = write!(
            out,
            "<g class=\"series p {}\" data-series=\"{number}\" data-tip=\"{tip}\">\
             <title>{tip}</title><rect class=\"bar\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{BAR}\" rx=\"2\"/>",
            class_of(series, colors.of_series(series)),
            zero.min(end),
            (end - zero).abs().max(1.0),
        );
        let mut reach = end.max(zero);
        if let (Some(low), Some(high)) = (point.low, point.high)
            && low.is_finite()
            && high.is_finite()
        {
            out.push_str(&whisker(y + BAR / 2.0, across.at(low), across.at(high), false));
            reach = reach.max(across.at(high));
        }
        let _ = write!(
            out,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            reach + 6.0,
            y + BAR - 3.5,
            escape(&quantity(point.y, &chart.y.unit))
        );
    }
}
