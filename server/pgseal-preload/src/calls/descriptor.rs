//! `close`, `dup` and their relatives: the life of descriptors.

use core::ffi::{c_int, c_void};

use crate::calls::children;
use crate::file::fds;
use crate::os::log;
use crate::os::real::{self, fail};

/// `close(2)`.
/// # Safety
/// As for `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    fds::remove(fd);
    // SAFETY: the caller's descriptor.
    unsafe { real::close(fd) }
}

/// `closefrom(3)`.
/// # Safety
/// As for `closefrom(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's descriptors.
    unsafe { close_range(first.max(0).cast_unsigned(), u32::MAX, 0) };
}

/// `close_range(2)`.
/// # Safety
/// As for `close_range(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    const UNSHARE: c_int = 2;
    let clamp = |fd: u32| c_int::try_from(fd).unwrap_or(c_int::MAX);
    if flags & UNSHARE != 0
        && let Err(errno) = children::check_unshare(libc::CLONE_FILES)
    {
        return fail(errno);
    }
    // CLOSE_RANGE_CLOEXEC (4) closes nothing yet.
    if flags & 4 == 0 {
        fds::remove_range(clamp(first), clamp(last));
        fds::doubt_all();
    }
    let numbers = [first.into(), last.into(), flags.into(), 0, 0, 0];
    // SAFETY: no pointers involved. The system call itself: glibc's wrapper may be missing.
    let done = unsafe { real::syscall(libc::SYS_close_range, numbers) };
    c_int::try_from(done).unwrap_or(-1)
}

/// Enters the duplicate of a descriptor: the new number gets the sealed file of the old one, or
/// loses its entry.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new < 0 || new == old {
        return new;
    }
    match fds::get(old) {
        None => fds::set_plain(new),
        Some(file) => {
            if fds::insert(new, file).is_err() {
                // SAFETY: the descriptor was just made by this call.
                unsafe { real::close(new) };
                return fail(libc::EMFILE);
            }
        }
    }
    new
}

/// Like [`duplicated`], for a number that the caller chose. The caller may be a child that shares
/// this memory and is about to execute another program.
fn moved(old: c_int, new: c_int) -> c_int {
    let new = duplicated(old, new);
    fds::doubt_all();
    new
}

/// `dup(2)`.
/// # Safety
/// As for `dup(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers involved.
    let new = unsafe { real::dup(fd) };
    duplicated(fd, new)
}

/// `dup2(2)`.
/// # Safety
/// As for `dup2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: no pointers involved.
    let made = unsafe { real::dup2(old, new) };
    moved(old, made)
}

/// `dup3(2)`.
/// # Safety
/// As for `dup3(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: no pointers involved.
    let made = unsafe { real::dup3(old, new, flags) };
    moved(old, made)
}

/// `F_GETFL` and `F_SETFL` of a sealed file work on the flags with which the program opened the
/// file. The kernel must not get `O_APPEND`, with which it ignores the offset of `pwrite(2)`, nor
/// `O_DIRECT`.
fn flags_of_sealed(file: &fds::SharedFile, fd: c_int, cmd: c_int, flags: c_int) -> c_int {
    let mut open = fds::lock(file);
    if cmd == libc::F_SETFL {
        let inner = flags & !(libc::O_APPEND | libc::O_DIRECT);
        // SAFETY: no pointers involved.
        let done = unsafe { real::fcntl(fd, cmd, inner as usize as *mut c_void) };
        if done >= 0 {
            open.set_append(flags & libc::O_APPEND != 0);
        }
        return done;
    }
    // SAFETY: no pointers involved.
    let inner = unsafe { real::fcntl(fd, cmd, core::ptr::null_mut()) };
    if inner < 0 { inner } else { inner & !libc::O_ACCMODE | open.flags() }
}

macro_rules! fcntl_family {
    ($($name:ident),*) => { $(
        /// `fcntl(2)`: a duplicate that `F_DUPFD` makes of a sealed file is a sealed file, too.
        /// # Safety
        /// As for `fcntl(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, cmd: c_int, arg: *mut c_void) -> c_int {
            if (cmd == libc::F_GETFL || cmd == libc::F_SETFL)
                && let Some(file) = fds::get(fd)
            {
                return flags_of_sealed(&file, fd, cmd, arg as usize as c_int);
            }
            // SAFETY: the caller's arguments.
            let done = unsafe { real::fcntl(fd, cmd, arg) };
            if cmd == libc::F_DUPFD || cmd == libc::F_DUPFD_CLOEXEC {
                return duplicated(fd, done);
            }
            done
        }
    )* };
}

fcntl_family!(fcntl, fcntl64);

/// `ioctl(2)`: cloning a range into or out of a sealed file would put blocks of two files under one
/// header.
/// # Safety
/// As for `ioctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, arg: *mut c_void) -> c_int {
    const FICLONE: libc::c_ulong = 0x4004_9409;
    const FICLONERANGE: libc::c_ulong = 0x4020_940D;
    if request == FICLONE
        && let Some(file) = fds::get(fd)
    {
        // A clone of a whole sealed file has the same header, like a hard link. It is allowed into
        // a file without a header, which reads the new header on its next call. Any other clone
        // would bring plain blocks, or blocks of a header other than the one in memory.
        let has_header = fds::lock(&file).layout().is_some();
        if has_header || !fds::is_sealed(arg as usize as c_int) {
            log::line(format_args!(
                "ERROR: only a whole sealed file can be cloned, and into a new one; copy it instead"
            ));
            return fail(libc::EOPNOTSUPP);
        }
    }
    let from_sealed = || {
        // SAFETY: the argument of FICLONERANGE is a structure whose first member is the source.
        let source = unsafe { arg.cast::<i64>().as_ref() };
        source.and_then(|fd| c_int::try_from(*fd).ok()).is_some_and(fds::is_sealed)
    };
    if request == FICLONERANGE && (fds::is_sealed(fd) || from_sealed()) {
        log::line(format_args!("ERROR: part of a sealed file cannot be cloned; copy it instead"));
        return fail(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::ioctl(fd, request, arg) }
}
