//! What a report shows of an experiment: sentences, tables and charts, without any markup.

use serde::{Deserialize, Serialize};

/// All exhibits of one experiment, in the order of reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exhibits {
    /// The summary in words.
    pub findings: Vec<Finding>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Charts.
    pub charts: Vec<Chart>,
}

/// One sentence or two of the summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// With the numbers in it, all computed from the data.
    pub text: String,
    /// What the study found about the same, labelled as theirs.
    pub study: Option<String>,
}

/// Whose figures these are.
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
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Below the table.
    pub note: Option<String>,
}

/// Head of a column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Column {
    /// Heading.
    pub title: String,
    /// Unit; empty: none.
    pub unit: String,
    /// Whether it is sorted by number and set flush right.
    pub numeric: bool,
    /// Whose figures.
    pub origin: Origin,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// As people read it.
    pub text: String,
    /// What it is sorted by; none: the text.
    pub value: Option<f64>,
    /// What is shown when one points at it: an interval, a reason.
    pub hint: Option<String>,
    /// How it is set off.
    pub tone: Tone,
}

/// How a cell is set off, always by a sign or word too, never by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// Better than the baseline.
    Good,
    /// Worse than the baseline.
    Bad,
    /// No difference, missing, of no weight.
    Faint,
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Unique in the report; letters, digits, `-`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Its form.
    pub kind: ChartKind,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// Lines, or groups of bars.
    pub series: Vec<Series>,
    /// Below the chart.
    pub note: Option<String>,
}

/// Form of a chart.
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
    /// What it shows.
    pub title: String,
    /// Unit; empty: none.
    pub unit: String,
    /// Whether it is logarithmic; values must be above 0 then.
    pub log: bool,
}

/// One line, or one bar at each label.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Whose figures; a study's are drawn in another way.
    pub origin: Origin,
    /// In the order of x.
    pub points: Vec<Point>,
}

/// A place on the horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// On a scale.
    Number(f64),
    /// One of several, in the order of first appearance.
    Label(String),
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub x: X,
    /// How much.
    pub y: f64,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
}

impl Finding {
    /// A finding without a word of a study.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), study: None }
    }

    /// With what the study found.
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
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number and how it is written.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), ..Self::default() }
    }

    /// Nothing here, and why.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { text: "missing".to_owned(), value: None, hint: Some(why.into()), tone: Tone::Faint }
    }

    /// With what is shown when one points at it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Set off.
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

    /// With its interval.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        (self.low, self.high) = (Some(low), Some(high));
        self
    }
}
