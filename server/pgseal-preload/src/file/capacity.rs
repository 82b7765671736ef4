//! Environment variables of a server that say of how many GiB of pages a table in shared memory
//! knows.

use core::ffi::CStr;

use pgseal_core::capacity::{MAX_GB, gb_of};
use pgseal_core::geometry::BLOCK_LEN;

use crate::os::log::{self, Shown};
use crate::os::sys;

/// Pages of one GiB.
const PAGES_PER_GB: u64 = (1 << 30) / BLOCK_LEN;

/// For how many pages a variable wants room, a power of two; 0: no table.
pub fn pages(variable: &CStr, default_gb: u64) -> usize {
    let gb = match sys::env(variable) {
        None => default_gb,
        Some(text) => gb_of(&text).unwrap_or_else(|| {
            log::line(format_args!(
                "WARNING: {} is \"{}\"; the server takes {default_gb}, set it to a number from 0 to {MAX_GB} or unset it",
                variable.to_string_lossy(),
                Shown(&text)
            ));
            default_gb
        }),
    };
    usize::try_from(gb * PAGES_PER_GB).unwrap_or(0)
}
