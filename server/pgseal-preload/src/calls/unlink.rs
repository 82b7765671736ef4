//! `unlink(2)`: the end of recovery removes signal files, which changes the configuration; a server
//! that removes a file takes it off the manifest.

use core::ffi::{CStr, c_char, c_int};

use crate::file::config;
use crate::file::lengths;
use crate::file::manifest;
use crate::os::real::{self, fail};

/// `unlink(2)`.
/// # Safety
/// As for `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(path) };
    manifest::before_unlink(name.to_bytes());
    lengths::forget(name.to_bytes());
    let change = match config::before_unlink(name) {
        Ok(change) => change,
        Err(errno) => return fail(errno),
    };
    // SAFETY: the caller's arguments.
    let done = unsafe { real::unlink(path) };
    let errno = real::errno();
    // Again: a process that has the file open may have looked at it in between.
    lengths::forget(name.to_bytes());
    real::set_errno(errno);
    if let Some(change) = change {
        change.finish(done == 0);
    }
    done
}
