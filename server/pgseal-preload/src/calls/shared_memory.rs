//! `shm_open`. The C library opens the object with a call of its own, so without this hook its
//! descriptor would be unknown, and each process of a server would examine it before it maps
//! PostgreSQL's dynamic shared memory.

use core::ffi::{c_char, c_int};

use libc::mode_t;

use crate::file::fds;
use crate::os::real;
use crate::place::head;

/// `shm_open(3)`. The object is memory and plain. If it turns out to be a sealed file, whose data
/// directory is then the file system for shared memory itself, its descriptor stays unknown and is
/// examined before its first use.
///
/// # Safety
/// As for `shm_open(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { real::shm_open(name, flags, mode) };
    if fd >= 0 && !head::starts_sealed(fd) {
        fds::set_plain(fd);
    }
    fd
}
