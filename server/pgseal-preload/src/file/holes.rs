//! Sectors of zeros that a power cut left in files without holes (`spec/sealed-file.md`, section
//! 8.1).
//!
//! A power cut may leave a segment of transaction status extended, and sectors of it unwritten.
//! Redo rewrites each such page before anybody reads it, or nothing refers to the page; yet a base
//! backup reads the whole file. So the postmaster, when it has its lock and before it starts
//! recovery, seals zeros into such sectors. From then on a sector of zeros is damage, in every
//! process and at any time.

use libc::{O_CLOEXEC, O_RDWR};
use pgseal_core::{Scratch, geometry};

use crate::file::damage::{self, Head};
use crate::file::plan;
use crate::file::storage::FdStorage;
use crate::os::log::{self, Shown};
use crate::os::sys;
use crate::place::datadir::{self, Root, join};
use crate::place::program;

/// The directories of segments without holes (`Class::is_solid`).
const DIRECTORIES: [&[u8]; 4] =
    [b"pg_xact", b"pg_multixact/offsets", b"pg_multixact/members", b"pg_commit_ts"];

/// Fills the holes, unless the server was shut down cleanly. A hole that cannot be filled stays
/// damaged, and reading it fails.
pub fn fill(root: &'static Root) {
    if program::makes_cluster() || datadir::stopped_cleanly(root) {
        return;
    }
    for directory in DIRECTORIES {
        let path = join(root.path(), directory).into_c().ok();
        for name in path.and_then(|path| sys::names_in(&path)).unwrap_or_default() {
            fill_segment(root, directory, &name);
        }
    }
}

/// A file that does not open here is skipped: the process that reads it logs the error.
fn fill_segment(root: &'static Root, directory: &[u8], name: &[u8]) {
    let shown = join(directory, name);
    let path = join(root.path(), &shown);
    let Some(sectors @ 1..) = try_fill(root, &path, &shown) else { return };
    log::line(format_args!(
        "LOG: \"{}\": {sectors} sectors never reached the disk; they are zeros now, and recovery makes them anew",
        Shown(&shown)
    ));
}

/// Returns how many sectors were filled. Does not use the hooked calls, which would refuse the file
/// while the guard module is not loaded.
fn try_fill(root: &'static Root, path: &[u8], rel: &[u8]) -> Option<u64> {
    let (class, place) = pgseal_pgdata::locate(rel);
    let sealing = plan::sealing_of(root, class, place).ok()??;
    let fd = sys::open(&sys::c_path(path).ok()?, O_RDWR | O_CLOEXEC, 0).ok()?;
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd.0, &mut start, 0).ok()?;
    let Ok(Head::Sealed(mut file)) = damage::look(fd.0, &start[..got], Some(sealing), Some(root))
    else {
        return None;
    };
    let filled = file.fill_holes(&FdStorage::new(fd.0), &mut Scratch::new()).ok()?;
    if filled > 0 {
        // If this sync fails, the checkpoint at the end of recovery reports the error.
        let _ = sys::sync(fd.0);
    }
    Some(filled)
}
