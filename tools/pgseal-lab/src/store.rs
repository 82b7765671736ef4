//! The directory of one experiment's results. Samples are written at once, the other files after
//! every case.
//!
//! `samples.jsonl` has a head line with the plan's hash and one line for each sample or missing
//! item, flushed before the next step begins. `results.json` is derived from it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::LabError;
use crate::plan::Plan;
use crate::results::{End, Missing, Results, SCHEMA, Sample};
use crate::warning::Warning;

/// One line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The first line.
    Head {
        /// [`SCHEMA`].
        schema: String,
        /// [`Plan::plan_hash`].
        plan_hash: String,
        /// The machine before the first step.
        environment: Box<Environment>,
        /// Start, in seconds since 1970.
        started_unix_s: u64,
    },
    /// A value that counts.
    Sample(Sample),
    /// A value of a warm-up.
    Warmup(Sample),
    /// A case or arm that cannot be measured here.
    Missing(Missing),
    /// Why a case ended.
    End(End),
    /// A reason to trust the figures less.
    Warning {
        /// The warning.
        warning: Warning,
    },
}

/// An open directory of results.
#[derive(Debug)]
pub struct Store {
    samples: File,
    samples_path: PathBuf,
}

/// Name of the file of samples.
pub const SAMPLES: &str = "samples.jsonl";
/// Name of the file of results.
pub const RESULTS: &str = "results.json";

impl Store {
    /// Opens a directory for this plan and returns it with the results so far: empty, or with
    /// `resume` the results of an interrupted run of the same plan.
    ///
    /// # Errors
    ///
    /// [`LabError::Exists`] if there are results and `resume` is not set; [`LabError::OtherPlan`]
    /// if they are of another plan; [`LabError::Io`] if the directory cannot be made or written.
    pub fn open(
        dir: &Path,
        plan: &Plan,
        environment: &Environment,
        resume: bool,
    ) -> Result<(Self, Results), LabError> {
        fs::create_dir_all(dir).map_err(LabError::io(dir, "make the directory for results"))?;
        let samples_path = dir.join(SAMPLES);
        // A device is not read, because reading a device might never end.
        let device = fs::metadata(&samples_path).is_ok_and(|meta| !meta.is_file());
        let before = match if device { Ok(Vec::new()) } else { fs::read(&samples_path) } {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(_) if !resume => return Err(LabError::Exists { path: dir.to_owned() }),
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(LabError::io(&samples_path, "read the samples")(error)),
        };
        let mut results = Results {
            schema: SCHEMA.to_owned(),
            experiment: plan.experiment.clone(),
            plan: plan.clone(),
            plan_hash: plan.plan_hash()?,
            command: String::new(),
            environment: environment.clone(),
            started_unix_s: environment.time_unix_s,
            finished: false,
            samples: Vec::new(),
            warmups: Vec::new(),
            missing: Vec::new(),
            warnings: Vec::new(),
            ends: Vec::new(),
        };
        let whole = match &before {
            None => 0,
            Some(bytes) => read_lines(bytes, &samples_path, &mut results)?,
        };
        let samples = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&samples_path)
            .map_err(LabError::io(&samples_path, "write the samples"))?;
        if before.as_ref().is_some_and(|bytes| bytes.len() > whole) {
            // The last line of an interrupted run may be incomplete.
            samples
                .set_len(whole as u64)
                .map_err(LabError::io(&samples_path, "cut off a torn line"))?;
        }
        let mut store = Self { samples, samples_path };
        if before.is_none() {
            store.append(&Line::Head {
                schema: SCHEMA.to_owned(),
                plan_hash: results.plan_hash.clone(),
                environment: Box::new(environment.clone()),
                started_unix_s: results.started_unix_s,
            })?;
        }
        Ok((store, results))
    }

    /// Appends one line and flushes it to the file.
    ///
    /// # Errors
    ///
    /// [`LabError::Io`], for example if the disk is full.
    pub fn append(&mut self, line: &Line) -> Result<(), LabError> {
        let failed = || LabError::io(&self.samples_path, "write a sample");
        let mut text = serde_json::to_vec(line).map_err(|e| failed()(e.into()))?;
        text.push(b'\n');
        self.samples.write_all(&text).map_err(failed())?;
        self.samples.flush().map_err(failed())
    }
}

/// Writes a temporary file in the same directory and renames it over the old one, so that readers
/// and interruptions see either the old file or the new one.
///
/// # Errors
///
/// [`LabError::Io`] if the file cannot be written or renamed.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, content).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        // Removes the incomplete file; if this fails too, the first error suffices.
        let _ = fs::remove_file(&beside);
        LabError::io(path, "write the results")(error)
    })
}

/// Reads all complete lines into `results` and returns their length in bytes.
fn read_lines(bytes: &[u8], path: &Path, results: &mut Results) -> Result<usize, LabError> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let bad = |number: usize, why: String| LabError::Data {
        path: path.to_owned(),
        why: format!("line {}: {why}", number + 1),
    };
    let lines = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
    for (number, line) in lines.filter(|line| !line.is_empty()).enumerate() {
        let line: Line =
            serde_json::from_slice(line).map_err(|error| bad(number, error.to_string()))?;
        match line {
            Line::Head { schema, plan_hash, environment, started_unix_s } => {
                if schema != SCHEMA {
                    return Err(bad(number, format!("schema {schema}, not {SCHEMA}")));
                }
                if plan_hash != results.plan_hash {
                    return Err(LabError::OtherPlan {
                        path: path.to_owned(),
                        theirs: plan_hash,
                        ours: results.plan_hash.clone(),
                    });
                }
                results.environment = *environment;
                results.started_unix_s = started_unix_s;
            }
            Line::Sample(sample) => results.samples.push(sample),
            Line::Warmup(sample) => results.warmups.push(sample),
            Line::Missing(missing) => results.missing.push(missing),
            Line::End(end) => results.ends.push(end),
            Line::Warning { warning } => {
                if !results.warnings.contains(&warning) {
                    results.warnings.push(warning);
                }
            }
        }
    }
    Ok(whole)
}
