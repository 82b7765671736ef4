//! A data directory: how it is recognised, its version, and whether a server runs on it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pgseal_convert::{Disk, Journal, Phase};
use pgseal_keys::{KEYRING_DIR, KeyError, keyring_path};

use crate::error::CliError;
use crate::server_files::{is_major, pid_of};
use crate::{as_owner, small_file};

/// A data directory that exists.
#[derive(Debug)]
pub struct DataDir {
    /// Its root, absolute.
    pub root: PathBuf,
    /// The version in `PG_VERSION`, if the file exists.
    pub major: Option<String>,
    /// The conversion that was not finished, if there is one.
    pub conversion: Option<Journal>,
}

impl DataDir {
    /// Opens the data directory at `path`.
    ///
    /// A directory with a keyring and without `PG_VERSION` is accepted: it may be damaged, and
    /// `verify` must be able to check it.
    pub fn open(path: &Path) -> Result<DataDir, CliError> {
        let root = std::path::absolute(path).map_err(CliError::io(path, "resolve the path"))?;
        let meta = fs::metadata(&root).map_err(CliError::io(&root, "open the directory"))?;
        if meta.is_dir() {
            as_owner::step_down(&root)?;
            expect_own_dir(&root)?;
        } else {
            return Err(CliError::NotDataDir {
                path: root,
                why: "it is a file",
                remedy: "give the directory that PGDATA or data_directory names",
            });
        }
        // Fail at once if the directory is not readable.
        fs::read_dir(&root).map_err(CliError::io(&root, "read the directory"))?;
        let conversion = Journal::load(&Disk, &root)?;
        // During a conversion PG_VERSION names no version.
        let major = match &conversion {
            Some(journal) => Some(journal.major().to_owned()).filter(|major| is_major(major)),
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

    /// The path of its keyring, whether the file exists or not.
    pub fn keyring(&self) -> PathBuf {
        keyring_path(&self.root)
    }

    /// The process id of the server that runs on this directory, if one does. A lock file that was
    /// copied from another directory is ignored.
    pub fn server_pid(&self) -> Option<u32> {
        let text = small_file::read_text(&self.root.join("postmaster.pid")).ok()?;
        let pid = pid_of(&text)?;
        let process = PathBuf::from(format!("/proc/{pid}"));
        match fs::read_link(process.join("cwd")) {
            // The working directory of a server is its data directory.
            Ok(cwd) => (Some(cwd) == self.root.canonicalize().ok()).then_some(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let name = fs::read_to_string(process.join("comm")).ok()?;
                name.starts_with("postgres").then_some(pid)
            }
            Err(_) => None,
        }
    }
}

/// Refuses a link in the place of the directory `pgseal`: through it pgseal would read and write
/// files elsewhere.
fn expect_own_dir(root: &Path) -> Result<(), CliError> {
    let own = root.join(KEYRING_DIR);
    match fs::symlink_metadata(&own) {
        Ok(meta) if meta.is_symlink() => Err(KeyError::Insecure {
            path: own,
            what: "it is a link, and what pgseal keeps lies in the data directory itself"
                .to_owned(),
            remedy: "put the directory in the place of the link".to_owned(),
        }
        .into()),
        _ => Ok(()),
    }
}

/// Refuses a data directory in which some files are plain and some sealed.
pub fn expect_whole(root: &Path) -> Result<(), CliError> {
    refuse_unfinished(root, Journal::load(&Disk, root)?.as_ref())
}

/// Refuses a data directory whose conversion was interrupted before it changed a file: the next run
/// restores the keyring as it was before.
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
    let text = small_file::read_text(&root.join("PG_VERSION")).ok()?;
    let major = text.trim();
    is_major(major).then(|| major.to_owned())
}

/// The data directory that a file lies in: the nearest directory above it with a keyring.
pub fn above(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let found = |start: &Path| {
        start.ancestors().skip(1).find(|dir| keyring_path(dir).is_file()).map(Path::to_owned)
    };
    found(&file).or_else(|| found(&file.canonicalize().ok()?))
}
