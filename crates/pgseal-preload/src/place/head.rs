//! Whether a file starts like a sealed one: the first bytes alone, before any key is asked for.

use core::ffi::{CStr, c_int};

use pgseal_core::header;

use crate::os::sys;

/// Whether a regular file starts like a sealed one.
pub fn looks_sealed(path: &CStr) -> bool {
    let regular = sys::stat(path).is_some_and(|st| sys::is_regular(st.st_mode) && st.st_size > 0);
    if !regular {
        return false;
    }
    let mut start = [0; header::MAGIC.len()];
    sys::open_read(path)
        .and_then(|fd| sys::pread_full(fd.0, &mut start, 0))
        .is_ok_and(|got| got == start.len() && start == header::MAGIC)
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
