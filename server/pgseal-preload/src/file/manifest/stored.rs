//! Reads the file of the manifest.

use core::ffi::CStr;
use core::fmt;

use pgseal_keys::manifest::{MAX_MANIFEST_LEN, Manifest};

use crate::file::own_file::{self, Unusable};
use crate::keys::load;
use crate::os::log::Shown;
use crate::place::datadir::{self, Root};

/// The path of the manifest below a data directory.
pub const MANIFEST: &[u8] = b"pgseal/manifest";
/// The environment variable that, with the value `ignore`, lets a server start although the
/// manifest is missing or does not fit, and compares nothing.
pub const MODE: &CStr = c"PGSEAL_MANIFEST";

/// Reads and authenticates the manifest.
pub fn read(root: &'static Root) -> Result<Manifest, Unusable> {
    let keys = load::of(root).map_err(Unusable::Errno)?;
    let bytes = own_file::read(root, MANIFEST, MAX_MANIFEST_LEN)?;
    Manifest::open(&bytes, keys).map_err(Unusable::Record)
}

/// The path of the manifest, for messages.
pub fn shown(root: &Root) -> impl fmt::Display {
    let path = datadir::join(root.path(), MANIFEST);
    Shown(&path).to_string()
}
