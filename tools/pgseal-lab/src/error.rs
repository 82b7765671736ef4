//! The errors of the lab.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_cluster::{ClusterError, last_lines};

/// An error. Each text says what is wrong, with which file or program, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The command line or a profile asks for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// A case or an arm needs something that is not installed. The runner records this and
    /// continues.
    #[error("{what}: missing: {why}; {remedy}")]
    Missing {
        /// What cannot be measured: an algorithm, a program, an extension.
        what: String,
        /// How this was found out.
        why: String,
        /// What to install or configure.
        remedy: String,
    },
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
    /// A required condition did not hold, so that the figure would measure something else: another
    /// cipher than requested, a different answer to a query.
    #[error("{what}: expected {expected}, found {found}; the figures would be worth nothing")]
    Broken {
        /// The step or object that was checked.
        what: String,
        /// The required condition.
        expected: String,
        /// What was found instead.
        found: String,
    },
    /// A member of a plan is missing or has the wrong type.
    #[error(
        "plan: {place}: {name}: {why}; it was written by another version of pgseal, or its profile is \
         wrong"
    )]
    Plan {
        /// `the plan`, or the case or arm.
        place: String,
        /// The parameter or attribute.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The directory has results of another plan.
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
    /// The directory has results and `--resume` was not given.
    #[error("{}: holds results already; go on with --resume, or give another --output", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A file of results cannot be parsed.
    #[error("{}: {why}; it was not written by this pgseal, or is damaged", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Stopped by a signal. The samples taken so far are kept.
    #[error("interrupted; the samples so far are in {}: go on with --resume", output.display())]
    Interrupted {
        /// The directory of the results.
        output: PathBuf,
    },
    /// Stopped by a signal before anything was measured.
    #[error("interrupted before anything was measured")]
    Stopped,
    /// `--wait-quiet` waited in vain.
    #[error(
        "the machine did not become quiet: other programs use {cpus:.1} CPUs (top shows them); stop them, \
         or measure without --wait-quiet"
    )]
    Busy {
        /// CPUs that other programs used at last.
        cpus: f64,
    },
    /// Results of different experiments were to be compared.
    #[error("{first} and {second} are different experiments: there is nothing to compare")]
    OtherExperiment {
        /// The first experiment.
        first: String,
        /// The second experiment.
        second: String,
    },
    /// Standard output cannot be written.
    #[error("standard output: {0}; check where the output goes")]
    StandardOutput(io::Error),
    /// A system call failed.
    #[error("{}: cannot {action}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file, directory or program.
        path: PathBuf,
        /// What this process tried to do.
        action: &'static str,
        /// Why it failed, from the system.
        source: io::Error,
    },
}

impl LabError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// An error for something that is not installed.
    pub fn missing(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Missing { what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}

impl From<ClusterError> for LabError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Missing { what, why, remedy } => Self::Missing { what, why, remedy },
            ClusterError::NoAccount => Self::Usage(error.to_string()),
            ClusterError::Program { command, said } => Self::Program { command, said },
            ClusterError::Output { command, wanted } => Self::Output { command, wanted },
            ClusterError::Start { command, log, .. } => {
                Self::Program { command, said: last_lines(&log) }
            }
            ClusterError::Io { path, action, source } => Self::Io { path, action, source },
        }
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
