//! The content of a report of an experiment: sentences, tables and charts, without markup.

use serde::{Deserialize, Serialize};

/// All exhibits of one experiment, in reading order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exhibits {
    /// The summary in words.
    pub findings: Vec<Finding>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Charts.
    pub charts: Vec<Chart>,
}

/// One or two sentences of the summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The text; all its numbers are computed from the data.
    pub text: String,
    /// The study's finding on the same question, labelled as the study's.
    pub study: Option<String>,
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
