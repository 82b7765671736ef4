//! `read`, `pread`, and their vectored and fortified variants.

use core::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

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
    real::returned(read_parts(file, fd, &mut [buf], off).map(count))
}

fn read_parts(
    file: &SharedFile,
    fd: c_int,
    parts: &mut [&mut [u8]],
    off: Option<off_t>,
) -> Result<usize, Errno> {
    let mut open = fds::lock(file);
    match off {
        None => open.read(fd, parts),
        Some(off) => open.read_at(fd, parts, u64::try_from(off).map_err(|_| libc::EINVAL)?),
    }
}

/// Parts that are read with one call: as many as PostgreSQL reads at once (`PG_IOV_MAX`).
const MOST_PARTS: usize = 128;

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
    let all = unsafe { core::slice::from_raw_parts(iov, n) };
    // As the kernel does, fills the parts before one that is nowhere.
    let is_nowhere = |part: &iovec| part.iov_len > 0 && part.iov_base.is_null();
    let sound = all.iter().position(is_nowhere).unwrap_or(n);
    if sound < n && all[..sound].iter().all(|part| part.iov_len == 0) {
        return fail(libc::EFAULT);
    }
    let mut total: usize = 0;
    for some in all[..sound].chunks(MOST_PARTS) {
        let mut parts: [&mut [u8]; MOST_PARTS] = core::array::from_fn(|_| Default::default());
        let mut wanted = 0;
        for (part, target) in some.iter().filter(|part| part.iov_len > 0).zip(&mut parts) {
            let len = part.iov_len.min(MAX_RW_COUNT - total - wanted);
            // SAFETY: the caller's contract; bytes have no invalid values.
            *target = unsafe { core::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len) };
            wanted += len;
        }
        let at = off.map(|off| off + total as off_t);
        match read_parts(file, fd, &mut parts[..some.len()], at) {
            Ok(got) => {
                total += got;
                if got < wanted {
                    break;
                }
            }
            Err(_) if total > 0 => break,
            Err(errno) => return real::returned(Err(errno)),
        }
    }
    count(total)
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
