//! The two locks that keep a data directory as it is while pgseal works on it: the server's own
//! lock file, and one that keeps a second pgseal away.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgseal_convert::{Control, Disk, lock};

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::server_files::pid_of;
use crate::{cluster, small_file};

/// The server's own lock file with this process in it: no server starts as long as this value
/// lives.
#[derive(Debug)]
pub struct ServerLock(PathBuf);

impl ServerLock {
    /// Takes the lock. A lock file of a process that has ended is removed.
    pub fn take(dir: &DataDir) -> Result<ServerLock, CliError> {
        Self::remove_stale(dir)?;
        if !lock::take(&Disk, &dir.root, std::process::id(), &Control::default())? {
            return Err(running(dir, "just now"));
        }
        Ok(ServerLock(dir.root.clone()))
    }

    /// Removes the lock file of a process that has ended.
    pub fn remove_stale(dir: &DataDir) -> Result<(), CliError> {
        let path = lock::path(&dir.root);
        let found = lock_file(&path)?;
        refuse_running(dir)?;
        let Some((_, text)) = &found else { return Ok(()) };
        if pid_of(text).is_none() {
            return Err(CliError::NotNow(format!(
                "{}: it names no process; if no server runs on the data directory, remove it",
                path.display()
            )));
        }
        // A server that starts at this moment also removes the stale file, and makes its own.
        if lock_file(&path)? != found {
            return Err(running(dir, "just now"));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CliError::io(&path, "remove the lock file of a server that is gone")(error))
            }
            _ => Ok(()),
        }
    }
}

/// The inode number and the text of a lock file, if there is one.
fn lock_file(path: &Path) -> Result<Option<(u64, String)>, CliError> {
    let read = pgseal_keys::open_regular(path).and_then(|file| {
        let mut text = String::new();
        let ino = file.metadata()?.ino();
        file.take(small_file::MAX_LEN).read_to_string(&mut text)?;
        Ok((ino, text))
    });
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::io(path, "read the server's lock file")(error)),
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // If the file stays, it names a process that has ended, which servers notice.
        let _ = lock::release(&Disk, &self.0);
    }
}

/// Refuses a data directory on which a server runs.
pub fn refuse_running(dir: &DataDir) -> Result<(), CliError> {
    match dir.server_pid() {
        Some(pid) => Err(running(dir, &format!("as process {pid}"))),
        None => Ok(()),
    }
}

fn running(dir: &DataDir, how: &str) -> CliError {
    CliError::NotNow(format!(
        "{}: a server runs on it {how}; stop it first: {}",
        dir.root.display(),
        cluster::stop_command(&dir.root, dir.major.as_deref())
    ))
}

/// Keeps a second pgseal away from the data directory. The kernel releases it with the process.
#[derive(Debug)]
pub struct OwnLock(#[allow(dead_code, reason = "the lock is the open file")] File);

impl OwnLock {
    /// Takes the lock.
    pub fn take(root: &Path) -> Result<OwnLock, CliError> {
        let file = File::open(root).map_err(CliError::io(root, "open the directory"))?;
        match file.try_lock() {
            Ok(()) => Ok(OwnLock(file)),
            Err(fs::TryLockError::WouldBlock) => {
                Err(pgseal_convert::ConvertError::Locked { path: root.to_owned() }.into())
            }
            Err(fs::TryLockError::Error(error)) => {
                Err(CliError::io(root, "lock the directory")(error))
            }
        }
    }
}
