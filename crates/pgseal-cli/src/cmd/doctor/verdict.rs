//! The answer of one check: a state, and what the check saw.

use serde::{Deserialize, Serialize};

use crate::exit;

/// The exit status with so many failures and warnings: 0 without any, 1 with warnings, 2 with
/// failures.
pub fn exit_status(failures: u64, warnings: u64) -> u8 {
    match (failures, warnings) {
        (0, 0) => exit::SOUND,
        (0, _) => 1,
        _ => 2,
    }
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// It works, but is weaker than it could be.
    Warn,
    /// Something is wrong.
    Fail,
    /// The check was not made, for the reason in `saw`.
    Skipped,
}

impl State {
    /// The state, for a list.
    pub fn shown(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "WARN",
            State::Fail => "FAIL",
            State::Skipped => "skip",
        }
    }
}

/// The answer of one check.
#[derive(Debug)]
pub struct Verdict {
    /// The state.
    pub state: State,
    /// What the check saw.
    pub saw: String,
}

/// All is well.
pub fn ok(saw: impl Into<String>) -> Verdict {
    Verdict { state: State::Ok, saw: saw.into() }
}

/// It works, but is weaker than it could be.
pub fn warn(saw: impl Into<String>) -> Verdict {
    Verdict { state: State::Warn, saw: saw.into() }
}

/// Something is wrong.
pub fn fail(saw: impl Into<String>) -> Verdict {
    Verdict { state: State::Fail, saw: saw.into() }
}

/// The check was not made, for this reason.
pub fn skip(why: impl Into<String>) -> Verdict {
    Verdict { state: State::Skipped, saw: why.into() }
}
