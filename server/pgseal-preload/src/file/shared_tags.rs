//! Tags that the processes of a server read for single pages, in memory that they share
//! (`spec/while-it-runs.md`, section 6).
//!
//! The postmaster makes the memory before its first fork; the kernel gives it as it is used. Without
//! it, and in tools and single-user servers, each of these tags is read from its file.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use std::sync::OnceLock;

use pgseal_core::shared_tags::{RUN, SharedTags, TagSet, WAYS};

use crate::file::accelerators;
use crate::file::capacity::{self, PAGES_PER_GB};
use crate::os::log;
use crate::os::sys;

/// For how many GiB of pages there is room.
const VARIABLE: &CStr = c"PGSEAL_SHARED_TAGS_GB";
const DEFAULT_GB: usize = 4;
const SETS_PER_GB: usize = PAGES_PER_GB / (RUN * WAYS);
/// What lies before the sets: the epoch, on a cache line of its own.
const HEAD_BYTES: usize = 64;

static TABLE: OnceLock<SharedTags> = OnceLock::new();

/// The table, if this process belongs to a server that has one.
#[inline]
pub fn table() -> Option<&'static SharedTags> {
    TABLE.get()
}

/// A recovery begins: all processes that were changing the table have been killed.
pub fn recovery_begins() {
    if let Some(table) = table() {
        table.begin_anew();
    }
}

/// Makes the shared memory. The postmaster calls this once, before it forks.
pub fn share() {
    let sets = capacity::gb(VARIABLE, DEFAULT_GB) * SETS_PER_GB;
    if !accelerators::are_on() || table().is_some() || sets == 0 {
        return;
    }
    let map = match sys::shared_memory(HEAD_BYTES + sets * size_of::<TagSet>()) {
        Ok(map) => map,
        Err(errno) => {
            log::line(format_args!(
                "WARNING: no shared memory for tags (errno {errno}); the server works, and reads tags anew; lower PGSEAL_SHARED_TAGS_GB or give the machine more memory"
            ));
            return;
        }
    };
    // SAFETY: the map is longer than this, is never unmapped, has zeros, and its start is aligned to
    // a page; all access is atomic.
    let epoch: &'static AtomicU32 = unsafe { &*map.cast() };
    // SAFETY: within the map.
    let first = unsafe { map.add(HEAD_BYTES) }.cast::<TagSet>();
    // SAFETY: as above; `sets` sets of zeros, aligned to 64 bytes.
    let sets: &'static [TagSet] = unsafe { core::slice::from_raw_parts(first, sets) };
    if let Some(table) = SharedTags::new(sets, epoch) {
        let _ = TABLE.set(table);
    }
}
