//! The data directory of a command: the one on the command line, else the one that `PGDATA` names,
//! as PostgreSQL's own programs take it.

use std::env;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::error::CliError;

/// The arguments of a command that works on a data directory.
#[derive(Clone, Debug, clap::Args)]
pub struct GivenDir {
    /// The data directory; default: PGDATA
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// The data directory, as PostgreSQL's programs take it
    #[arg(short = 'D', long = "pgdata", value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with = "dir")]
    pgdata: Option<PathBuf>,
}

impl GivenDir {
    /// The directory. `command`: the command that needs it, for the message.
    ///
    /// # Errors
    /// When neither the command line nor `PGDATA` names one.
    pub fn path(&self, command: &str) -> Result<PathBuf, CliError> {
        or_pgdata(self.dir.as_deref().or(self.pgdata.as_deref()), command, "DIR")
    }
}

/// The arguments of a command that also takes a file: a keyring, or one file of a cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct GivenPath {
    /// The data directory, or the file; default: PGDATA
    #[arg(value_hint = ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// The data directory, as PostgreSQL's programs take it
    #[arg(short = 'D', long = "pgdata", value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with = "path")]
    pgdata: Option<PathBuf>,
}

impl GivenPath {
    /// The path. `command`: the command that needs it, for the message.
    ///
    /// # Errors
    /// When neither the command line nor `PGDATA` names one.
    pub fn path(&self, command: &str) -> Result<PathBuf, CliError> {
        or_pgdata(self.path.as_deref().or(self.pgdata.as_deref()), command, "PATH")
    }
}

/// The directory that a path names, or that the file lies in which it names.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        _ if path.is_dir() => path,
        Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
        Some(dir) if dir.is_dir() => dir,
        _ => Path::new("/"),
    }
}

/// The given directory, else `PGDATA`. `argument`: the name of the argument in the help.
///
/// # Errors
/// When there is neither.
pub fn or_pgdata(given: Option<&Path>, command: &str, argument: &str) -> Result<PathBuf, CliError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    env::var_os("PGDATA").filter(|dir| !dir.is_empty()).map(PathBuf::from).ok_or_else(|| {
        CliError::Usage(format!(
            "{command}: which data directory? give {argument} or -D DIR, or set PGDATA"
        ))
    })
}
