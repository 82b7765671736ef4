//! The other half of the guard module `pgseal_guard` (`guard/pgseal_guard.c`): each refuses to run
//! a sealed cluster without the other.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::keys::load;
use crate::os::log;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir;
use crate::place::program::{self, Role};

/// The version of the agreement between library and guard module.
const ABI: u32 = 1;

static MET: AtomicBool = AtomicBool::new(false);

/// The version of the agreement, for the guard module.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_abi() -> u32 {
    ABI
}

/// The version of the library, behind a mark that can be found in its file without loading it.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_version() -> *const c_char {
    concat!("pgseal-library-version:", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether the relation suite of this cluster relies on full-page images and data checksums: 1 if
/// so, and also if it cannot be told.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_needs_full_page_images() -> c_int {
    match datadir::cwd_root().map(load::of) {
        // A plain cluster: nothing of ours relies on anything.
        None => 0,
        Some(Ok(keys)) => c_int::from(keys.suite.needs_full_page_images()),
        Some(Err(_)) => 1,
    }
}

/// What to do instead of an `io_method` (PostgreSQL 18 and newer) whose reads and writes do not
/// pass through the C library; null if the method is fine.
///
/// # Safety
/// `io_method` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_io_method_refused(io_method: *const c_char) -> *const c_char {
    if io_method.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the caller's contract.
    let method = unsafe { CStr::from_ptr(io_method) };
    io_method_remedy(method).map_or(core::ptr::null(), CStr::as_ptr)
}

/// `sync` reads and writes in the backend, `worker` in processes of the server: both through the
/// calls that are hooked. Any other method is refused, known or not.
fn io_method_remedy(method: &CStr) -> Option<&'static CStr> {
    match method.to_bytes() {
        b"sync" | b"worker" => None,
        _ => Some(c"Set io_method = worker in postgresql.conf."),
    }
}

/// The guard module is loaded and content.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_guard_hello() {
    MET.store(true, Ordering::Relaxed);
}

/// Whether the guard module is loaded, or this process needs none. A server that serves a sealed
/// cluster must have it, or the next start without the library would find nothing that stops it
/// early.
pub fn is_met() -> bool {
    if MET.load(Ordering::Relaxed) || program::role() != Role::Server {
        return true;
    }
    let is_off = sys::env_is(c"PGSEAL_GUARD", b"off");
    if is_off {
        MET.store(true, Ordering::Relaxed);
    }
    is_off
}

/// The line about a guard module that is missing; gives the error number for it.
pub fn tell_missing() -> Errno {
    log::line(format_args!(
        "FATAL: the guard module is not loaded; add pgseal_guard to shared_preload_libraries in postgresql.conf"
    ));
    libc::EACCES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_that_pass_through_the_c_library_are_fine() {
        for fine in [c"sync", c"worker"] {
            assert_eq!(io_method_remedy(fine), None);
        }
        for refused in [c"io_uring", c"posix_aio", c""] {
            assert!(
                io_method_remedy(refused).is_some_and(|remedy| {
                    remedy.to_string_lossy().contains("io_method = worker")
                })
            );
        }
    }
}
