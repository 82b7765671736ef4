//! The manifest of a data directory (`spec/manifest.md`): which files it consists of, and which
//! version of each, as of the last clean shutdown.
//!
//! [`write`] writes the manifest just before `pg_control` says "shut down". [`watch`] reads the
//! manifest when a server starts, and compares each file with it when the file is first opened.

mod watch;
mod write;

use core::ffi::CStr;
use core::fmt;

use pgseal_keys::manifest::{MAX_MANIFEST_LEN, Manifest};
use pgseal_pgdata::Class;

pub use self::watch::{differs, objection, release, server_starts};
pub use self::write::{ControlFile, before_control};

use crate::keys::load;
use crate::os::log::Shown;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Root};
use crate::place::program;

/// The path of the manifest below a data directory.
const MANIFEST: &[u8] = b"pgseal/manifest";
/// The environment variable that, with the value `ignore`, lets a server start although the
/// manifest is missing or does not fit, and compares nothing.
const MODE: &CStr = c"PGSEAL_MANIFEST";

/// Why there is no manifest that could be used.
enum Unusable {
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
fn read(root: &'static Root) -> Result<Manifest, Unusable> {
    let keys = load::of(root).map_err(Unusable::Errno)?;
    let path = datadir::join(root.path(), MANIFEST).into_c().map_err(Unusable::Errno)?;
    match sys::read_whole(&path, MAX_MANIFEST_LEN) {
        Ok(bytes) => Manifest::open(&bytes, keys).map_err(Unusable::Record),
        Err(libc::ENOENT) => Err(Unusable::Gone),
        Err(errno) => Err(Unusable::Errno(errno)),
    }
}

/// To be called before the file at a path is removed. The end of a server is the removal of its lock
/// file.
pub fn before_unlink(path: &[u8]) {
    before_change(path);
    if datadir::base_name(path) == b"postmaster.pid"
        && watch::is_server()
        && let Some(location) = datadir::locate(path)
    {
        write::server_ends(location.root);
    }
}

/// To be called before the file at a path gets another name, and perhaps replaces the file there.
pub fn before_rename(from: &[u8], to: &[u8]) {
    before_change(from);
    before_change(to);
}

fn before_change(path: &[u8]) {
    if watch::is_server() {
        release(path);
    } else if program::active() {
        write::tool_changes(path);
    }
}

/// To be called before a sealed file of this class is written or truncated.
#[inline]
pub fn before_write(class: Option<Class>, path: &[u8]) {
    if watch::is_server() {
        watch::server_writes(class);
    } else {
        write::tool_changes(path);
    }
}

/// The path of the manifest, for messages.
fn shown(root: &Root) -> impl fmt::Display {
    let path = datadir::join(root.path(), MANIFEST);
    Shown(&path).to_string()
}
