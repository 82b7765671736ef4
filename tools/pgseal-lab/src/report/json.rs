//! `results.json`; its schema is described in `spec/lab-report.md`.

use std::path::Path;

use serde::Serialize;

use super::Entry;
use crate::analysis::Analysis;
use crate::error::LabError;
use crate::exhibits::Exhibits;
use crate::results::Results;
use crate::store::RESULTS;

#[derive(Serialize)]
struct File<'a> {
    #[serde(flatten)]
    results: &'a Results,
    /// Derived from the results; ignored when the file is read.
    analysis: &'a Analysis,
    /// Derived from the results; ignored when the file is read.
    exhibits: &'a Exhibits,
}

/// The results, with analysis and exhibits for other programs.
///
/// # Errors
///
/// None in practice: JSON can represent all the values.
pub fn json_of(entry: &Entry) -> Result<Vec<u8>, LabError> {
    let Entry { results, analysis, exhibits, .. } = entry;
    let mut text = serde_json::to_vec_pretty(&File { results, analysis, exhibits })
        .map_err(|error| LabError::io(Path::new(RESULTS), "write the results")(error.into()))?;
    text.push(b'\n');
    Ok(text)
}
