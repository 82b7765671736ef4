//! The `stat` family: plain sizes.

use core::ffi::{CStr, c_char, c_int};

use pgseal_core::header::{self, Kind};
use pgseal_core::{SealedLen, geometry};

use crate::calls::open;
use crate::file::config;
use crate::file::damage;
use crate::file::fds;
use crate::file::lengths;
use crate::os::real;
use crate::os::sys;
use crate::place::program;

/// The plain size of the file of this descriptor.
fn size_of_descriptor(fd: c_int) -> Option<Result<i64, c_int>> {
    let file = fds::get(fd)?;
    let len = fds::lock(&file).len(fd);
    Some(len.map(|len| i64::try_from(len).unwrap_or(i64::MAX)))
}

/// The plain size of the regular file at a path, if the file is sealed. `stat` has just found the
/// file; if it can no longer be opened, its size stays as `stat` reported it.
fn size_of_path(path: &CStr, sealed_size: i64, follow: bool) -> Option<i64> {
    let sealed_len = SealedLen(u64::try_from(sealed_size).ok().filter(|size| *size > 0)?);
    let no_follow = if follow { 0 } else { libc::O_NOFOLLOW };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | no_follow;
    let fd = sys::open(path, flags, 0).ok()?;
    let mut magic = [0; header::MAGIC.len()];
    let got = sys::pread_full(fd.0, &mut magic, 0).ok()?;
    if got < magic.len() || (magic != header::MAGIC && magic != [0; 8]) {
        return damage::size_at(path.to_bytes(), sealed_len, false);
    }
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd.0, &mut start, 0).ok()?;
    match header::classify(&start[..got]) {
        Ok(Kind::Sealed(header)) => {
            i64::try_from(geometry::plain_len(header.layout, sealed_len).0).ok()
        }
        // A header that a crash cut short. Zeros without the magic may belong to a file that is not
        // sealed.
        Ok(Kind::NoHeader) if magic == header::MAGIC => Some(0),
        head => {
            let is_lost = matches!(head, Ok(Kind::NoHeader));
            damage::size_at(path.to_bytes(), sealed_len, is_lost)
        }
    }
}

/// The plain size of the file at a path, asked for anew.
fn size_now(path: &CStr, follow: bool) -> Result<u64, ()> {
    let found = if follow { sys::stat(path) } else { sys::lstat(path) }.ok_or(())?;
    let size = size_of_path(path, found.st_size, follow).unwrap_or(found.st_size);
    u64::try_from(size).map_err(|_| ())
}

/// Replaces the size from the kernel by the plain size, if the file is sealed.
///
/// # Safety
/// `st` was filled by a successful `stat`.
pub unsafe fn correct_path(path: &CStr, st: *mut libc::stat, follow: bool) {
    // SAFETY: the caller's contract.
    let Some(st) = (unsafe { st.as_mut() }) else { return };
    if !program::active() || !sys::is_regular(st.st_mode) {
        return;
    }
    let errno = real::errno();
    if let Some(size) = size_of_path(path, st.st_size, follow) {
        st.st_size = size;
    }
    // Of a file that somebody cut while the server runs: what it must have.
    if let Some(size) = lengths::size_at(path.to_bytes(), || size_now(path, follow))
        && let Ok(size) = i64::try_from(size)
    {
        st.st_size = size;
    }
    real::set_errno(errno);
}

/// # Safety
/// As for `fstatat(2)`.
unsafe fn stat_at(dir: c_int, path: *const c_char, st: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(path) };
    if name.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        // SAFETY: the caller's arguments.
        return unsafe { stat_descriptor(dir, st) };
    }
    // SAFETY: the caller's arguments.
    let done = unsafe { real::fstatat(dir, path, st, flags) };
    config::looked_at(name.to_bytes(), done == 0);
    if done != 0 && real::errno() == libc::ENOENT && program::active() {
        let full = open::path_at(dir, name);
        let is_lost = lengths::is_lost_segment(full.as_deref().unwrap_or(name).to_bytes());
        real::set_errno(if is_lost { libc::EIO } else { libc::ENOENT });
    }
    if done == 0 && program::active() {
        let full = open::path_at(dir, name);
        let name = full.as_deref().unwrap_or(name);
        // SAFETY: the call succeeded.
        unsafe { correct_path(name, st, flags & libc::AT_SYMLINK_NOFOLLOW == 0) };
    }
    done
}

/// # Safety
/// As for `fstat(2)`.
unsafe fn stat_descriptor(fd: c_int, st: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { real::fstat(fd, st) };
    if done == 0
        && let Some(size) = size_of_descriptor(fd)
    {
        // SAFETY: the call succeeded, so `st` is valid.
        let Some(st) = (unsafe { st.as_mut() }) else { return done };
        match size {
            Ok(size) => st.st_size = size,
            Err(errno) => return real::fail(errno),
        }
    }
    done
}

macro_rules! stat_family {
    ($($stat:ident),*; $($lstat:ident),*; $($fstat:ident),*; $($fstatat:ident),*) => {
        $(
            /// `stat(2)`.
            /// # Safety
            /// As for `stat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $stat(path: *const c_char, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(libc::AT_FDCWD, path, st, 0) }
            }
        )*
        $(
            /// `lstat(2)`.
            /// # Safety
            /// As for `lstat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $lstat(path: *const c_char, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(libc::AT_FDCWD, path, st, libc::AT_SYMLINK_NOFOLLOW) }
            }
        )*
        $(
            /// `fstat(2)`.
            /// # Safety
            /// As for `fstat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fstat(fd: c_int, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_descriptor(fd, st) }
            }
        )*
        $(
            /// `fstatat(2)`.
            /// # Safety
            /// As for `fstatat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fstatat(dir: c_int, path: *const c_char, st: *mut libc::stat, flags: c_int) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(dir, path, st, flags) }
            }
        )*
    };
}

stat_family!(stat, stat64; lstat, lstat64; fstat, fstat64; fstatat, fstatat64);

macro_rules! old_stat_family {
    ($($stat:ident),*; $($lstat:ident),*; $($fstat:ident),*; $($fstatat:ident),*) => {
        $(
            /// `stat` of programs built against glibc before 2.33.
            /// # Safety
            /// As for `stat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $stat(_version: c_int, path: *const c_char, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(libc::AT_FDCWD, path, st, 0) }
            }
        )*
        $(
            /// `lstat` of programs built against glibc before 2.33.
            /// # Safety
            /// As for `lstat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $lstat(_version: c_int, path: *const c_char, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(libc::AT_FDCWD, path, st, libc::AT_SYMLINK_NOFOLLOW) }
            }
        )*
        $(
            /// `fstat` of programs built against glibc before 2.33.
            /// # Safety
            /// As for `fstat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fstat(_version: c_int, fd: c_int, st: *mut libc::stat) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_descriptor(fd, st) }
            }
        )*
        $(
            /// `fstatat` of programs built against glibc before 2.33.
            /// # Safety
            /// As for `fstatat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fstatat(_version: c_int, dir: c_int, path: *const c_char, st: *mut libc::stat, flags: c_int) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { stat_at(dir, path, st, flags) }
            }
        )*
    };
}

old_stat_family!(__xstat, __xstat64; __lxstat, __lxstat64; __fxstat, __fxstat64; __fxstatat, __fxstatat64);

/// `statx(2)`.
/// # Safety
/// As for `statx(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: libc::c_uint,
    st: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { real::statx_call(dir, path, flags, mask, st) };
    if done != 0 || !program::active() {
        return done;
    }
    // SAFETY: the call succeeded, so `st` is valid.
    let Some(st) = (unsafe { st.as_mut() }) else { return done };
    // SAFETY: the caller passes a C string, or null for the descriptor itself.
    let name = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
    let size = if name.is_empty() {
        match size_of_descriptor(dir) {
            Some(Err(errno)) => return real::fail(errno),
            size => size.and_then(Result::ok),
        }
    } else if sys::is_regular(st.stx_mode.into()) {
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let full = open::path_at(dir, name);
        let name = full.as_deref().unwrap_or(name);
        i64::try_from(st.stx_size).ok().and_then(|size| size_of_path(name, size, follow))
    } else {
        None
    };
    if let Some(size) = size.and_then(|size| u64::try_from(size).ok()) {
        st.stx_size = size;
    }
    done
}
