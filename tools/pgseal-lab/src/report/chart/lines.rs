//! Line charts: one line per series.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::scale::Scale;
use super::{Room, class_of, drawable, extent, open, text_width, tip, titled, whisker};
use crate::exhibits::{Chart, Origin, Point, X};
use crate::report::colors::Colors;
use crate::report::format::tick;
use crate::report::markup::escape;

/// The horizontal axis.
enum Across {
    /// Numbers on a scale, and the ticks: the values themselves if there are at most 12.
    Scale(Scale, Vec<f64>),
    /// Labels at equal distances between two positions in pixels.
    Labels(Vec<String>, f64, f64),
}

impl Across {
    fn new(chart: &Chart, from: f64, to: f64) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let mut labels: Vec<String> = Vec::new();
        for point in points() {
            if let X::Label(label) = &point.x
                && !labels.contains(label)
            {
                labels.push(label.clone());
            }
        }
        if !labels.is_empty() {
            return Self::Labels(labels, from, to);
        }
        let number = |point: &Point| match point.x {
            X::Number(x) => Some(x),
            X::Label(_) => None,
        };
        let pad = (to - from) * 0.02;
        let room = (from + pad, to - pad);
        let scale = Scale::over(points().filter_map(number), chart.x.log, false, room);
        let places: BTreeSet<u64> = points().filter_map(number).map(f64::to_bits).collect();
        let mut ticks: Vec<f64> = places.into_iter().map(f64::from_bits).collect();
        ticks.sort_by(f64::total_cmp);
        if ticks.len() > 12 {
            ticks = scale.ticks(6, &chart.x.unit);
        }
        Self::Scale(scale, ticks)
    }

    fn at(&self, point: &Point) -> Option<f64> {
        match (self, &point.x) {
            (Self::Scale(scale, _), X::Number(x)) if x.is_finite() => Some(scale.at(*x)),
            (Self::Labels(labels, from, to), X::Label(label)) => {
                let at = labels.iter().position(|known| known == label)? as f64;
                Some(from + (at + 0.5) / labels.len() as f64 * (to - from))
            }
            _ => None,
        }
    }

    /// Positions and texts of the ticks, without ticks that would overlap.
    fn ticks(&self, unit: &str) -> Vec<(f64, String)> {
        let all: Vec<(f64, String)> = match self {
            Self::Scale(scale, ticks) => {
                ticks.iter().map(|value| (scale.at(*value), tick(*value, unit))).collect()
            }
            Self::Labels(labels, from, to) => labels
                .iter()
                .enumerate()
                .map(|(at, label)| {
                    (from + (at as f64 + 0.5) / labels.len() as f64 * (to - from), label.clone())
                })
                .collect(),
        };
        let mut free_from = f64::NEG_INFINITY;
        let mut kept = Vec::new();
        for (at, text) in all {
            let half = text_width(&text) / 2.0;
            if at - half >= free_from {
                free_from = at + half + 8.0;
                kept.push((at, text));
            }
        }
        kept
    }
}

/// The SVG drawing.
pub fn svg(chart: &Chart, room: Room, colors: &Colors) -> String {
    let (top, bottom) = (30.0, room.height - 44.0);
    let values: Vec<f64> = extent(chart).filter(|value| value.is_finite()).collect();
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    // A chart of ratios that are all near 1 would be flat if it began at 0.
    let from_zero = low < 0.5 * high;
    let down = Scale::over(values.into_iter(), chart.y.log, from_zero, (bottom, top)).nice(5);
    let ticks = down.ticks(5, &chart.y.unit);
    let unit = chart.y.unit.as_str();
    let widest = ticks.iter().map(|value| text_width(&tick(*value, unit))).fold(0.0, f64::max);
    let (left, right) = (widest + 16.0, room.width - 14.0);
    let across = Across::new(chart, left, right);

    let mut out = open(chart, room, room.height);
    let _ =
        write!(out, "<text class=\"axis\" x=\"2\" y=\"14\">{}</text>", escape(&titled(&chart.y)));
    for value in ticks {
        let y = down.at(value);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><text class=\"tick\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 7.0,
            y + 4.0,
            escape(&tick(value, unit))
        );
    }
    if unit == "ratio" {
        let y = down.at(1.0);
        let _ = write!(out, "<path class=\"one\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
    }
    let _ = write!(out, "<path class=\"base\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>");
    for (x, text) in across.ticks(&chart.x.unit) {
        let _ = write!(
            out,
            "<path class=\"base\" d=\"M{x:.1} {bottom:.1}v4\"/><text class=\"tick\" x=\"{x:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            escape(&text)
        );
    }
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        room.height - 6.0,
        escape(&titled(&chart.x))
    );
    draw_series(&mut out, (chart, colors), &across, &down);
    out.push_str("</svg>");
    out
}

fn draw_series(
    out: &mut String,
    (chart, colors): (&Chart, &Colors),
    across: &Across,
    down: &Scale,
) {
    for (number, series) in chart.series.iter().enumerate() {
        let color = colors.of_series(series);
        let _ = write!(
            out,
            "<g class=\"series {}\" data-series=\"{number}\">",
            class_of(series, color)
        );
        let points: Vec<(f64, &Point)> = series
            .points
            .iter()
            .filter(|point| drawable(chart, point))
            .filter_map(|point| Some((across.at(point)?, point)))
            .collect();
        let mut path = String::new();
        for (at, (x, point)) in points.iter().enumerate() {
            let to = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{to}{x:.1} {:.1}", down.at(point.y));
        }
        let _ = write!(out, "<path class=\"line\" d=\"{path}\"/>");
        for (x, point) in &points {
            if let (Some(low), Some(high)) = (point.low, point.high)
                && low.is_finite()
                && high.is_finite()
            {
                out.push_str(&whisker(*x, down.at(low), down.at(high), true));
            }
        }
        for (x, point) in points {
            let y = down.at(point.y);
            let _ = write!(
                out,
                "<g class=\"p\" data-tip=\"{tip}\"><title>{tip}</title>{}<circle class=\"hit\" \
                 cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"11\"/></g>",
                marker(color, series.origin, x, y),
                tip = tip(chart, series, point)
            );
        }
        out.push_str("</g>");
    }
}

/// A marker whose shape, like its colour, depends on the series; a study's markers are hollow.
pub fn marker(color: usize, origin: Origin, x: f64, y: f64) -> String {
    let class = if origin == Origin::Study { "mark hollow" } else { "mark" };
    let path = match color % 5 {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7Z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l4.6 8h-9.2Z", y - 5.0),
        3 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5Z", y - 5.0),
        _ => format!("M{x:.1} {:.1}l4.6 -8h-9.2Z", y + 5.0),
    };
    format!("<path class=\"{class}\" d=\"{path}\"/>")
}
