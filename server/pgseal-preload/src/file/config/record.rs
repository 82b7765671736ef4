//! Reads, verifies and replaces the record of a data directory.

use pgseal_keys::config_record::{ConfigRecord, MAX_RECORD_LEN};

use crate::file::own_file;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Root};

/// The path of the record below a data directory.
const RECORD: &[u8] = b"pgseal/config";
/// The environment variable that, with the value `locked`, demands a locked configuration.
const WANTED: &core::ffi::CStr = c"PGSEAL_CONFIG";

/// The record of a locked data directory; `None` if the directory is not locked. Logs why a record
/// is missing or not acceptable.
pub fn current(root: &Root) -> Result<Option<ConfigRecord>, Errno> {
    let keys = load::of(root)?;
    let mut seen = root.config_seen();
    let least = seen.unwrap_or(keys.config_lock);
    let path = datadir::join(root.path(), RECORD);
    let refuse = |why: &dyn core::fmt::Display| {
        log::line(format_args!(
            "ERROR: \"{}\": {why}; the configuration of this data directory is locked: put the file back, or run \"pgseal config accept {}\" to record the configuration anew",
            Shown(&path),
            Shown(root.path())
        ));
        Err(libc::EACCES)
    };
    let file = match sys::read_whole(&sys::c_path(&path)?, MAX_RECORD_LEN) {
        Ok(file) => file,
        Err(libc::ENOENT) if least == 0 => {
            *seen = Some(0);
            super::remember(None);
            return expect_unwanted(root).map(|()| None);
        }
        Err(libc::ENOENT) => return refuse(&"it is gone"),
        Err(errno) => return refuse(&format_args!("it cannot be read (errno {errno})")),
    };
    let record = match ConfigRecord::open(&file, keys) {
        Ok(record) => record,
        Err(error) => return refuse(&error),
    };
    if record.sequence < least {
        return refuse(&"it is an older copy of the record");
    }
    if !record.locked {
        // When a server starts, the keyring decides whether the directory is locked; later the
        // newer record decides.
        if seen.is_none() && least > 0 {
            return refuse(&"it says that nothing is locked, and the keyring says otherwise");
        }
        *seen = Some(0);
        super::remember(None);
        return expect_unwanted(root).map(|()| None);
    }
    *seen = Some(record.sequence);
    super::remember(Some(&record));
    Ok(Some(record))
}

/// Refuses an unlocked directory if `PGSEAL_CONFIG` demands the lock.
fn expect_unwanted(root: &Root) -> Result<(), Errno> {
    if !sys::env_is(WANTED, b"locked") {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: the configuration of \"{0}\" is not locked, and PGSEAL_CONFIG=locked asks for it; if this is the right data directory: \"pgseal config lock {0}\", or unset PGSEAL_CONFIG",
        Shown(root.path())
    ));
    Err(libc::EACCES)
}

/// Keeps other processes from writing the record while this value lives.
pub struct Alone {
    _dir: sys::Fd,
}

impl Alone {
    /// Waits for the lock, which `pgseal config` and `pgseal key` also take.
    pub fn wait(root: &Root) -> Result<Alone, Errno> {
        let dir = own_file::directory(root)?;
        sys::lock(&dir)?;
        Ok(Alone { _dir: dir })
    }
}

/// Replaces the record. A crash leaves the old one or the new one.
pub fn replace(root: &Root, record: &ConfigRecord, _alone: &Alone) -> Result<(), Errno> {
    let file = record.seal(load::of(root)?, &KernelRandom).map_err(|error| {
        log::line(format_args!(
            "ERROR: \"{}/pgseal/config\" cannot be written: {error}",
            Shown(root.path())
        ));
        libc::EIO
    })?;
    own_file::replace(root, RECORD, &file)
}
