//! Whether a file starts like a sealed file. Looks at the first bytes alone and needs no key.

use core::ffi::{CStr, c_int};

use pgseal_core::header;

use crate::os::sys;

/// Whether the file at a path is regular and starts like a sealed file.
pub fn looks_sealed(path: &CStr) -> bool {
    let st = sys::stat(path);
    st.is_some_and(|st| has_bytes(&st)) && sys::open_read(path).is_ok_and(|fd| has_magic(fd.0))
}

/// Whether the file of a readable descriptor is regular and starts like a sealed file.
pub fn is_sealed(fd: c_int) -> bool {
    sys::fstat(fd).is_some_and(|st| has_bytes(&st)) && has_magic(fd)
}

fn has_bytes(st: &libc::stat) -> bool {
    sys::is_regular(st.st_mode) && st.st_size > 0
}

fn has_magic(fd: c_int) -> bool {
    let mut start = [0; header::MAGIC.len()];
    let got = sys::pread_full(fd, &mut start, 0);
    got == Ok(start.len()) && start == header::MAGIC
}

/// Reads the start of a descriptor's file through a descriptor of our own.
#[cold]
#[inline(never)]
fn read_by_link(fd: c_int, start: &mut [u8]) -> Result<usize, c_int> {
    let link = sys::descriptor_link(fd);
    sys::pread_full(sys::open_read(link.as_c()?)?.0, start, 0)
}

/// Whether the file of a descriptor starts like a sealed file. Works for a write-only descriptor as
/// well.
pub fn starts_sealed(fd: c_int) -> bool {
    let mut start = [0; header::MAGIC.len()];
    let got = sys::pread_full(fd, &mut start, 0).or_else(|_| read_by_link(fd, &mut start));
    got == Ok(start.len()) && start == header::MAGIC
}
