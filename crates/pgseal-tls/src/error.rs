//! Errors of setting up and checking TLS, one variant for each cause.

use std::io;
use std::path::{Path, PathBuf};

/// An error of setting up or checking TLS. Each message names what failed and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The connection string is malformed, or names something that cannot have TLS.
    #[error("{0}")]
    Conninfo(String),
    /// The server cannot be reached.
    #[error("{address}: cannot {action}: {source}; check host, port and listen_addresses")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The server at this address is not PostgreSQL.
    #[error("{address}: what answers there is no PostgreSQL server ({what}); check host and port")]
    NotPostgres {
        /// Host and port.
        address: String,
        /// How it answered.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A file's content is not what it should be.
    #[error("{}: {what}; {remedy}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do next.
        remedy: &'static str,
    },
    /// A program failed.
    #[error("{program}: {said}")]
    Program {
        /// The program with its arguments.
        program: String,
        /// What it said.
        said: String,
    },
    /// A name, number of days or kind of key that no certificate can have.
    #[error("certificate: {0}")]
    Certificate(String),
    /// The cluster's settings prevent what is to be set.
    #[error("{0}")]
    Settings(String),
}

impl TlsError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> TlsError {
        let path = path.to_owned();
        move |source| TlsError::Io { path, action, source }
    }
}
