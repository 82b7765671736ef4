//! Positions and lengths: `lseek`, `truncate`, `ftruncate`, the `fallocate` family.

use core::ffi::{CStr, c_char, c_int};

use libc::off_t;
use pgseal_core::{Layout, PlainLen, geometry};

use crate::calls::open;
use crate::file::fds::{self, SharedFile};
use crate::file::plan;
use crate::os::log::{self, Shown};
use crate::os::real::{self, fail};
use crate::place::program;

fn set_len(file: &SharedFile, fd: c_int, len: off_t) -> c_int {
    let Ok(len) = u64::try_from(len) else { return fail(libc::EINVAL) };
    real::returned(fds::lock(file).set_len(fd, len).map(|()| 0))
}

/// # Safety
/// `path` is a C string.
unsafe fn truncate_path(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(path) };
    // This includes an empty file of a sealed class: if the kernel extended it, it would have no
    // header.
    if !program::active() || !plan::would_seal(name) {
        // SAFETY: the caller's arguments.
        return unsafe { real::truncate(path, len) };
    }
    let fd = open::open_path(name, libc::O_RDWR | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return -1;
    }
    let done = match fds::get(fd) {
        Some(file) => set_len(&file, fd, len),
        // The file was opened as plain.
        // SAFETY: our own descriptor.
        None => unsafe { real::ftruncate(fd, len) },
    };
    let errno = real::errno();
    fds::remove(fd);
    // SAFETY: our own descriptor.
    unsafe { real::close(fd) };
    real::set_errno(errno);
    done
}

/// Extends the file for a plain range and allocates its sealed range, so that the promise of
/// `fallocate` holds: no later write into the range fails for lack of space.
fn allocate(file: &SharedFile, fd: c_int, off: off_t, len: off_t) -> Result<(), c_int> {
    let (Ok(off), Ok(len)) = (u64::try_from(off), u64::try_from(len)) else {
        return Err(libc::EINVAL);
    };
    if len == 0 {
        return Err(libc::EINVAL);
    }
    let end = off.checked_add(len).ok_or(libc::EFBIG)?;
    let mut open = fds::lock(file);
    if !open.writable() {
        return Err(libc::EBADF);
    }
    let had = open.len(fd)?;
    if end <= had {
        return Ok(());
    }
    open.set_len(fd, end)?;
    let layout = open.layout().unwrap_or(Layout::Paged);
    let from = geometry::sealed_len(layout, PlainLen(had)).0;
    let room = geometry::sealed_len(layout, PlainLen(end)).0 - from;
    let (Ok(from), Ok(room)) = (off_t::try_from(from), off_t::try_from(room)) else {
        return Err(libc::EFBIG);
    };
    // SAFETY: no pointers involved.
    let failed = unsafe { real::posix_fallocate(fd, from, room) };
    if failed != 0 {
        // As in the kernel, a failed call leaves the file at its old length.
        let _ = open.set_len(fd, had);
        return Err(failed);
    }
    Ok(())
}

macro_rules! size_family {
    ($($seek:ident),*; $($truncate:ident),*; $($ftruncate:ident),*; $($fallocate:ident),*; $($posix:ident),*) => {
        $(
            /// `lseek(2)`: plain positions.
            /// # Safety
            /// As for `lseek(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $seek(fd: c_int, off: off_t, whence: c_int) -> off_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::lseek(fd, off, whence) },
                    Some(file) => {
                        let done = fds::lock(&file).seek(fd, off, whence);
                        real::returned(done.map(|pos| off_t::try_from(pos).unwrap_or(off_t::MAX)))
                    }
                }
            }
        )*
        $(
            /// `truncate(2)`: takes a plain length; the header stays.
            /// # Safety
            /// As for `truncate(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $truncate(path: *const c_char, len: off_t) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { truncate_path(path, len) }
            }
        )*
        $(
            /// `ftruncate(2)`.
            /// # Safety
            /// As for `ftruncate(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $ftruncate(fd: c_int, len: off_t) -> c_int {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::ftruncate(fd, len) },
                    Some(file) => set_len(&file, fd, len),
                }
            }
        )*
        $(
            /// `fallocate(2)`: mode 0 (allocation) only; punching holes and shifting ranges would
            /// leave tags of removed pages.
            /// # Safety
            /// As for `fallocate(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fallocate(fd: c_int, mode: c_int, off: off_t, len: off_t) -> c_int {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::fallocate(fd, mode, off, len) },
                    Some(file) if mode == 0 => real::returned(allocate(&file, fd, off, len).map(|()| 0)),
                    Some(file) => {
                        log::line(format_args!(
                            "ERROR: \"{}\": fallocate mode {mode} does not exist for sealed files",
                            Shown(fds::lock(&file).path())
                        ));
                        fail(libc::EOPNOTSUPP)
                    }
                }
            }
        )*
        $(
            /// `posix_fallocate(3)`: returns the error and leaves `errno` unchanged.
            /// # Safety
            /// As for `posix_fallocate(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $posix(fd: c_int, off: off_t, len: off_t) -> c_int {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::posix_fallocate(fd, off, len) },
                    Some(file) => allocate(&file, fd, off, len).err().unwrap_or(0),
                }
            }
        )*
    };
}

size_family!(lseek, lseek64; truncate, truncate64; ftruncate, ftruncate64; fallocate, fallocate64; posix_fallocate, posix_fallocate64);
