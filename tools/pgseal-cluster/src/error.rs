//! The errors of a throw-away cluster.

use std::io;
use std::path::{Path, PathBuf};

/// How many lines of the server's log an error shows.
const LOG_LINES: usize = 5;

/// An error. Each text says what is wrong, with which file or program, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program is not installed.
    #[error("{what}: missing: {why}; {remedy}")]
    Missing {
        /// The program.
        what: String,
        /// How the program was found to be missing.
        why: String,
        /// What to install or configure.
        remedy: String,
    },
    /// This process runs as root, and there is no ordinary user for servers.
    #[error(
        "PostgreSQL does not run as root, and there is no user postgres here; install PostgreSQL, \
         or run this as an ordinary user"
    )]
    NoAccount,
    /// A program failed.
    #[error("{command}: failed: {}; run it by hand to see more", said.trim())]
    Program {
        /// The program and its arguments.
        command: String,
        /// The program's output, or its exit status.
        said: String,
    },
    /// The output of a program is not as expected.
    #[error("{command}: printed no {wanted}; is its version one that pgseal knows?")]
    Output {
        /// The program.
        command: String,
        /// What was expected in the output.
        wanted: String,
    },
    /// A server did not start, or did not become ready.
    #[error(
        "{command}: {}: {}; correct what the log names, or run it by hand to see more",
        if *ended { "did not start" } else { "did not become ready" },
        last_lines(log)
    )]
    Start {
        /// The server and its arguments.
        command: String,
        /// What the server logged since this start.
        log: String,
        /// Whether the server ended by itself; otherwise it did not become ready in time.
        ended: bool,
    },
    /// A system call failed.
    #[error(
        "{}: cannot {action}: {source}; check that the path is right and may be used",
        path.display()
    )]
    Io {
        /// The file, directory or program.
        path: PathBuf,
        /// What this process tried to do.
        action: &'static str,
        /// Why it failed, from the system.
        source: io::Error,
    },
}

impl ClusterError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

/// The last lines of a server's log, for the text of an error.
pub fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
