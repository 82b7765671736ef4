//! Memory maps: the kernel would fill them with sealed bytes, and write plain ones back.

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use crate::fds;
use crate::log::{self, Shown};
use crate::real;

macro_rules! mmap_family {
    ($($name:ident),*) => { $(
        /// `mmap(2)`: refused on sealed files.
        /// # Safety
        /// As for `mmap(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
            if flags & libc::MAP_ANONYMOUS == 0
                && let Some(file) = fds::get(fd)
            {
                log::line(format_args!(
                    "ERROR: \"{}\": a sealed file cannot be mapped into memory",
                    Shown(fds::lock(&file).path())
                ));
                real::set_errno(libc::EACCES);
                return libc::MAP_FAILED;
            }
            // SAFETY: the caller's arguments.
            unsafe { real::mmap(addr, len, prot, flags, fd, off) }
        }
    )* };
}

mmap_family!(mmap, mmap64);
