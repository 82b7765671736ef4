//! What the program writes for people: results to standard output, messages to standard error.

use std::io::{self, ErrorKind, Write};

use pgseal_lab::LabError;
use serde::Serialize;

/// Writes a finished text to standard output. If the reader closes the pipe early (`| head`), that
/// is no error, so that the exit status still shows the result of the work.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), LabError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(LabError::StandardOutput(error)),
        _ => Ok(()),
    }
}

/// Prints one JSON document and a newline.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), LabError> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| LabError::StandardOutput(io::Error::other(error)))?;
    text.push(b'\n');
    print(text)
}

/// One message on standard error: `pgseal-lab: what, which file; what to do next`.
pub fn complain(message: &str) {
    // If standard error is closed too, nobody can be told.
    let _ = writeln!(io::stderr(), "pgseal-lab: {message}");
}
