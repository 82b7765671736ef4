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

/// Whether the file of a descriptor starts like a sealed file. Works for a write-only descriptor as
/// well.
pub fn starts_sealed(fd: c_int) -> bool {
    let mut start = [0; header::MAGIC.len()];
    let got = sys::pread_full(fd, &mut start, 0).or_else(|_| {
        let path = sys::descriptor_link(fd).into_c()?;
        sys::pread_full(sys::open_read(&path)?.0, &mut start, 0)
    });
    got == Ok(start.len()) && start == header::MAGIC
}
