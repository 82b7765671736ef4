//! Copies inside the kernel would put sealed blocks of one file under the header of another, under
//! which they do not authenticate. Such copies are refused, or done by reading and writing.

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{off_t, size_t, ssize_t};
use pgseal_core::Buffer;

use crate::calls::{MAX_RW_COUNT, count, read, size, write};
use crate::file::fds;
use crate::os::log;
use crate::os::real::{self, fail};

fn refused(first: c_int, second: c_int, what: &str) -> bool {
    let sealed = fds::is_sealed(first) || fds::is_sealed(second);
    if sealed {
        log::line(format_args!(
            "ERROR: {what} does not work on sealed files; copy them by reading and writing"
        ));
    }
    sealed
}

/// `sendfile` from or into a sealed file, by reading and writing. Position and offset follow
/// sendfile(2).
///
/// # Safety
/// As for `sendfile(2)`.
unsafe fn send_through(out: c_int, input: c_int, off: *mut off_t, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract.
    let Some(mut from) = (unsafe { Side::new(input, off) }) else {
        // A pipe or a socket cannot be the source of `sendfile`.
        return if real::errno() == libc::ESPIPE { fail(libc::EINVAL) } else { -1 };
    };
    let len = len.min(MAX_RW_COUNT);
    // The buffer is taken out and its lock released: a signal handler or another thread that comes
    // in between uses a new one.
    let mut buffer = core::mem::take(&mut *chunk_buffer());
    let mut spare = [0; SPARE];
    let room = chunk(&mut buffer, &mut spare, len);
    let mut done: size_t = 0;
    let mut last: ssize_t = 0;
    while done < len {
        let wanted = (len - done).min(room.len());
        // SAFETY: the buffer has that much room.
        let got = unsafe { read::pread(input, room.as_mut_ptr().cast(), wanted, from.at) };
        if got <= 0 {
            last = got;
            break;
        }
        // SAFETY: `got` bytes were read into the buffer.
        last = unsafe { write::write(out, room.as_ptr().cast(), got.cast_unsigned()) };
        if last > 0 {
            done += last.cast_unsigned();
            // SAFETY: the caller's contract.
            unsafe { from.advance(last) };
            from.at += last as off_t;
        }
        if last < got {
            break;
        }
    }
    let errno = real::errno();
    *chunk_buffer() = buffer;
    real::set_errno(errno);
    if done > 0 { count(done) } else { last }
}

macro_rules! sendfile_family {
    ($($name:ident),*) => { $(
        /// `sendfile(2)`.
        /// # Safety
        /// As for `sendfile(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: c_int, input: c_int, off: *mut off_t, len: size_t) -> ssize_t {
            if fds::is_sealed(input) || fds::is_sealed(out) {
                // SAFETY: the caller's arguments.
                return unsafe { send_through(out, input, off, len) };
            }
            // SAFETY: the caller's arguments.
            unsafe { real::sendfile(out, input, off, len) }
        }
    )* };
}

sendfile_family!(sendfile, sendfile64);

/// The most bytes that one call of `copy_file_range` copies here; callers call again for the rest.
const CHUNK: usize = 1 << 20;
/// The same for the buffer on the stack, which is used if memory runs out.
const SPARE: usize = 8192;

/// The buffer for these copies, used by one copy at a time.
fn chunk_buffer() -> MutexGuard<'static, Buffer> {
    static BUFFER: Mutex<Buffer> = Mutex::new(Buffer::new());
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a buffer of up to [`CHUNK`] bytes, or `spare` if memory runs out.
fn chunk<'a>(buffer: &'a mut Buffer, spare: &'a mut [u8; SPARE], len: usize) -> &'a mut [u8] {
    buffer.room(len.min(CHUNK)).unwrap_or(&mut spare[..len.min(SPARE)])
}

/// One side of a copy: its current offset, and the caller's pointer for the new offset, if any.
struct Side {
    fd: c_int,
    at: off_t,
    given: *mut off_t,
}

impl Side {
    /// # Safety
    /// `given` is null or valid.
    unsafe fn new(fd: c_int, given: *mut off_t) -> Option<Side> {
        // SAFETY: the caller's contract.
        let at = match unsafe { given.as_ref() } {
            Some(off) => *off,
            // SAFETY: no pointers involved.
            None => unsafe { size::lseek(fd, 0, libc::SEEK_CUR) },
        };
        (at >= 0).then_some(Side { fd, at, given })
    }

    /// # Safety
    /// As for `new`.
    unsafe fn advance(&self, by: ssize_t) {
        let at = self.at + by as off_t;
        // SAFETY: the caller's contract.
        match unsafe { self.given.as_mut() } {
            Some(off) => *off = at,
            None => {
                // SAFETY: no pointers involved. The position could be read, so it can be set.
                unsafe { size::lseek(self.fd, at, libc::SEEK_SET) };
            }
        }
    }
}

/// Copies by reading and writing: plain content is read, and sealed under the header of the target
/// file.
///
/// # Safety
/// As for `copy_file_range(2)`.
unsafe fn copy_through(
    input: c_int,
    off_in: *mut off_t,
    out: c_int,
    off_out: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's contract.
    let Some(from) = (unsafe { Side::new(input, off_in) }) else { return -1 };
    // SAFETY: the caller's contract.
    let Some(to) = (unsafe { Side::new(out, off_out) }) else { return -1 };
    // The buffer is taken out and its lock released: a signal handler or another thread that comes
    // in between uses a new one.
    let mut buffer = core::mem::take(&mut *chunk_buffer());
    let mut spare = [0; SPARE];
    let room = chunk(&mut buffer, &mut spare, len);
    // SAFETY: the buffer has that much room.
    let got = unsafe { read::pread(from.fd, room.as_mut_ptr().cast(), room.len(), from.at) };
    let done = match usize::try_from(got) {
        // SAFETY: `got` bytes were read into the buffer.
        Ok(1..) => unsafe { write::pwrite(to.fd, room.as_ptr().cast(), got as size_t, to.at) },
        _ => got,
    };
    if done > 0 {
        // SAFETY: the caller's contract.
        unsafe { from.advance(done) };
        // SAFETY: as above.
        unsafe { to.advance(done) };
    }
    let errno = real::errno();
    *chunk_buffer() = buffer;
    real::set_errno(errno);
    done
}

/// `copy_file_range(2)`: from or into a sealed file this copies by reading and writing, since its
/// callers in PostgreSQL (`pg_upgrade`, `pg_combinebackup`, `file_copy_method`) have no fallback.
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
    if fds::is_sealed(input) || fds::is_sealed(out) {
        if flags != 0 {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's arguments.
        return unsafe { copy_through(input, off_in, out, off_out, len) };
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
