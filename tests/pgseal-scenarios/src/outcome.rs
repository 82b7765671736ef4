//! What a program said, and how it ended.

use std::process::Output;

/// The output and exit status of a program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit status; -1 after a signal.
    pub code: i32,
    /// Standard output and standard error.
    pub text: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        let text = [output.stdout, output.stderr].concat();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

/// Asserts that a command ended with this exit status, and said each of these words.
///
/// # Panics
/// With what it said.
#[track_caller]
pub fn ends(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.text);
    for word in words {
        assert!(outcome.text.contains(word), "{word} in {}", outcome.text);
    }
}

/// Asserts that a command succeeded.
///
/// # Panics
/// With what it said.
#[track_caller]
pub fn succeeds(outcome: &Outcome) {
    ends(outcome, 0, &[]);
}
