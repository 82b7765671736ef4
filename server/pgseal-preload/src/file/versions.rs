//! The newest version of each page, in memory that all processes of a server share
//! (`spec/while-it-runs.md`, section 2): a page that authenticates and is older is damage.
//!
//! The postmaster makes the memory before its first fork; the kernel gives it as it is used.
//! Without it, and in tools and single-user servers, an older page with its tag is not noticed
//! while the server runs.

use core::ffi::CStr;
use std::sync::OnceLock;

use pgseal_core::capacity::WATCHED_GB;
use pgseal_core::random::Random;
use pgseal_core::versions::{Slot, Table};

use crate::file::capacity;
use crate::file::lengths;
use crate::file::shared_tags;
use crate::os::log;
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys;

/// How many GiB of pages have a slot of their own. 0: no versions are kept.
const VARIABLE: &CStr = c"PGSEAL_WATCHED_GB";

static TABLE: OnceLock<Table> = OnceLock::new();

/// The table, if this process belongs to a server that keeps versions.
#[inline]
pub fn table() -> Option<&'static Table> {
    TABLE.get()
}

/// A recovery begins: all processes that were writing have been killed.
pub fn recovery_begins() {
    if let Some(table) = table() {
        table.all_writers_have_ended();
    }
    lengths::recovery_begins();
    shared_tags::recovery_begins();
}

/// Makes the shared memory of the versions of pages and of the lengths of files. The postmaster
/// calls this once, before it forks.
pub fn share() {
    let pages = capacity::pages(VARIABLE, WATCHED_GB);
    if table().is_some() || pages == 0 {
        return;
    }
    match made(pages).and_then(|table| Ok((table, made(lengths::FILES)?))) {
        Ok((pages, files)) => {
            let _ = TABLE.set(pages);
            lengths::keep_in(files);
        }
        Err(errno) => log::line(format_args!(
            "WARNING: no shared memory for the versions of pages (errno {errno}): an older page with its tag, and a file that was cut, are not noticed while the server runs; lower PGSEAL_WATCHED_GB or give the machine more memory"
        )),
    }
}

/// A table of so many slots, a power of two, in shared memory.
fn made(slots: usize) -> Result<Table, Errno> {
    let mut keys = [0; 32];
    KernelRandom.fill(&mut keys).map_err(|_| libc::EAGAIN)?;
    // SAFETY: a slot is two atomic integers, and zeros are an empty one.
    let (epoch, slots) = unsafe { sys::shared_table::<Slot>(slots) }?;
    let mut numbers = [0; 4];
    for (number, word) in numbers.iter_mut().zip(keys.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*word);
    }
    Table::new(slots, epoch, numbers).ok_or(libc::EINVAL)
}
