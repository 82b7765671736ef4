//! Reports: JSON, CSV, HTML and text, all from recorded results alone.

mod chart;
mod colors;
mod csv;
mod emphasis;
mod first;
pub mod format;

mod html;
mod json;
mod markup;
mod section;
mod tables;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::analysis::Analysis;
use crate::answer::cost_cell;
use crate::error::LabError;
use crate::exhibits::{Cell, Exhibits};
use crate::experiments::{self, Experiment};
use crate::results::{Results, SCHEMA};
use crate::store::{RESULTS, replace_file};
use crate::warning::Warning;

pub use self::csv::csv_of;
pub use self::html::{Files, html_of};
pub use self::json::json_of;
pub use self::text::{missing_text, text_of};

/// Name of the CSV file with all figures.
pub const CSV: &str = "results.csv";
/// Name of the HTML report.
pub const HTML: &str = "report.html";

/// One experiment's results with everything derived from them.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Heading.
    pub title: String,
    /// The study that it repeats.
    pub study: String,
    /// The measured results.
    pub results: Results,
    /// Medians, ratios and verdicts.
    pub analysis: Analysis,
    /// Findings, tables and charts.
    pub exhibits: Exhibits,
    /// What each arm costs in each case, as it is shown: by the ids of case and arm.
    pub costs: BTreeMap<(String, String), Cell>,
}

impl Entry {
    /// Derives analysis and exhibits from results.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a plan that the experiment does not understand.
    pub fn of(experiment: &dyn Experiment, results: Results) -> Result<Self, LabError> {
        let analysis = Analysis::of(&results);
        let exhibits = experiment.exhibits(&results, &analysis)?;
        let mut costs = BTreeMap::new();
        for case in &results.plan.cases {
            for arm in results.plan.arms_of(case) {
                let cell = cost_cell(experiment, &analysis, case, &arm.id);
                costs.insert((case.id.clone(), arm.id.clone()), cell);
            }
        }
        Ok(Self {
            title: experiment.title().to_owned(),
            study: experiment.study().to_owned(),
            results,
            analysis,
            exhibits,
            costs,
        })
    }

    /// All warnings in words: those of the run, then those that the samples show.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.results.warnings.iter().chain(&self.analysis.warnings);
        all.map(Warning::text).collect()
    }

    /// Reads recorded results: a directory of one experiment, or its `results.json`.
    ///
    /// # Errors
    ///
    /// [`LabError::Io`], [`LabError::Data`]; [`LabError::Usage`] for an experiment that this pgseal
    /// does not know.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let results = read_results(path)?;
        let experiment = experiments::named(&results.experiment).ok_or_else(|| {
            LabError::Usage(format!(
                "{}: this pgseal knows no experiment {}; use the version that measured it",
                path.display(),
                results.experiment
            ))
        })?;
        Self::of(&*experiment, results)
    }
}

/// Reads a file `results.json`, or the `results.json` in a directory.
///
/// # Errors
///
/// [`LabError::Io`]; [`LabError::Data`] if the file is not valid JSON or has another schema.
pub fn read_results(path: &Path) -> Result<Results, LabError> {
    let file = if path.is_dir() { path.join(RESULTS) } else { path.to_owned() };
    let text = fs::read(&file).map_err(LabError::io(&file, "read the results"))?;
    let bad = |why| LabError::Data { path: file.clone(), why };
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let schema = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("none");
    if schema != SCHEMA {
        return Err(bad(format!("its schema is {schema}, this pgseal reads {SCHEMA}")));
    }
    serde_json::from_value(value).map_err(|error| bad(error.to_string()))
}

/// The directories with results: `dir` itself, or its subdirectories named after experiments, in
/// the order of [`experiments::all`].
///
/// # Errors
///
/// [`LabError::Usage`] if there are none.
pub fn directories(dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    if dir.join(RESULTS).exists() {
        return Ok(vec![dir.to_owned()]);
    }
    let found: Vec<PathBuf> = experiments::all()
        .iter()
        .map(|experiment| dir.join(experiment.name()))
        .filter(|below| below.join(RESULTS).exists())
        .collect();
    if found.is_empty() {
        return Err(LabError::Usage(format!(
            "{}: no results of pgseal lab here; give the directory that was its --output",
            dir.display()
        )));
    }
    Ok(found)
}

/// Writes `results.json`, `results.csv` and `report.html` of one experiment.
///
/// # Errors
///
/// [`LabError::Io`].
pub fn write(experiment: &dyn Experiment, dir: &Path, results: &Results) -> Result<(), LabError> {
    write_entry(dir, &Entry::of(experiment, results.clone())?)
}

/// Writes `results.json`, `results.csv` and `report.html` of an entry.
///
/// # Errors
///
/// [`LabError::Io`].
pub fn write_entry(dir: &Path, entry: &Entry) -> Result<(), LabError> {
    replace_file(&dir.join(RESULTS), &json_of(entry)?)?;
    replace_file(&dir.join(CSV), &csv_of(&entry.results)?)?;
    replace_file(&dir.join(HTML), html_of(std::slice::from_ref(entry), Files::Beside).as_bytes())
}

/// Writes `report.html` over all experiments and returns its path.
///
/// # Errors
///
/// [`LabError::Io`].
pub fn write_summary(dir: &Path, entries: &[Entry]) -> Result<PathBuf, LabError> {
    let path = dir.join(HTML);
    replace_file(&path, html_of(entries, Files::Below).as_bytes())?;
    Ok(path)
}
