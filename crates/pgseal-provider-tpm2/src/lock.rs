//! A lock between the processes of this plugin on a machine: an advisory lock (`flock(2)`) on a
//! file that is there anyway. It ends with the process.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pgseal_plugin::{Failure, Fault};

const PAUSE: Duration = Duration::from_millis(10);

/// Held until it is dropped.
pub(crate) struct Lock {
    _file: File,
}

/// Waits for the lock until the deadline.
pub(crate) fn hold(path: &Path, deadline: Instant) -> Result<Lock, Failure<'static>> {
    let failed =
        |what: String| Failure::new(Fault::Unavailable, format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(failed("other processes use the TPM, and hold the lock".to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn one_at_a_time() {
        let path = std::env::current_exe().unwrap();
        let now = Instant::now();
        let held = hold(&path, now).unwrap();
        assert!(hold(&path, now).is_err_and(|failure| failure.kind == Fault::Unavailable));
        drop(held);
        assert!(hold(&path, now).is_ok());
    }
}
