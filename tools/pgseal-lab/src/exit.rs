//! The exit codes of `pgseal-lab`, equal to those of `pgseal`. The table is in docs/reference.md.

use std::process::ExitCode;

use pgseal_lab::LabError;

use crate::output::complain;

/// Success; nothing is worse or damaged.
pub const SOUND: u8 = 0;
/// `compare` found something worse.
pub const WORSE: u8 = 1;
/// A program failed, a required condition did not hold, or results are damaged.
const DAMAGE: u8 = 1;
/// The command line is invalid. The same code as clap's.
const USAGE: u8 = 2;
/// Results exist already.
const EXISTS: u8 = 5;
/// The machine is not quiet, and `--wait-quiet` was given.
const BUSY: u8 = 22;
/// The time of a load was up before its intervals were as narrow as asked.
pub const UNDECIDED: u8 = 24;
/// A program or something else that a measurement needs was not found.
const MISSING: u8 = 20;
/// A system call failed.
const IO: u8 = 40;
/// Stopped by a signal; the code that shells use for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The code of an error.
pub fn code_of(error: &LabError) -> u8 {
    match error {
        LabError::Usage(_) | LabError::Plan { .. } | LabError::OtherPlan { .. } => USAGE,
        LabError::OtherExperiment { .. } => USAGE,
        LabError::Busy { .. } => BUSY,
        LabError::Exists { .. } => EXISTS,
        LabError::Missing { .. } => MISSING,
        LabError::Broken { .. } | LabError::Program { .. } | LabError::Output { .. } => DAMAGE,
        LabError::Data { .. } => DAMAGE,
        LabError::Interrupted { .. } | LabError::Stopped => INTERRUPTED,
        LabError::StandardOutput(_) | LabError::Io { .. } => IO,
    }
}

/// Prints the error, if there is one, and turns it into the exit status.
pub fn finish(result: Result<u8, LabError>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(code_of(&error))
        }
    }
}
