//! What PostgreSQL itself says of a stopped cluster, and the lock that keeps it stopped.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_convert::{Control, Disk, lock};

pub use crate::control_data::ControlData;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::server_files::pid_of;
use crate::{child, conf_text, small_file};

impl ControlData {
    /// Asks the program of the cluster's version.
    pub fn read(bindir: &Path, root: &Path) -> Result<ControlData, CliError> {
        let program = bindir.join("pg_controldata");
        let mut command = Command::new(&program);
        command.arg("-D").arg(root).env("LC_ALL", "C").env_remove("LD_PRELOAD");
        let output =
            child::output(&mut command).map_err(CliError::io(&program, "run the program"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ControlData::parse(&text).filter(|_| output.status.success()).ok_or_else(|| {
            CliError::NotNow(format!(
                "{}: pg_controldata cannot read the control file: {}; restore it from a backup",
                root.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            ))
        })
    }
}

/// The value of a setting as the server would see it; `None` if the server does not know it or cannot
/// read its configuration.
pub fn setting(bindir: &Path, root: &Path, config_file: &Path, name: &str) -> Option<String> {
    let mut command = Command::new(bindir.join("postgres"));
    command.args(["-C", name, "-D"]).arg(root).arg("-c");
    command.arg(format!("config_file={}", config_file.display())).env_remove("LD_PRELOAD");
    let output = child::output(&mut command).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The configuration file: the given one, that of the data directory, or the one of Debian's that
/// names the data directory.
pub fn config_file(
    given: Option<&Path>,
    root: &Path,
    major: &str,
) -> Result<Option<PathBuf>, CliError> {
    if let Some(given) = given {
        let path = std::path::absolute(given).map_err(CliError::io(given, "resolve the path"))?;
        fs::metadata(&path).map_err(CliError::io(&path, "find the configuration"))?;
        return Ok(Some(path));
    }
    let own = root.join("postgresql.conf");
    if own.is_file() {
        let (real, inside) = (own.canonicalize().ok(), root.canonicalize().ok());
        if let (Some(real), Some(inside)) = (real, inside)
            && !real.starts_with(inside)
        {
            return Err(CliError::NotNow(format!(
                "{}: it leads out of the data directory; if that file is the server's, say so: \
                 --config-file {}",
                own.display(),
                real.display()
            )));
        }
        return Ok(Some(own));
    }
    let Ok(clusters) = fs::read_dir(Path::new("/etc/postgresql").join(major)) else {
        return Ok(None);
    };
    let wanted = root.canonicalize().ok();
    let names_us = |path: &PathBuf| {
        let text = small_file::read_text(path).unwrap_or_default();
        let named = conf_text::data_directory(&text).map(Path::new);
        named.and_then(|dir| dir.canonicalize().ok()) == wanted
    };
    let mut files = clusters.flatten().map(|item| item.path().join("postgresql.conf"));
    Ok(files.find(|path| path.is_file() && names_us(path)))
}

/// The server's own lock file, in our name: no server starts as long as this lives.
#[derive(Debug)]
pub struct ServerLock(PathBuf);

impl ServerLock {
    /// Takes it. A lock file that a process left which is gone does not count.
    pub fn take(dir: &DataDir) -> Result<ServerLock, CliError> {
        Self::remove_stale(dir)?;
        if !lock::take(&Disk, &dir.root, std::process::id(), &Control::default())? {
            return Err(running(&dir.root, "just now"));
        }
        Ok(ServerLock(dir.root.clone()))
    }

    /// Removes a lock file that a process left which is gone.
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
        // A server that starts just now removes the stale one, too, and makes its own.
        if lock_file(&path)? != found {
            return Err(running(&dir.root, "just now"));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CliError::io(&path, "remove the lock file of a server that is gone")(error))
            }
            _ => Ok(()),
        }
    }
}

/// The number and the text of a lock file, if it is there.
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
        // One that stays names a process that is gone, which servers see.
        let _ = lock::release(&Disk, &self.0);
    }
}

/// Refuses a data directory that a server works on.
pub fn refuse_running(dir: &DataDir) -> Result<(), CliError> {
    match dir.server_pid() {
        Some(pid) => Err(running(&dir.root, &format!("as process {pid}"))),
        None => Ok(()),
    }
}

fn running(root: &Path, how: &str) -> CliError {
    CliError::NotNow(format!(
        "{}: a server runs on it {how}; stop it first: pg_ctl -D {} -m fast stop",
        root.display(),
        root.display()
    ))
}

/// Keeps a second pgseal off the data directory. Ends with the process.
#[derive(Debug)]
pub struct OwnLock(#[allow(dead_code, reason = "the lock is the open file")] File);

impl OwnLock {
    /// Takes it.
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
