//! Hands a new data key to the server that runs on a data directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pgseal_core::random::LibraryRandom;
use pgseal_core::{Generation, KeySet};
use pgseal_keys::{renewal, renewal_path, write_renewal};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::CliError;
use crate::small_file::remove_if_there;

const PAUSE: Duration = Duration::from_millis(10);

/// Whether the server has the new data key now.
pub enum Answer {
    /// Every process of the server can open files that are sealed under it.
    Taken,
    /// The server goes on without it.
    Refused,
    /// The server did not read its configuration in time, and goes on without it: it cannot get it
    /// any more.
    None,
}

/// Hands the active data key over, wrapped under the newest of the `older` ones that the server
/// has. The postmaster may take so long to read its configuration.
///
/// # Errors
/// [`CliError::NotNow`] if it is not known whether the server has the key, or will have it.
pub fn to_server(
    root: &Path,
    pid: u32,
    keys: &KeySet,
    older: &[Generation],
    patience: Duration,
) -> Result<Answer, CliError> {
    for known in older.iter().rev() {
        match offer(root, pid, keys, *known, patience)? {
            Answer::Refused => {}
            answer => return Ok(answer),
        }
    }
    Ok(Answer::Refused)
}

/// The error for a data key that the server refused.
pub fn refused(root: &Path, pid: u32) -> CliError {
    let why = "it has none of the older data keys, it has taken as many as it can, or its settings \
               do not do for the suite";
    not_taken(root, pid, why)
}

/// The error for a server that did not answer.
pub fn no_answer(root: &Path, pid: u32, patience: Duration) -> CliError {
    let seconds = patience.as_secs();
    let why = format!(
        "it did not read its configuration within {seconds} s, or its libpgseal.so is older than this \
         program"
    );
    not_taken(root, pid, &why)
}

/// Offers the key once.
fn offer(
    root: &Path,
    pid: u32,
    keys: &KeySet,
    known: Generation,
    patience: Duration,
) -> Result<Answer, CliError> {
    let file = renewal::seal(keys, known, &LibraryRandom::new())
        .map_err(|why| CliError::Damaged(format!("{}: {why}", renewal_path(root).display())))?;
    let path = renewal_path(root);
    let refused = path.with_extension("refused");
    remove_if_there(&refused)?;
    write_renewal(root, &file)?;
    if let Err(error) = reload(pid) {
        remove_if_there(&path)?;
        return Err(not_taken(root, pid, &format!("it got no SIGHUP: {error}")));
    }
    let start = Instant::now();
    loop {
        if fs::symlink_metadata(&refused).is_ok() {
            remove_if_there(&refused)?;
            return Ok(Answer::Refused);
        }
        let is_there = fs::symlink_metadata(&path).is_ok();
        // It may have been given its other name between the two looks.
        if !is_there && fs::symlink_metadata(&refused).is_err() {
            return Ok(Answer::Taken);
        }
        if start.elapsed() >= patience && take_back(&path)? {
            return Ok(Answer::None);
        }
        if start.elapsed() >= 2 * patience {
            return Err(CliError::NotNow(format!(
                "{0}: the server, process {pid}, is about to take the new data key and does not go on; \
                 when it does, or after its restart, run: pgseal key renew --finish {0}",
                root.display()
            )));
        }
        thread::sleep(PAUSE);
    }
}

/// Removes the renewal file, unless the server has it in hand: it locks the file while it decides.
fn take_back(path: &Path) -> Result<bool, CliError> {
    let io = |error| CliError::io(path, "take the file back")(error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io(error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        Err(error) => return Err(io(error.into())),
    }
    if fs::symlink_metadata(path).map(|found| found.ino()).ok()
        != file.metadata().map(|own| own.ino()).ok()
    {
        return Ok(false);
    }
    remove_if_there(path)?;
    Ok(true)
}

/// Has the postmaster read its configuration again, as `pg_ctl reload` does.
fn reload(pid: u32) -> io::Result<()> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Every other program would be ended by the signal.
    let Some(pid) = pid.filter(|_| name.starts_with("postgres")) else {
        return Err(io::Error::other("it is not a PostgreSQL server"));
    };
    Ok(kill_process(pid, Signal::HUP)?)
}

fn not_taken(root: &Path, pid: u32, why: &str) -> CliError {
    CliError::NotNow(format!(
        "{}: the server, process {pid}, did not take the new data key: {why}. No file was changed; \
         see its log. It has the key after a restart: restart it, then run pgseal key renew --finish",
        root.display()
    ))
}
