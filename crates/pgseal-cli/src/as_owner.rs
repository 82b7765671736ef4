//! Root steps down: a command that root starts on another user's data directory runs as the owner
//! of the directory. So nothing in the directory can make root read, write or run anything that its
//! owner could not.
//!
//! `pgseal run` is different: it becomes the program that the user named, as the same user. The
//! servers of PostgreSQL refuse root themselves, and `pgseal helper keys`, which reads the
//! directory for them, steps down. Three things happen as root. A key file that only root can read
//! is read before the step ([`crate::key_ahead::read_ahead`]) if `-K` or `PGSEAL_PROVIDER` names
//! it. A process that was started before the step writes the file of `--register`
//! ([`crate::register`]). The files of `pgseal key backup -o` are written by a process that never
//! looks at the directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::CliError;
use crate::key_ahead;

/// The owner of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The user's group; that of the directory if the system does not know the user.
    pub gid: u32,
    /// All groups of the user.
    groups: Vec<u32>,
}

static INVOKER: OnceLock<u32> = OnceLock::new();

/// The user who started the program.
pub fn invoker() -> u32 {
    *INVOKER.get_or_init(|| geteuid().as_raw())
}

/// The owner of a directory, if this process is root and the owner is not.
///
/// # Errors
/// When the path does not exist.
pub fn other_owner(path: &Path) -> Result<Option<Owner>, CliError> {
    invoker();
    if !geteuid().is_root() {
        return Ok(None);
    }
    let meta = fs::metadata(path).map_err(CliError::io(path, "look at the directory"))?;
    if meta.uid() == 0 {
        return Ok(None);
    }
    let uid = meta.uid();
    let groups = id("-G", &uid.to_string());
    let gid = id("-g", &uid.to_string()).first().copied().unwrap_or(meta.gid());
    Ok(Some(Owner { uid, gid, groups }))
}

/// Turns this process into one of the directory's owner, if it runs as root and another user owns
/// the directory. It cannot be undone. The caller has read nothing of the directory yet.
///
/// # Errors
/// When the path does not exist, when the system refuses, or when the owner cannot reach the
/// directory.
pub fn step_down(path: &Path) -> Result<(), CliError> {
    let Some(owner) = other_owner(path)? else { return Ok(()) };
    key_ahead::read_ahead()?;
    become_user(&owner).map_err(|error| CliError::Io {
        path: path.to_owned(),
        action: "work as its owner, as root does with the directory of another user",
        source: error.into(),
    })?;
    // The change of the user has made the process dumpable again.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(CliError::NotNow(format!(
                "{}: root works on it as its owner, user {}, who cannot reach it; move it to where \
                 that user can, or make root its owner if no server is to run on it",
                path.display(),
                owner.uid
            )))
        }
        _ => Ok(()),
    }
}

/// As [`step_down`], for a file: the owner of the directory that it lies in.
///
/// # Errors
/// As [`step_down`].
pub fn step_down_beside(file: &Path) -> Result<(), CliError> {
    match file.parent() {
        Some(dir) if dir.as_os_str().is_empty() => step_down(Path::new(".")),
        Some(dir) if dir.is_dir() => step_down(dir),
        // Then the file does not exist either, and opening it reports that.
        _ => Ok(()),
    }
}

/// The process has a single thread at this time; threads that it starts later inherit the user.
fn become_user(owner: &Owner) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = owner.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    let gid = Gid::from_raw(owner.gid);
    set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(owner.uid);
    set_thread_res_uid(uid, uid, uid)
}

/// The number of a user, and that of the user's group.
///
/// # Errors
/// When the system knows no such user.
pub fn user(name: &str) -> Result<(u32, u32), CliError> {
    match (id("-u", name).first(), id("-g", name).first()) {
        (Some(uid), Some(gid)) => Ok((*uid, *gid)),
        _ => Err(CliError::Usage(format!("{name:?}: there is no such user"))),
    }
}

/// Asks `id`, which knows the users of every source (files, LDAP, ...).
fn id(question: &str, user: &str) -> Vec<u32> {
    let mut command = Command::new("/usr/bin/id");
    command.args([question, "--", user]).env_clear().env("PATH", "/usr/bin:/bin");
    match crate::child::output(&mut command) {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect(),
        _ => Vec::new(),
    }
}
