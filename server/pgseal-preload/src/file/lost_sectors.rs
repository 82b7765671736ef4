//! Sectors of zeros that a power cut left in files of the sectored layout
//! (`spec/sealed-file.md`, section 8.2).
//!
//! A power cut may leave a segment of transaction status extended, and sectors of it unwritten.
//! Redo rewrites each such page before anybody reads it, or nothing refers to the page; yet a base
//! backup reads the whole file. So the postmaster, when it has its lock and before it starts
//! recovery, seals zeros into such sectors. From then on a sector of zeros is damage, in every
//! process and at any time. A page that the last checkpoint made durable is never filled: zeros
//! there are damage, also after a power cut.

use libc::{O_CLOEXEC, O_RDWR};
use pgseal_core::{BlockNo, Scratch, geometry};
use pgseal_pgdata::Checkpoint;

use crate::file::damage::{self, Head};
use crate::file::manifest;
use crate::file::plan;
use crate::file::storage::FdStorage;
use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::sys;
use crate::place::datadir::{self, Root, join};
use crate::place::program;
use crate::place::texts::{self, State};
use crate::place::tree::{databases, names_in};

/// The directories of the segments of SLRUs, and of logical mappings.
const DIRECTORIES: [&[u8]; 8] = [
    b"pg_xact",
    b"pg_multixact/offsets",
    b"pg_multixact/members",
    b"pg_commit_ts",
    b"pg_subtrans",
    b"pg_notify",
    b"pg_serial",
    b"pg_logical/mappings",
];
/// The relation map of a database, and of the cluster.
const RELATION_MAP: &[u8] = b"pg_filenode.map";

/// Fills lost sectors, unless the server was shut down cleanly. A sector that cannot be filled
/// stays damaged, and reading it fails.
pub fn fill(root: &'static Root) {
    if program::makes_cluster() {
        return;
    }
    let control = datadir::control_file(root).unwrap_or_default();
    if texts::state(&control).is_some_and(State::is_stopped) {
        return;
    }
    let checkpoint = Checkpoint::read(&control);
    for directory in DIRECTORIES {
        for name in names_in(root, directory) {
            let may_be_lost = |block: BlockNo| {
                !checkpoint.is_some_and(|last| last.has_synced(directory, &name, block.0))
            };
            fill_file(root, &join(directory, &name), &may_be_lost);
        }
    }
    // PostgreSQL refuses a relation map of zeros.
    fill_file(root, &join(b"global", RELATION_MAP), &|_| true);
    for directory in databases(root) {
        fill_file(root, &join(&directory, RELATION_MAP), &|_| true);
    }
}

/// A file that does not open here is skipped: the process that reads it logs the error.
fn fill_file(root: &'static Root, rel: &[u8], may_be_lost: &dyn Fn(BlockNo) -> bool) {
    let Some(sectors @ 1..) = try_fill(root, rel, may_be_lost) else { return };
    log::line(format_args!(
        "LOG: \"{}\": {sectors} sectors never reached the disk; they are zeros now, and recovery makes them anew",
        Shown(rel)
    ));
}

/// Returns how many sectors were filled. Does not use the hooked calls, which would refuse the file
/// while the guard module is not loaded.
fn try_fill(root: &'static Root, rel: &[u8], may_be_lost: &dyn Fn(BlockNo) -> bool) -> Option<u64> {
    let (class, place) = pgseal_pgdata::locate(rel);
    let sealing = plan::sealing_of(root, class, place).ok()??;
    let path = join(root.path(), rel);
    let fd = sys::open(&sys::c_path(&path).ok()?, O_RDWR | O_CLOEXEC, 0).ok()?;
    // What a base backup does not list like this was not lost by a power cut.
    if manifest::objection(fd.0, &path, false, Some(root)).ok()?.is_some() {
        return None;
    }
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd.0, &mut start, 0).ok()?;
    let Ok(Head::Sealed(mut file)) = damage::look(fd.0, &start[..got], Some(sealing), Some(root))
    else {
        return None;
    };
    let storage = FdStorage::new(fd.0);
    let scratch = &mut Scratch::new();
    let filled = file.fill_lost_sectors(&storage, scratch, &KernelRandom, may_be_lost).ok()?;
    if filled > 0 {
        manifest::leave(&path);
        // If this sync fails, the checkpoint at the end of recovery reports the error.
        let _ = sys::sync(fd.0);
    }
    Some(filled)
}
