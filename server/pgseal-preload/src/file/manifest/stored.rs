//! Reads the file of the manifest.

use core::ffi::CStr;
use core::fmt;

use pgseal_keys::manifest::{MAX_MANIFEST_LEN, Manifest};

use crate::keys::load;
use crate::os::log::Shown;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Root};

/// The path of the manifest below a data directory.
pub const MANIFEST: &[u8] = b"pgseal/manifest";
/// The environment variable that, with the value `ignore`, lets a server start although the
/// manifest is missing or does not fit, and compares nothing.
pub const MODE: &CStr = c"PGSEAL_MANIFEST";

/// Why there is no manifest that could be used.
pub enum Unusable {
    /// There is none.
    Gone,
    /// It cannot be read.
    Errno(Errno),
    /// It does not open.
    Record(pgseal_keys::RecordError),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Gone => f.write_str("it is gone"),
            Unusable::Errno(errno) => write!(f, "it cannot be read (errno {errno})"),
            Unusable::Record(error) => error.fmt(f),
        }
    }
}

/// Reads and authenticates the manifest.
pub fn read(root: &'static Root) -> Result<Manifest, Unusable> {
    let keys = load::of(root).map_err(Unusable::Errno)?;
    let path = datadir::join(root.path(), MANIFEST).into_c().map_err(Unusable::Errno)?;
    match sys::read_whole(&path, MAX_MANIFEST_LEN) {
        Ok(bytes) => Manifest::open(&bytes, keys).map_err(Unusable::Record),
        Err(libc::ENOENT) => Err(Unusable::Gone),
        Err(errno) => Err(Unusable::Errno(errno)),
    }
}

/// The path of the manifest, for messages.
pub fn shown(root: &Root) -> impl fmt::Display {
    let path = datadir::join(root.path(), MANIFEST);
    Shown(&path).to_string()
}
