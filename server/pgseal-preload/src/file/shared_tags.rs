//! Tags that the processes of a server read for single pages, in memory that they share
//! (`spec/while-it-runs.md`, section 6).
//!
//! The postmaster makes the memory before its first fork; the kernel gives it as it is used.
//! Without it, and in tools and single-user servers, each of these tags is read from its file.

use core::ffi::CStr;
use std::sync::OnceLock;

use pgseal_core::shared_tags::{RUN, SharedTags, TagSet, WAYS};

use crate::file::accelerators;
use crate::file::capacity;
use crate::os::log;
use crate::os::sys;

/// For how many GiB of pages there is room.
const VARIABLE: &CStr = c"PGSEAL_SHARED_TAGS_GB";
const DEFAULT_GB: u64 = 4;

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
    let sets = capacity::pages(VARIABLE, DEFAULT_GB) / (RUN * WAYS);
    if !accelerators::are_on() || table().is_some() || sets == 0 {
        return;
    }
    // SAFETY: a set is made of atomic integers, zeros are an empty one, and it is aligned to 64
    // bytes.
    let (epoch, sets) = match unsafe { sys::shared_table::<TagSet>(sets) } {
        Ok(table) => table,
        Err(errno) => {
            log::line(format_args!(
                "WARNING: no shared memory for tags (errno {errno}); the server works, and reads tags anew; lower PGSEAL_SHARED_TAGS_GB or give the machine more memory"
            ));
            return;
        }
    };
    if let Some(table) = SharedTags::new(sets, epoch) {
        let _ = TABLE.set(table);
    }
}
