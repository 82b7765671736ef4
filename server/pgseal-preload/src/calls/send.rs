//! `send`, with which a server acknowledges commits to clients and positions to other nodes.

use core::ffi::{c_int, c_void};

use libc::{size_t, ssize_t};

use crate::file::wal;
use crate::os::real;

/// `send(2)`. What is sent stays as it is; before a server sends, the position up to which its WAL
/// is on the disk is published (`spec/control.md`).
/// # Safety
/// As for `send(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    wal::before_send();
    // SAFETY: the caller's arguments.
    unsafe { real::send(fd, buf, len, flags) }
}
