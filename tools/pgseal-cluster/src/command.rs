//! Runs programs to their end.

use std::path::PathBuf;
use std::process::Command;

use crate::error::ClusterError;

/// The command as one would type it in a shell.
pub fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

/// Runs a program to its end and returns what it wrote to standard output.
///
/// # Errors
///
/// [`ClusterError::Io`] if it cannot be started, [`ClusterError::Program`] if it fails.
pub fn output_of(command: &mut Command) -> Result<String, ClusterError> {
    let program = PathBuf::from(command.get_program());
    let shown = shown(command);
    let output = command.output().map_err(ClusterError::io(&program, "run the program"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ClusterError::Program { command: shown, said: format!("{}: {said}", output.status) })
}
