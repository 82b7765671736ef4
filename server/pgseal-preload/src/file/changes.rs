//! Changes of tags, counted in memory that all processes of a server share.
//!
//! A process caches tags that it has read. A process that writes pages counts a change of their
//! group afterwards, which invalidates the cached tags of that group in all processes: a cached tag
//! never opens a page that the tag on the disk would not open. The postmaster makes the memory
//! before its first fork. Without it (in tools and single-process servers) fewer tags are cached
//! and no changes are counted.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pgseal_core::storage::GroupName;

use crate::file::accelerators;
use crate::os::log;
use crate::os::sys;

/// If there are more groups than counters, groups share a counter; then a change of one group
/// invalidates the cached tags of the others, too.
const COUNTERS: usize = 8192;
const BYTES: usize = COUNTERS * size_of::<AtomicU64>();

type Counters = [AtomicU64; COUNTERS];

/// The counters; null before [`share`].
static CHANGES: AtomicPtr<Counters> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn counter(group: GroupName) -> Option<&'static AtomicU64> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    let counters = unsafe { CHANGES.load(Ordering::Acquire).as_ref() }?;
    counters.get((group.0 % COUNTERS as u64) as usize)
}

/// The number of changes counted for a group.
#[inline]
pub fn seen(group: GroupName) -> Option<u64> {
    counter(group).map(|counter| counter.load(Ordering::Acquire))
}

/// Counts a change and returns the number of changes before it.
#[inline]
pub fn count(group: GroupName) -> Option<u64> {
    counter(group).map(|counter| counter.fetch_add(1, Ordering::AcqRel))
}

/// Makes the shared memory. The postmaster calls this once, before it forks.
pub fn share() {
    if !accelerators::are_on() || !CHANGES.load(Ordering::Acquire).is_null() {
        return;
    }
    match sys::shared_memory(BYTES) {
        Ok(map) => CHANGES.store(map.cast(), Ordering::Release),
        Err(errno) => log::line(format_args!(
            "WARNING: no shared memory for counting changes (errno {errno}); tags are read anew more often"
        )),
    }
}
