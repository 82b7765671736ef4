//! Hands a new data key to the server that runs on a data directory.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pgseal_core::random::LibraryRandom;
use pgseal_core::{Generation, KeySet};
use pgseal_keys::{renewal, renewal_path, write_renewal};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::CliError;
use crate::small_file::remove_if_there;

/// How long the postmaster may take to read its configuration.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Whether the server has the new data key now.
pub enum Answer {
    /// Every process of the server can open files that are sealed under it.
    Taken,
    /// The server goes on without it.
    Refused,
}

/// Hands the active data key over, wrapped under the newest of the `older` ones that the server
/// has.
///
/// # Errors
/// [`CliError::NotNow`] if the server does not answer.
pub fn to_server(
    root: &Path,
    pid: u32,
    keys: &KeySet,
    older: &[Generation],
) -> Result<Answer, CliError> {
    for known in older.iter().rev() {
        if offer(root, pid, keys, *known)? {
            return Ok(Answer::Taken);
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

/// Offers the key once. Returns whether the server took it.
fn offer(root: &Path, pid: u32, keys: &KeySet, known: Generation) -> Result<bool, CliError> {
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
    while start.elapsed() < PATIENCE {
        if fs::symlink_metadata(&refused).is_ok() {
            remove_if_there(&refused)?;
            return Ok(false);
        }
        let is_there = fs::symlink_metadata(&path).is_ok();
        // It may have been given its other name between the two looks.
        if !is_there && fs::symlink_metadata(&refused).is_err() {
            return Ok(true);
        }
        thread::sleep(PAUSE);
    }
    remove_if_there(&path)?;
    Err(not_taken(
        root,
        pid,
        "it did not read its configuration within 30 s, or its libpgseal.so is older than this program",
    ))
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
