//! The interface that takes the samples: one implementation per experiment, and
//! [`mock`](crate::mock).

use std::collections::BTreeMap;

use crate::error::LabError;
use crate::plan::{Arm, Case, Plan};
use crate::warning::Warning;

/// One sample to take.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The whole plan.
    pub plan: &'a Plan,
    /// The case to measure.
    pub case: &'a Case,
    /// The arm to measure.
    pub arm: &'a Arm,
    /// Round, from 0; of a warm-up, the number of the warm-up from 0.
    pub round: u32,
    /// Whether this is a warm-up; its value does not count.
    pub warmup: bool,
}

/// The result of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// The value, in the case's unit.
    pub value: f64,
    /// Further figures; their names end in their units: `client_cpu_s_per_op`,
    /// `server_cpu_s_per_op`, `size_bytes`.
    pub extra: BTreeMap<String, f64>,
    /// What the step verified: the negotiated cipher, the hash of an answer.
    pub facts: BTreeMap<String, String>,
    /// Reasons to trust this value less.
    pub warnings: Vec<Warning>,
}

impl Observation {
    /// An observation with a value only.
    pub fn of(value: f64) -> Self {
        Self { value, ..Self::default() }
    }
}

/// Takes samples.
pub trait Executor {
    /// Starts servers and loads data. Called once before the steps of a case, also when a run
    /// resumes within the case; in an interleaved plan, called once per round before the steps of
    /// the case.
    ///
    /// # Errors
    ///
    /// [`LabError::Missing`]: the case cannot be measured here and is recorded as missing; any
    /// other error ends the run.
    fn begin_case(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError>;

    /// Takes one sample.
    ///
    /// # Errors
    ///
    /// [`LabError::Missing`]: the arm cannot be measured in this case and is recorded as missing;
    /// any other error ends the run.
    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError>;

    /// Stops what `begin_case` started; also called after an error.
    ///
    /// # Errors
    ///
    /// Any error ends the run.
    fn end_case(&mut self, plan: &Plan, case: &Case) -> Result<(), LabError>;
}

/// Shows people what an executor is doing.
pub trait Progress {
    /// One line.
    fn say(&self, text: &str);
}

/// Discards all progress messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn say(&self, _: &str) {}
}

/// Writes progress messages to standard error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stderr;

impl Progress for Stderr {
    fn say(&self, text: &str) {
        use std::io::Write;
        // If standard error is closed, nobody can be told.
        let _ = writeln!(std::io::stderr(), "lab: {text}");
    }
}
