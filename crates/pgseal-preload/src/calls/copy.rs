//! Copies inside the kernel would carry sealed blocks from one file into another, where no header
//! fits them. PostgreSQL falls back to reading and writing, or says so.

use core::ffi::c_int;

use libc::{off_t, size_t, ssize_t};

use crate::fds;
use crate::log;
use crate::real::{self, fail};

fn refused(first: c_int, second: c_int, what: &str) -> bool {
    let sealed = fds::is_sealed(first) || fds::is_sealed(second);
    if sealed {
        log::line(format_args!(
            "ERROR: {what} does not work on sealed files; choose plain copying (pg_upgrade: --copy; server: file_copy_method=copy)"
        ));
    }
    sealed
}

macro_rules! sendfile_family {
    ($($name:ident),*) => { $(
        /// `sendfile(2)`.
        /// # Safety
        /// As for `sendfile(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: c_int, input: c_int, off: *mut off_t, len: size_t) -> ssize_t {
            if refused(out, input, "sendfile") {
                return fail(libc::EINVAL);
            }
            // SAFETY: the caller's arguments.
            unsafe { real::sendfile(out, input, off, len) }
        }
    )* };
}

sendfile_family!(sendfile, sendfile64);

/// `copy_file_range(2)`.
/// # Safety
/// As for `copy_file_range(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    input: c_int,
    off_in: *mut off_t,
    out: c_int,
    off_out: *mut off_t,
    len: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    if refused(input, out, "copy_file_range") {
        return fail(libc::EXDEV);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::copy_file_range(input, off_in, out, off_out, len, flags) }
}

/// `splice(2)`.
/// # Safety
/// As for `splice(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    input: c_int,
    off_in: *mut off_t,
    out: c_int,
    off_out: *mut off_t,
    len: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    if refused(input, out, "splice") {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::splice(input, off_in, out, off_out, len, flags) }
}
