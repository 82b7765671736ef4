//! What can go wrong while measuring.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pgseal_lab::LabError;

/// An error, by whose fault it is.
#[derive(Debug)]
pub enum BenchError {
    /// The command line asks for something that does not exist.
    Usage(String),
    /// A server or a client program failed.
    Lab(LabError),
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

impl From<LabError> for BenchError {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what}"),
            Self::Lab(error) => write!(f, "{error}"),
            Self::Io { path, source } => {
                write!(f, "{}: {source}; check that it exists and is accessible", path.display())
            }
        }
    }
}

impl std::error::Error for BenchError {}
