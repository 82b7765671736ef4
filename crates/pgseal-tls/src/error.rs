//! What can go wrong, by whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

/// An error of TLS set-up and checking. Each text names the thing and the next step.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The connection string makes no sense, or names nothing that has TLS.
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
    /// What answers there is no PostgreSQL.
    #[error("{address}: what answers there is no PostgreSQL server ({what}); check host and port")]
    NotPostgres {
        /// Host and port.
        address: String,
        /// What it did.
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
    /// The cluster's settings stand against what is to be set.
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
