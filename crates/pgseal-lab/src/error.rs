//! What can go wrong in the lab, by whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

/// An error. Each text says what is wrong, with which file or program, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The command line or a profile asks for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// Something that a case or an arm needs is not here. The runner records it and goes on.
    #[error("{what}: missing: {why}; {remedy}")]
    Missing {
        /// What cannot be measured: an algorithm, a program, an extension.
        what: String,
        /// How that was found out.
        why: String,
        /// What to install or set to have it.
        remedy: String,
    },
    /// A program failed.
    #[error("{command}: failed: {}; run it by hand to see more", said.trim())]
    Program {
        /// The program and its arguments.
        command: String,
        /// What it printed, or how it ended.
        said: String,
    },
    /// A program printed something else than expected.
    #[error("{command}: printed no {wanted}; is its version one that pgseal knows?")]
    Output {
        /// The program.
        command: String,
        /// What was looked for.
        wanted: String,
    },
    /// What must hold did not, so the figure would be one of something else: another cipher than the
    /// one asked for, a different answer of a query.
    #[error("{what}: expected {expected}, found {found}; the figures would be worth nothing")]
    Broken {
        /// The step or the thing looked at.
        what: String,
        /// What must hold.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Results of another plan are in the way.
    #[error(
        "{}: these are results of plan {theirs}, the plan asked for is {ours}; give the profile and \
         options of then, or another --output",
        path.display()
    )]
    OtherPlan {
        /// The file or directory.
        path: PathBuf,
        /// Plan hash in the file.
        theirs: String,
        /// Plan hash of this run.
        ours: String,
    },
    /// Results are in the way and `--resume` was not given.
    #[error("{}: holds results already; go on with --resume, or give another --output", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A file of results cannot be understood.
    #[error("{}: {why}; it was not written by this pgseal, or is damaged", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Stopped by a signal. What was measured is kept.
    #[error("interrupted; the samples so far are in {}: go on with --resume", output.display())]
    Interrupted {
        /// The directory of the results.
        output: PathBuf,
    },
    /// The operating system refused something.
    #[error("{}: cannot {action}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file, directory or program.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl LabError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Something missing.
    pub fn missing(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Missing { what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; give a directory that you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room and go on with --resume, the samples written so far are kept"
        }
        io::ErrorKind::NotFound => "; check the path, and that the program is installed",
        _ => "",
    }
}
