//! Syncs, and advice about ranges. The descriptor of a sealed file is the file's own, so `fsync`
//! and `fdatasync` sync what was written; a server notes when its WAL was synced
//! (`spec/control.md`).
//!
//! The kernel may write a range of a file before the file's header, and a power cut in between
//! leaves a file with its length and its blocks, and without header. So the header is written and
//! waited for first, once for each open file. If the header is on the disk already, this costs only
//! the system call.

use core::ffi::c_int;

use libc::{off_t, size_t, ssize_t};
use pgseal_core::broken::{self, Order};
use pgseal_core::{PlainOff, geometry};

use crate::file::fds;
use crate::file::wal;
use crate::os::real;

/// Notes a sync of a WAL segment.
#[inline]
fn after_sync(fd: c_int) {
    if !wal::is_followed() {
        return;
    }
    let errno = real::errno();
    if fds::get(fd).is_some_and(|file| fds::lock(&file).is_wal_segment()) {
        wal::synced();
    }
    real::set_errno(errno);
}

/// Whether the descriptor is of a file that stands in for one that was removed. Sets `errno` then.
#[inline]
fn stands_in(fd: c_int) -> bool {
    let stands_in = fds::get(fd).is_some_and(|file| fds::lock(&file).stands_in());
    if stands_in {
        real::set_errno(libc::EIO);
    }
    stands_in
}

/// `fsync(2)`.
/// # Safety
/// As for `fsync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    if stands_in(fd) {
        return -1;
    }
    // SAFETY: no pointers involved.
    let done = unsafe { real::fsync(fd) };
    if done == 0 {
        after_sync(fd);
    }
    done
}

/// `fdatasync(2)`.
/// # Safety
/// As for `fdatasync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    if stands_in(fd) {
        return -1;
    }
    // SAFETY: no pointers involved.
    let done = unsafe { real::fdatasync(fd) };
    if done == 0 {
        after_sync(fd);
    }
    done
}

/// The sealed range for a plain range. `None`: the descriptor is no sealed file; `Some(None)`: the
/// range has no sealed counterpart.
fn sealed_range(fd: c_int, off: off_t, len: u64) -> Option<Option<(off_t, off_t)>> {
    let file = fds::get(fd)?;
    let layout = fds::lock(&file).layout();
    let range = layout.and_then(|layout| {
        let off = PlainOff(u64::try_from(off).ok()?);
        let (start, len) = geometry::sealed_range(layout, off, len);
        Some((off_t::try_from(start.0).ok()?, off_t::try_from(len).ok()?))
    });
    Some(range)
}

/// Writes the header of a sealed file to the disk, before the blocks behind it.
fn flush_header(fd: c_int) {
    let first = fds::get(fd).is_some_and(|file| {
        let mut open = fds::lock(&file);
        open.layout().is_some() && open.header_is_to_be_flushed()
    });
    if !first || broken::is(Order::HeaderBehindRange) {
        return;
    }
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let errno = real::errno();
    // SAFETY: no pointers involved. The result is ignored: the next fsync reports an error of the
    // disk.
    unsafe { real::sync_file_range(fd, 0, geometry::HEADER_LEN as off_t, wait) };
    real::set_errno(errno);
}

macro_rules! advise_family {
    ($($advise:ident),*; $($sync:ident),*; $($ahead:ident),*) => {
        $(
            /// `posix_fadvise(2)`.
            /// # Safety
            /// As for `posix_fadvise(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $advise(fd: c_int, off: off_t, len: off_t, advice: c_int) -> c_int {
                let (off, len) = match sealed_range(fd, off, u64::try_from(len).unwrap_or(0)) {
                    None => (off, len),
                    Some(Some(range)) => range,
                    Some(None) => return 0,
                };
                // For POSIX_FADV_DONTNEED the kernel starts writing dirty pages of the range.
                if advice == libc::POSIX_FADV_DONTNEED {
                    flush_header(fd);
                }
                // SAFETY: no pointers involved.
                unsafe { real::posix_fadvise(fd, off, len, advice) }
            }
        )*
        $(
            /// `sync_file_range(2)`.
            /// # Safety
            /// As for `sync_file_range(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $sync(fd: c_int, off: off_t, len: off_t, flags: libc::c_uint) -> c_int {
                let (off, len) = match sealed_range(fd, off, u64::try_from(len).unwrap_or(0)) {
                    None => (off, len),
                    Some(Some(range)) => range,
                    Some(None) => return 0,
                };
                if flags & libc::SYNC_FILE_RANGE_WRITE != 0 {
                    flush_header(fd);
                }
                // SAFETY: no pointers involved.
                unsafe { real::sync_file_range(fd, off, len, flags) }
            }
        )*
        $(
            /// `readahead(2)`.
            /// # Safety
            /// As for `readahead(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $ahead(fd: c_int, off: off_t, len: size_t) -> ssize_t {
                let (off, len) = match sealed_range(fd, off, len as u64) {
                    None => (off, len),
                    Some(Some((off, len))) => (off, usize::try_from(len).unwrap_or(0)),
                    Some(None) => return 0,
                };
                // SAFETY: no pointers involved.
                unsafe { real::readahead(fd, off, len) }
            }
        )*
    };
}

advise_family!(posix_fadvise, posix_fadvise64; sync_file_range; readahead);
