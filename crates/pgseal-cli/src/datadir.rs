//! A data directory: what makes one, its version, whether a server runs on it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pgseal_convert::{Disk, Journal, Phase};
use pgseal_keys::keyring_path;

use crate::error::CliError;

/// A data directory that exists.
#[derive(Debug)]
pub struct DataDir {
    /// Its root, absolute.
    pub root: PathBuf,
    /// What `PG_VERSION` says, if it is there.
    pub major: Option<String>,
    /// The conversion that was not finished, if there is one.
    pub conversion: Option<Journal>,
}

impl DataDir {
    /// Looks whether there is a data directory at `path`.
    ///
    /// One without `PG_VERSION` that has a keyring still counts: it may be damaged, and that is
    /// what `verify` is for.
    pub fn open(path: &Path) -> Result<DataDir, CliError> {
        let root = std::path::absolute(path).map_err(CliError::io(path, "resolve the path"))?;
        let meta = fs::metadata(&root).map_err(CliError::io(&root, "open the directory"))?;
        if !meta.is_dir() {
            return Err(CliError::NotDataDir {
                path: root,
                why: "it is a file",
                remedy: "give the directory that PGDATA or data_directory names",
            });
        }
        // Reading the directory shows at once whether we may.
        fs::read_dir(&root).map_err(CliError::io(&root, "read the directory"))?;
        let conversion = Journal::load(&Disk, &root)?;
        // PG_VERSION names no version meanwhile.
        let major = match &conversion {
            Some(journal) => Some(journal.major().to_owned()),
            None => read_major(&root),
        };
        if major.is_none() && !keyring_path(&root).exists() {
            return Err(CliError::NotDataDir {
                path: root,
                why: "there is no PG_VERSION in it",
                remedy: "give the directory that PGDATA or data_directory names",
            });
        }
        Ok(DataDir { root, major, conversion })
    }

    /// Refuses a data directory in which some files are plain and some sealed.
    pub fn expect_whole(&self) -> Result<(), CliError> {
        refuse_unfinished(&self.root, self.conversion.as_ref())
    }

    /// Where its keyring is, or would be.
    pub fn keyring(&self) -> PathBuf {
        keyring_path(&self.root)
    }

    /// The process number of the server that runs on this directory, if one does. A lock file that
    /// came along in a copy does not count.
    pub fn server_pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.root.join("postmaster.pid")).ok()?;
        // That of a server of one session (postgres --single) is negative.
        let pid: i32 = text.lines().next()?.trim().parse().ok()?;
        let pid = pid.unsigned_abs();
        let process = PathBuf::from(format!("/proc/{pid}"));
        match fs::read_link(process.join("cwd")) {
            // A server works in its data directory.
            Ok(cwd) => (Some(cwd) == self.root.canonicalize().ok()).then_some(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let name = fs::read_to_string(process.join("comm")).ok()?;
                name.starts_with("postgres").then_some(pid)
            }
            Err(_) => None,
        }
    }
}

/// Refuses a data directory in which some files are plain and some sealed.
pub fn expect_whole(root: &Path) -> Result<(), CliError> {
    refuse_unfinished(root, Journal::load(&Disk, root)?.as_ref())
}

/// Refuses a data directory whose conversion was interrupted before it changed a file: the next run
/// takes back what was done to the keyring.
pub fn expect_begun_or_none(root: &Path) -> Result<(), CliError> {
    let journal = Journal::load(&Disk, root)?;
    refuse_unfinished(root, journal.filter(|journal| journal.phase == Phase::Prepare).as_ref())
}

fn refuse_unfinished(root: &Path, journal: Option<&Journal>) -> Result<(), CliError> {
    match journal {
        None => Ok(()),
        Some(journal) => {
            Err(CliError::Unfinished { path: root.to_owned(), command: journal.operation.name() })
        }
    }
}

/// The major version in `PG_VERSION`.
pub fn read_major(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("PG_VERSION")).ok()?;
    let major = text.trim();
    let looks_right = !major.is_empty() && major.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    looks_right.then(|| major.to_owned())
}

/// The data directory that a file lies in: the nearest directory above it with a keyring.
pub fn above(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let found = |start: &Path| {
        start.ancestors().skip(1).find(|dir| keyring_path(dir).is_file()).map(Path::to_owned)
    };
    found(&file).or_else(|| found(&file.canonicalize().ok()?))
}
