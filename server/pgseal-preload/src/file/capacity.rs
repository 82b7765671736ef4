//! Environment variables of a server that say of how many GiB of pages a table in shared memory
//! knows.

use core::ffi::CStr;

use pgseal_core::geometry::BLOCK_LEN;

use crate::os::log::{self, Shown};
use crate::os::sys;

/// The most that a variable may say.
const MAX_GB: usize = 16384;
/// Pages of one GiB.
pub const PAGES_PER_GB: usize = (1 << 30) / BLOCK_LEN as usize;

/// How many GiB a variable asks for, rounded up to a power of two; 0: no table.
pub fn gb(variable: &CStr, default_gb: usize) -> usize {
    let Some(text) = sys::env(variable) else { return default_gb };
    let number = core::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    match number.filter(|number| *number <= MAX_GB) {
        Some(0) => 0,
        Some(number) => number.next_power_of_two(),
        None => {
            log::line(format_args!(
                "WARNING: {} is \"{}\"; the server takes {default_gb}, set it to a number from 0 to {MAX_GB} or unset it",
                variable.to_string_lossy(),
                Shown(&text)
            ));
            default_gb
        }
    }
}
