//! Holes that a power cut left in files that have none (`spec/sealed-file.md`, section 8.1).
//!
//! Pages of transaction status may have reached the disk with their length and without their
//! bytes. Redo makes such a page anew before anybody reads it, and a page that redo does not make
//! anew is one that nobody counts on; yet a base backup reads the whole file. So the postmaster,
//! when it has its lock and before it starts recovery, seals zeros into such sectors. From then on
//! a sector of zeros is damage, in every process and at any time.

use libc::{O_CLOEXEC, O_RDWR};
use pgseal_core::{Scratch, geometry};

use crate::file::damage::{self, Head};
use crate::file::plan;
use crate::file::storage::FdStorage;
use crate::os::log::{self, Shown};
use crate::os::sys;
use crate::place::datadir::{self, Root, join};
use crate::place::program;

/// The directories of segments without holes, `Class::is_solid`.
const DIRECTORIES: [&[u8]; 4] =
    [b"pg_xact", b"pg_multixact/offsets", b"pg_multixact/members", b"pg_commit_ts"];

/// Fills the holes, unless the server was stopped cleanly. What cannot be filled stays damage, and
/// a process that reads it gets the error.
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

/// A file that does not open here is skipped: the process that reads it says why.
fn fill_segment(root: &'static Root, directory: &[u8], name: &[u8]) {
    let shown = join(directory, name);
    let path = join(root.path(), &shown);
    let Some(sectors @ 1..) = try_fill(root, &path, &shown) else { return };
    log::line(format_args!(
        "LOG: \"{}\": {sectors} sectors never reached the disk; they are zeros now, and recovery makes them anew",
        Shown(&shown)
    ));
}

/// How many sectors were filled. Not by the hooked calls: the guard module is not loaded yet.
fn try_fill(root: &'static Root, path: &[u8], rel: &[u8]) -> Option<u64> {
    let (class, place) = pgseal_pgdata::locate(rel);
    let want = plan::wanted(root, class, place).ok()??;
    let fd = sys::open(&sys::c_path(path).ok()?, O_RDWR | O_CLOEXEC, 0).ok()?;
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd.0, &mut start, 0).ok()?;
    let Ok(Head::Sealed(mut file)) = damage::look(fd.0, &start[..got], Some(want), Some(root))
    else {
        return None;
    };
    let filled = file.fill_holes(&FdStorage::new(fd.0), &mut Scratch::new()).ok()?;
    if filled > 0 {
        // What it cannot write, the checkpoint at the end of recovery says.
        let _ = sys::sync(fd.0);
    }
    Some(filled)
}
