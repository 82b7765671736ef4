//! `write`, `pwrite` and their vectored variants.

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::calls::{MAX_RW_COUNT, count};
use crate::file::fds::{self, SharedFile};
use crate::file::manifest::{self, ControlFile};
use crate::os::real::{self, Errno, fail};

/// Writes of several buffers are gathered up to this many bytes, so that whole blocks are sealed.
const GATHER: usize = 1 << 20;

/// # Safety
/// `buf` is valid for reads of `len` bytes.
unsafe fn write_sealed(
    file: &SharedFile,
    fd: c_int,
    buf: *const c_void,
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
    // SAFETY: the caller's contract.
    let buf = unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), len) };
    real::returned(write_slice(file, fd, buf, off).map(count))
}

fn write_slice(
    file: &SharedFile,
    fd: c_int,
    buf: &[u8],
    off: Option<off_t>,
) -> Result<usize, Errno> {
    let mut open = fds::lock(file);
    match off {
        None => open.write(fd, buf),
        Some(off) => open.write_at(fd, buf, u64::try_from(off).map_err(|_| libc::EINVAL)?),
    }
}

/// # Safety
/// `iov` describes `n` buffers that are valid for reads.
unsafe fn writev_sealed(
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
    if let [part] = parts {
        // SAFETY: the part describes a valid buffer.
        return unsafe { write_sealed(file, fd, part.iov_base, part.iov_len, off) };
    }
    // The buffer is taken out and its lock released: a signal handler or another thread that comes
    // in between uses a new one.
    let mut gathered = core::mem::take(&mut *gather_buffer());
    // SAFETY: the caller's contract.
    let total = unsafe { write_gathered(file, fd, parts, off, &mut gathered) };
    gathered.clear();
    *gather_buffer() = gathered;
    total
}

/// The buffer for writes of several parts, used by one write at a time.
fn gather_buffer() -> MutexGuard<'static, Vec<u8>> {
    static BUFFER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// Each part describes a buffer that is valid for reads.
unsafe fn write_gathered(
    file: &SharedFile,
    fd: c_int,
    parts: &[iovec],
    off: Option<off_t>,
    gathered: &mut Vec<u8>,
) -> ssize_t {
    let mut total: ssize_t = 0;
    for (index, part) in parts.iter().enumerate() {
        let mut bytes = &[][..];
        if part.iov_len > 0 {
            // SAFETY: the part describes a valid buffer.
            bytes =
                unsafe { core::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        }
        // If memory runs out, the gathered bytes are written first, and then this part on its own.
        let taken = gathered.try_reserve(bytes.len()).is_ok();
        if taken {
            gathered.extend_from_slice(bytes);
            if gathered.len() < GATHER && index + 1 < parts.len() {
                continue;
            }
        }
        let rest = if taken { &[] } else { bytes };
        for (bytes, nothing_is_written_too) in [(&gathered[..], taken), (rest, !taken)] {
            if bytes.is_empty() && !nothing_is_written_too {
                continue;
            }
            let at = off.map(|off| off + total as off_t);
            match write_slice(file, fd, bytes, at) {
                Ok(put) => total += count(put),
                Err(_) if total > 0 => return total,
                Err(errno) => return fail(errno),
            }
        }
        gathered.clear();
    }
    total
}

/// `write(2)`.
/// # Safety
/// As for `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    match fds::get(fd) {
        None => {
            if let Some(control) = ControlFile::behind(fd)
                && !buf.is_null()
            {
                // SAFETY: the caller's buffer.
                let new = unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), len) };
                if let Err(errno) = manifest::before_control(control, new) {
                    return fail(errno);
                }
            }
            // SAFETY: the caller's arguments.
            unsafe { real::write(fd, buf, len) }
        }
        // SAFETY: the caller's buffer.
        Some(file) => unsafe { write_sealed(&file, fd, buf, len, None) },
    }
}

/// `writev(2)`.
/// # Safety
/// As for `writev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t {
    match fds::get(fd) {
        // SAFETY: the caller's arguments.
        None => unsafe { real::writev(fd, iov, n) },
        // SAFETY: the caller's buffers.
        Some(file) => unsafe { writev_sealed(&file, fd, iov, n, None) },
    }
}

macro_rules! pwrite_family {
    ($($name:ident),*; $($vectored:ident),*; $($flagged:ident),*) => {
        $(
            /// `pwrite(2)`.
            /// # Safety
            /// As for `pwrite(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, buf: *const c_void, len: size_t, off: off_t) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::pwrite(fd, buf, len, off) },
                    // SAFETY: the caller's buffer.
                    Some(file) => unsafe { write_sealed(&file, fd, buf, len, Some(off)) },
                }
            }
        )*
        $(
            /// `pwritev(2)`.
            /// # Safety
            /// As for `pwritev(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $vectored(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::pwritev(fd, iov, n, off) },
                    // SAFETY: the caller's buffers.
                    Some(file) => unsafe { writev_sealed(&file, fd, iov, n, Some(off)) },
                }
            }
        )*
        $(
            /// `pwritev2(2)`.
            /// # Safety
            /// As for `pwritev2(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $flagged(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> ssize_t {
                match fds::get(fd) {
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::pwritev2(fd, iov, n, off, flags) },
                    // The flags of `preadv2` and `pwritev2` are not supported for sealed files; the
                    // error tells the program.
                    Some(_) if flags != 0 => fail(libc::EOPNOTSUPP),
                    Some(file) => {
                        let off = (off != -1).then_some(off);
                        // SAFETY: the caller's buffers.
                        unsafe { writev_sealed(&file, fd, iov, n, off) }
                    }
                }
            }
        )*
    };
}

pwrite_family!(pwrite, pwrite64; pwritev, pwritev64; pwritev2, pwritev64v2);
