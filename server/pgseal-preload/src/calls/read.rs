//! `read`, `pread`, and their vectored and fortified variants.

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{iovec, off_t, size_t, ssize_t};
use pgseal_core::Buffer;

use crate::calls::{MAX_RW_COUNT, count};
use crate::file::fds::{self, SharedFile};
use crate::os::real::{self, Errno, fail};

/// # Safety
/// `buf` is valid for writes of `len` bytes.
unsafe fn read_sealed(
    file: &SharedFile,
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    off: Option<off_t>,
) -> ssize_t {
    if len == 0 {
        return 0;
    }
    if buf.is_null() {
        return fail(libc::EFAULT);
    }
    let len = len.min(MAX_RW_COUNT);
    // SAFETY: the caller's contract; bytes have no invalid values.
    let buf = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
    real::returned(read_slice(file, fd, buf, off).map(count))
}

fn read_slice(
    file: &SharedFile,
    fd: c_int,
    buf: &mut [u8],
    off: Option<off_t>,
) -> Result<usize, Errno> {
    let mut open = fds::lock(file);
    match off {
        None => open.read(fd, buf),
        Some(off) => open.read_at(fd, buf, u64::try_from(off).map_err(|_| libc::EINVAL)?),
    }
}

/// # Safety
/// `iov` describes `n` buffers that are valid for writes.
unsafe fn readv_sealed(
    file: &SharedFile,
    fd: c_int,
    iov: *const iovec,
    n: c_int,
    off: Option<off_t>,
) -> ssize_t {
    let Ok(n) = usize::try_from(n) else { return fail(libc::EINVAL) };
    if n == 0 {
        return 0;
    }
    // SAFETY: the caller's contract.
    let parts = unsafe { core::slice::from_raw_parts(iov, n) };
    let wanted = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    let sound = parts.iter().all(|part| part.iov_len == 0 || !part.iov_base.is_null());
    if sound
        && parts.len() > 1
        && let Some(wanted) = wanted.filter(|wanted| (1..=GATHER).contains(wanted))
    {
        // The buffer is taken out and its lock released: a signal handler or another thread that
        // comes in between uses a new one.
        let mut whole = core::mem::take(&mut *gather_buffer());
        // If memory runs out, each part is read on its own.
        let got = whole.room(wanted).ok().map(|room| read_slice(file, fd, room, off));
        if let Some(Ok(got)) = got {
            // SAFETY: the caller's contract.
            unsafe { scatter(whole.bytes(got), parts) };
        }
        *gather_buffer() = whole;
        if let Some(got) = got {
            return real::returned(got.map(count));
        }
    }
    let mut total: ssize_t = 0;
    for part in parts {
        let at = off.map(|off| off + total as off_t);
        // SAFETY: each part describes a valid buffer.
        let got = unsafe { read_sealed(file, fd, part.iov_base, part.iov_len, at) };
        if got < 0 {
            return if total > 0 { total } else { got };
        }
        total += got;
        if count(part.iov_len) > got {
            break;
        }
    }
    total
}

/// Reads into several buffers of up to this many bytes go through one buffer of ours: that takes
/// one call for the blocks and one for their tags, instead of two for each buffer.
const GATHER: usize = 1 << 20;

/// The buffer for reads into several parts, used by one read at a time.
fn gather_buffer() -> MutexGuard<'static, Buffer> {
    static BUFFER: Mutex<Buffer> = Mutex::new(Buffer::new());
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// Each part describes a buffer that is valid for writes.
unsafe fn scatter(mut bytes: &[u8], parts: &[iovec]) {
    for part in parts {
        let (head, rest) = bytes.split_at(part.iov_len.min(bytes.len()));
        if !head.is_empty() {
            // SAFETY: the part is valid for its length, of which `head` is no more, and is the
            // caller's: it cannot overlap our buffer.
            unsafe {
                core::ptr::copy_nonoverlapping(head.as_ptr(), part.iov_base.cast(), head.len())
            };
        }
        bytes = rest;
    }
}

/// `read(2)`.
/// # Safety
/// As for `read(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    match fds::get(fd) {
        // SAFETY: the caller's arguments.
        None => unsafe { real::read(fd, buf, len) },
        // SAFETY: the caller's buffer.
        Some(file) => unsafe { read_sealed(&file, fd, buf, len, None) },
    }
}

/// The fortified `read`: aborts as the C library does if the buffer is too small.
/// # Safety
/// As for `read(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check_room(len, room);
    // SAFETY: the caller's arguments.
    unsafe { read(fd, buf, len) }
}

fn check_room(len: size_t, room: size_t) {
    if len > room {
        crate::os::log::line(format_args!("FATAL: buffer overflow in a fortified read"));
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

/// `readv(2)`.
/// # Safety
/// As for `readv(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t {
    match fds::get(fd) {
        // SAFETY: the caller's arguments.
        None => unsafe { real::readv(fd, iov, n) },
        // SAFETY: the caller's buffers.
        Some(file) => unsafe { readv_sealed(&file, fd, iov, n, None) },
    }
}

macro_rules! pread_family {
    ($($name:ident),*; $($checked:ident),*; $($vectored:ident),*; $($flagged:ident),*) => {
        $(
            /// `pread(2)`.
            /// # Safety
            /// As for `pread(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, buf: *mut c_void, len: size_t, off: off_t) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::pread(fd, buf, len, off) },
                    // SAFETY: the caller's buffer.
                    Some(file) => unsafe { read_sealed(&file, fd, buf, len, Some(off)) },
                }
            }
        )*
        $(
            /// The fortified `pread`.
            /// # Safety
            /// As for `pread(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked(fd: c_int, buf: *mut c_void, len: size_t, off: off_t, room: size_t) -> ssize_t {
                check_room(len, room);
                // SAFETY: the caller's arguments.
                unsafe { pread(fd, buf, len, off) }
            }
        )*
        $(
            /// `preadv(2)`.
            /// # Safety
            /// As for `preadv(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $vectored(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::preadv(fd, iov, n, off) },
                    // SAFETY: the caller's buffers.
                    Some(file) => unsafe { readv_sealed(&file, fd, iov, n, Some(off)) },
                }
            }
        )*
        $(
            /// `preadv2(2)`.
            /// # Safety
            /// As for `preadv2(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $flagged(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::preadv2(fd, iov, n, off, flags) },
                    // The flags of `preadv2` and `pwritev2` are not supported for sealed files; the
                    // error tells the program.
                    Some(_) if flags != 0 => fail(libc::EOPNOTSUPP),
                    Some(file) => {
                        let off = (off != -1).then_some(off);
                        // SAFETY: the caller's buffers.
                        unsafe { readv_sealed(&file, fd, iov, n, off) }
                    }
                }
            }
        )*
    };
}

pread_family!(pread, pread64; __pread_chk, __pread64_chk; preadv, preadv64; preadv2, preadv64v2);
