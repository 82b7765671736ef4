//! Changes of tags, counted in memory that all processes of a server share.
//!
//! A process remembers tags that it has read. Whoever writes pages counts a change of their group
//! afterwards, and then nobody uses what he remembers of it: a remembered tag never opens a page that
//! the tag on the disk would not open. The postmaster makes the memory before its first fork.
//! Without it (tools, one process alone) little is remembered and nothing counted.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pgseal_core::storage::GroupName;

use crate::os::log;
use crate::os::real;

/// Groups of pages share counters if there are more of them than this: what one forgets with
/// another it only reads again.
const COUNTERS: usize = 8192;
const BYTES: usize = COUNTERS * size_of::<AtomicU64>();

type Counters = [AtomicU64; COUNTERS];

/// The counters; null while nobody counts.
static CHANGES: AtomicPtr<Counters> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn counter(group: GroupName) -> Option<&'static AtomicU64> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    let counters = unsafe { CHANGES.load(Ordering::Acquire).as_ref() }?;
    counters.get((group.0 % COUNTERS as u64) as usize)
}

/// How many changes were counted for a group.
#[inline]
pub fn seen(group: GroupName) -> Option<u64> {
    counter(group).map(|counter| counter.load(Ordering::Acquire))
}

/// Counts a change; returns how many there were before.
#[inline]
pub fn count(group: GroupName) -> Option<u64> {
    counter(group).map(|counter| counter.fetch_add(1, Ordering::AcqRel))
}

/// Makes the memory. The postmaster calls it, once, before it forks.
pub fn share() {
    if !CHANGES.load(Ordering::Acquire).is_null() {
        return;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new map at an address of the kernel's choice.
    let map = unsafe { real::mmap(ptr::null_mut(), BYTES, prot, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        let errno = real::errno();
        log::line(format_args!(
            "WARNING: no shared memory for counting changes (errno {errno}); tags are read anew more often"
        ));
        return;
    }
    CHANGES.store(map.cast(), Ordering::Release);
}
