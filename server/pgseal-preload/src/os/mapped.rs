//! A mapped file, and the identity by which the same file is recognized again.

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

/// The identity by which a file is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    dev: u64,
    ino: u64,
    len: i64,
    changed: (i64, i64),
}

impl Identity {
    /// The identity from the result of `stat`.
    pub fn of(st: &libc::stat) -> Identity {
        let changed = (st.st_ctime, st.st_ctime_nsec);
        Identity { dev: st.st_dev, ino: st.st_ino, len: st.st_size, changed }
    }
}

impl Mapped {
    /// Maps a regular file; `None` if the file cannot be mapped.
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

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the map is valid for `len` bytes while this value lives. If the file is truncated
        // meanwhile, access kills the process, as it would after the dynamic linker mapped the
        // file.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the map made in `new`; its bytes are not used after this.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.len) };
    }
}
