//! Reads and replaces the file of the manifest.

use core::ffi::CStr;
use core::fmt;

use pgseal_keys::manifest::{Listed, MAX_MANIFEST_LEN, Manifest};

use crate::file::own_file::{self, Unusable};
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::place::datadir::{self, Root};
use crate::place::program;

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

/// Replaces the manifest by one that lists nothing, and is valid with the same contents of
/// `pg_control`.
pub fn lists_nothing(root: &'static Root, manifest: &Manifest) -> Result<(), Errno> {
    let controls = manifest.controls.clone();
    with_reserve(|| store(root, made(manifest.number, false, controls, Vec::new())))
}

/// A manifest that follows the one with this number.
pub fn made(before: u64, is_whole: bool, controls: Vec<[u8; 32]>, files: Vec<Listed>) -> Manifest {
    Manifest::after(before, &program::name(), is_whole, controls, files)
}

/// Replaces the manifest.
pub fn store(root: &'static Root, manifest: Manifest) -> Result<(), Errno> {
    let bytes = manifest.seal(load::of(root)?, &KernelRandom).map_err(|error| {
        log::line(format_args!("ERROR: \"{}\": {error}", shown(root)));
        libc::EIO
    })?;
    own_file::replace(root, MANIFEST, &bytes)
}
