//! Rings of requests (`io_uring`): the kernel executes the requests without any hook, so a process
//! that works with a sealed data directory gets no ring. liburing makes its system calls itself;
//! what can be hooked is the creation of a ring, under the names by which PostgreSQL 18 and later
//! call liburing.

use core::ffi::{CStr, c_int, c_uint, c_void};

use crate::os::log;
use crate::place::datadir;
use crate::place::program;

/// Whether this process may not have a ring. If so, logs the setting to use instead.
fn refused() -> bool {
    if !program::active() || (datadir::cwd_root().is_none() && !datadir::has_met_a_root()) {
        return false;
    }
    log::line(format_args!(
        "ERROR: io_uring would read and write sealed files past the seal; set io_method = worker"
    ));
    true
}

/// The address of liburing's own function, null if this process has no liburing.
fn real(name: &CStr) -> *mut c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! rings {
    ($($name:ident as $text:literal ($($argument:ident: $kind:ty),*);)*) => { $(
        #[doc = concat!("`", stringify!($name), "(3)` of liburing: `-ENOSYS`, as on a kernel without rings.")]
        ///
        /// # Safety
        /// As for the function of liburing.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            type Function = unsafe extern "C" fn($($kind),*) -> c_int;
            if refused() {
                return -libc::ENOSYS;
            }
            let address = real($text);
            if address.is_null() {
                return -libc::ENOSYS;
            }
            // SAFETY: liburing's function of this name has this type.
            let function = unsafe { core::mem::transmute::<*mut c_void, Function>(address) };
            // SAFETY: the caller's arguments.
            unsafe { function($($argument),*) }
        }
    )* };
}

rings! {
    io_uring_queue_init as c"io_uring_queue_init" (entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params as c"io_uring_queue_init_params" (entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    io_uring_queue_init_mem as c"io_uring_queue_init_mem" (entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, len: libc::size_t);
}
