//! One run of a plugin: one request, one answer.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pgseal_plugin::MAX_ANSWER_LEN;
use zeroize::Zeroizing;

use super::super::process::{self, Ended};

/// Why a plugin gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It did not end in time, and was killed.
    #[error("it gave no answer in time and was stopped")]
    TooSlow,
    /// It ended with an error status. A plugin that reports a failure ends with status 0.
    #[error("it ended with {0} instead of giving an answer")]
    Status(ExitStatus),
    /// It could not be started, or not be talked to.
    #[error("it cannot be run: {0}")]
    Lost(io::Error),
}

/// Runs `program`, writes the request to its standard input, closes that, and returns what it wrote
/// to its standard output: at most one byte more than an answer may have. Its standard error is
/// that of this process, or `stderr`.
///
/// The plugin runs in `/` and in a process group of its own, which is killed if it is too slow. It
/// inherits the environment, where client libraries of stores find their settings, without the
/// preloaded library and without variables of pgseal.
pub fn exchange(
    program: &Path,
    request: &[u8],
    limit: Duration,
    stderr: Option<File>,
) -> Result<Zeroizing<Vec<u8>>, Broken> {
    let deadline = Instant::now() + limit;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name_bytes = name.as_encoded_bytes();
        if name_bytes == b"LD_PRELOAD" || name_bytes.starts_with(b"PGSEAL_") {
            command.env_remove(name);
        }
    }
    if let Some(stderr) = stderr {
        command.stderr(stderr);
    }
    let mut child = command
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Broken::Lost)?;
    if let Some(mut input) = child.stdin.take() {
        // A request is shorter than what a pipe holds, so this never waits. An error means that the
        // plugin has closed its input: its answer or its status says why.
        let _ = input.write_all(request);
    }
    match process::finish(child, MAX_ANSWER_LEN, deadline) {
        Ended::Finished(Ok(answer), _) if answer.len() > MAX_ANSWER_LEN => Ok(answer),
        Ended::Finished(answer, status) if status.success() => answer.map_err(Broken::Lost),
        Ended::Finished(_, status) => Err(Broken::Status(status)),
        Ended::TooSlow => Err(Broken::TooSlow),
        Ended::Lost(error) => Err(Broken::Lost(error)),
    }
}
