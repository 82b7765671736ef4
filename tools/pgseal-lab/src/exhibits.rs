//! The content of a report of an experiment: sentences, tables and charts, without markup.

use serde::{Deserialize, Serialize};

use crate::answer::Answer;

/// All exhibits of one experiment, in reading order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exhibits {
    /// The summary in words.
    pub findings: Vec<Finding>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Charts.
    pub charts: Vec<Chart>,
    /// The tile and the rows of the first screen; none if nothing was measured that they need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// A sentence of the summary: at most [`MOST_WORDS`] words and one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The text; all its numbers are computed from the data.
    pub text: String,
    /// The study's finding on the same question, labelled as the study's.
    pub study: Option<String>,
}

/// The most words of a finding.
pub const MOST_WORDS: usize = 20;

/// What is wrong with the form of a finding; none: nothing. A name may contain digits
/// (`AES-256-GCM`, `TLSv1.3`, `shared_buffers=8MB`); a comparison (`1.7 times as fast as ...`) may
/// follow the number.
pub fn fault_of_sentence(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.len() > MOST_WORDS {
        return Some(format!("{} words", words.len()));
    }
    let is_number = |word: &str| {
        let word = word.trim_matches(|c: char| "(),.;:+-".contains(c)).trim_end_matches("/s");
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
    };
    let figure = |at: &usize| {
        let next = |more: usize| words.get(at + more).copied().unwrap_or_default();
        is_number(words.get(*at).copied().unwrap_or_default())
            && !(next(1) == "times" && next(2) == "as" && *at > 0)
    };
    let numbers = (0..words.len()).filter(figure).count();
    let all = words.iter().filter(|word| is_number(word)).count();
    let end = text.ends_with('.') || text.ends_with('?');
    if numbers > 1 || all > 2 {
        Some(format!("{all} numbers"))
    } else if !end || text.trim_end_matches('.').contains(". ") || text.contains("; ") {
        Some("not one sentence".to_owned())
    } else {
        None
    }
}

/// The source of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured in this run.
    #[default]
    Measured,
    /// Published by the study, on its machine.
    Study,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Unique in the report; letters, digits, `-`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Heads of the columns.
    pub columns: Vec<Column>,
    /// The rows; each has as many cells as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// A note below the table.
    pub note: Option<String>,
}

/// Head of a column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Column {
    /// Heading.
    pub title: String,
    /// Unit; empty: none.
    pub unit: String,
    /// Whether the column is sorted by number and aligned right.
    pub numeric: bool,
    /// The source of the figures.
    pub origin: Origin,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// The text as shown.
    pub text: String,
    /// The sort key; none: sorted by the text.
    pub value: Option<f64>,
    /// The text of the tooltip: an interval, a reason.
    pub hint: Option<String>,
    /// How the cell is emphasised.
    pub tone: Tone,
}

/// How a cell is emphasised; always also by a sign or word, never by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// Not emphasised.
    #[default]
    Plain,
    /// Better than the baseline.
    Good,
    /// Worse than the baseline.
    Bad,
    /// No difference, missing, or unimportant.
    Faint,
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Unique in the report; letters, digits, `-`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// The chart's kind.
    pub kind: ChartKind,
    /// The axis of numbers or labels: horizontal for lines, vertical for bars.
    pub x: Axis,
    /// The axis of values: vertical for lines, horizontal for bars.
    pub y: Axis,
    /// Lines, or groups of bars.
    pub series: Vec<Series>,
    /// A note below the chart.
    pub note: Option<String>,
}

/// The kind of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// A line per series.
    Lines,
    /// A bar per series at each label of x.
    Bars,
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Axis {
    /// The axis title.
    pub title: String,
    /// Unit; empty: none.
    pub unit: String,
    /// Whether the axis is logarithmic; its values must then be above 0.
    pub log: bool,
}

/// One line, or one bar at each label.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// What it is, so that it has the same colour in every chart: the id of an arm, a mode; empty:
    /// its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arm: String,
    /// The source of the figures; a study's figures are drawn differently.
    pub origin: Origin,
    /// The points in the order of x.
    pub points: Vec<Point>,
}

/// A position on the axis `x`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number on a scale.
    Number(f64),
    /// One of several labels, in the order of first appearance.
    Label(String),
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The position on the axis `x`.
    pub x: X,
    /// The value.
    pub y: f64,
    /// Lower end of the confidence interval.
    pub low: Option<f64>,
    /// Upper end of the confidence interval.
    pub high: Option<f64>,
}

impl Finding {
    /// A finding without a study's finding.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), study: None }
    }

    /// A finding with the study's finding.
    pub fn with_study(text: impl Into<String>, study: impl Into<String>) -> Self {
        Self { text: text.into(), study: Some(study.into()) }
    }
}

impl Column {
    /// A column of words.
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// A column of measured numbers.
    pub fn number(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into(), numeric: true, origin: Origin::Measured }
    }

    /// A column of a study's numbers.
    pub fn study(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { origin: Origin::Study, ..Self::number(title, unit) }
    }
}

impl Cell {
    /// A cell with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A cell with a number and its text.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), ..Self::default() }
    }

    /// A cell that says `missing`, with the reason in the tooltip.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { text: "missing".to_owned(), value: None, hint: Some(why.into()), tone: Tone::Faint }
    }

    /// Sets the tooltip.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the emphasis.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

impl Point {
    /// A value on a scale.
    pub fn at(x: f64, y: f64) -> Self {
        Self { x: X::Number(x), y, low: None, high: None }
    }

    /// A value at a label.
    pub fn label(x: impl Into<String>, y: f64) -> Self {
        Self { x: X::Label(x.into()), y, low: None, high: None }
    }

    /// Sets the confidence interval.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        (self.low, self.high) = (Some(low), Some(high));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_sentence_of_twenty_words_with_one_number() {
        for good in [
            "AES-256-GCM costs 1.08 us a page, 1.7 times as fast as AES-256-CTR.",
            "aes-256-gcm at shared_buffers=8MB: not distinguishable (noise 18 %).",
            "With TLSv1.3 a connection costs the server 1499 us.",
        ] {
            assert_eq!(fault_of_sentence(good), None, "{good}");
        }
        let long = "word ".repeat(21) + ".";
        for bad in [
            "from no difference: 3.5 % more to no difference: 24.7 % less.",
            "One runs at 3.4 GB/s, the other at 5 GB/s.",
            "It costs 1 us. It is slow.",
            "It costs 1 us",
            &long,
        ] {
            assert!(fault_of_sentence(bad).is_some(), "{bad}");
        }
    }
}
