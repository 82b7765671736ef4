//! The switch of the accelerators, which make reading and writing of tags faster and are optional.
//!
//! There are four: tag blocks that are written through a map (`window.rs`), tag blocks that each
//! process keeps (`TagBlocks` of `pgseal-core`), tags that the processes of a server share
//! (`shared_tags.rs`), and counters of tag changes that they share (`changes.rs`). `pgseal-core`
//! uses all four through the trait `Accelerator`, which `storage.rs` implements. Without them each
//! tag is read and written by a call of its own, and files have the same bytes. The switch is for
//! tests, and for finding out whether an accelerator causes an error.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::os::log::{self, Shown};
use crate::os::sys;

/// With the value `off`, no accelerator is used.
const VARIABLE: &CStr = c"PGSEAL_ACCELERATORS";

static OFF: AtomicBool = AtomicBool::new(false);

/// Whether the accelerators are used.
#[inline]
pub fn are_on() -> bool {
    !OFF.load(Ordering::Relaxed)
}

/// Reads the switch, once, when the program starts.
pub fn read_switch() {
    match sys::env(VARIABLE).as_deref() {
        None | Some(b"on") => {}
        Some(b"off") => OFF.store(true, Ordering::Relaxed),
        Some(other) => log::line(format_args!(
            "WARNING: PGSEAL_ACCELERATORS is \"{}\"; the accelerators stay on, set it to off or unset it",
            Shown(other)
        )),
    }
}
