//! The lock of a file under which its header is written.

use core::ffi::c_int;

use crate::os::real::{self, Errno};

/// Keeps other processes out of a file while this value lives.
///
/// A record lock of `fcntl(2)` belongs to the process: unlike `flock(2)` it also excludes a parent
/// or child that shares the descriptor. The locked byte lies behind every possible byte of a file,
/// so that the lock does not conflict with locks that the program takes. Threads of one process are
/// excluded by the mutex of the buffers.
pub struct RangeLock(c_int);

impl RangeLock {
    /// Waits for the lock, which nobody else has then: to write a header, or blocks that others may
    /// write as well. The descriptor must be open for writing.
    pub fn exclusive(fd: c_int) -> Result<RangeLock, Errno> {
        RangeLock::take(fd, libc::F_WRLCK)
    }

    /// Waits until nobody writes a header. The descriptor must be open for reading.
    pub fn shared(fd: c_int) -> Result<RangeLock, Errno> {
        RangeLock::take(fd, libc::F_RDLCK)
    }

    fn take(fd: c_int, kind: c_int) -> Result<RangeLock, Errno> {
        loop {
            if Self::set(fd, kind) >= 0 {
                return Ok(RangeLock(fd));
            }
            match real::errno() {
                libc::EINTR => {}
                errno => return Err(errno),
            }
        }
    }

    fn set(fd: c_int, kind: c_int) -> c_int {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = i64::MAX - 1;
        lock.l_len = 1;
        // SAFETY: `lock` is valid for the call.
        unsafe { real::fcntl(fd, libc::F_SETLKW, (&raw mut lock).cast()) }
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        Self::set(self.0, libc::F_UNLCK);
    }
}
