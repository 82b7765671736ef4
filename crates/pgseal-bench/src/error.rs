//! What can go wrong while measuring.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error, by whose fault it is.
#[derive(Debug)]
pub enum BenchError {
    /// The command line asks for something that does not exist.
    Usage(String),
    /// A program of PostgreSQL, or `pgseal`, failed.
    Program {
        /// The program and its arguments.
        command: String,
        /// What it printed, or how it ended.
        said: String,
    },
    /// A program printed something else than expected.
    Output {
        /// The program.
        command: String,
        /// What was looked for.
        wanted: &'static str,
    },
    /// The operating system refused something.
    Io {
        /// The file or program.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}

impl BenchError {
    /// For `map_err`: an [`io::Error`] about this path.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what}"),
            Self::Program { command, said } => {
                write!(f, "{command}: failed: {}; run it by hand to see more", said.trim())
            }
            Self::Output { command, wanted } => {
                write!(f, "{command}: printed no {wanted}; is it a PostgreSQL of 15 or newer?")
            }
            Self::Io { path, source } => {
                write!(f, "{}: {source}; check that it exists and is accessible", path.display())
            }
        }
    }
}

impl std::error::Error for BenchError {}
