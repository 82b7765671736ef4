//! Whether a file starts like a sealed one: the first bytes alone, before any key is asked for.

use core::ffi::{CStr, c_int};

use pgseal_core::header;

use crate::os::sys;

/// Whether a regular file starts like a sealed one.
pub fn looks_sealed(path: &CStr) -> bool {
    let st = sys::stat(path);
    st.is_some_and(|st| has_bytes(&st)) && sys::open_read(path).is_ok_and(|fd| has_magic(fd.0))
}

/// Whether the file of a descriptor that can be read is a regular one and starts like a sealed one.
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

/// Whether the file starts like a sealed one, also if the descriptor is for writing only.
pub fn starts_sealed(fd: c_int) -> bool {
    let mut start = [0; header::MAGIC.len()];
    let got = sys::pread_full(fd, &mut start, 0).or_else(|_| {
        let path = sys::descriptor_link(fd).into_c()?;
        sys::pread_full(sys::open_read(&path)?.0, &mut start, 0)
    });
    got == Ok(start.len()) && start == header::MAGIC
}
