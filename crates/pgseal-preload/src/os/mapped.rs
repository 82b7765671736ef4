//! A file in memory, and by what it is known again.

use core::ffi::CStr;

use crate::os::real;
use crate::os::sys;

/// A file, mapped for reading.
pub struct Mapped {
    start: *const u8,
    len: usize,
    /// Device, inode, length and time of the last change.
    pub identity: Identity,
}

/// By what a file is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    dev: u64,
    ino: u64,
    len: i64,
    changed: (i64, i64),
}

impl Identity {
    /// Of what `stat` says.
    pub fn of(st: &libc::stat) -> Identity {
        let changed = (st.st_ctime, st.st_ctime_nsec);
        Identity { dev: st.st_dev, ino: st.st_ino, len: st.st_size, changed }
    }
}

impl Mapped {
    /// Maps a regular file; `None` if that cannot be.
    pub fn new(path: &CStr) -> Option<Mapped> {
        let fd = sys::open_read(path).ok()?;
        let st = sys::fstat(fd.0).filter(|st| sys::is_regular(st.st_mode))?;
        let len = usize::try_from(st.st_size).ok().filter(|len| *len > 64)?;
        // SAFETY: a private map of a file for reading, at an address of the kernel's choice.
        let map = unsafe {
            real::mmap(core::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, fd.0, 0)
        };
        let identity = Identity::of(&st);
        (map != libc::MAP_FAILED).then_some(Mapped { start: map.cast(), len, identity })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the map is valid for `len` bytes as long as this lives. A file that is cut short
        // meanwhile kills the process, as it would when the dynamic linker maps it.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the map made in `new`; nobody uses its bytes any more.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.len) };
    }
}
