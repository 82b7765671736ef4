//! The counterpart of the guard module `pgseal_guard` (`server/guard/pgseal_guard.c`): library and
//! guard module each refuse to run a sealed cluster without the other.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use pgseal_core::Suite;

use crate::keys::load;
use crate::os::log;
use crate::os::sys;
use crate::place::datadir;
use crate::place::program::{self, Role};

/// The version of the interface between library and guard module.
const ABI: u32 = 4;

static MET: AtomicBool = AtomicBool::new(false);

/// Whether the server has no data checksums.
static CHECKSUMS_OFF: AtomicBool = AtomicBool::new(false);

/// Returns the version of the interface to the guard module.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_abi() -> u32 {
    ABI
}

/// The version of the library, with a prefix by which it can be found in the library's file without
/// loading the library.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_version() -> *const c_char {
    concat!("pgseal-library-version:", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether a relation suite of this cluster relies on full-page images: 1 if so, or if the keys
/// cannot be loaded.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_needs_full_page_images() -> c_int {
    suite_needs(Suite::needs_full_page_images)
}

/// Whether a relation suite of this cluster relies on data checksums: 1 if so, or if the keys
/// cannot be loaded.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_needs_data_checksums() -> c_int {
    suite_needs(Suite::needs_data_checksums)
}

fn suite_needs(what: fn(Suite) -> bool) -> c_int {
    match datadir::cwd_root().map(load::of) {
        // A plain cluster needs nothing.
        None => 0,
        Some(Ok(keys)) => c_int::from(keys.suites().all().any(what)),
        Some(Err(_)) => 1,
    }
}

/// The guard module calls this when the server has no data checksums.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_data_checksums_are_off() {
    CHECKSUMS_OFF.store(true, Ordering::Relaxed);
}

/// Whether the server has no data checksums, as the guard module said.
pub fn has_no_checksums() -> bool {
    CHECKSUMS_OFF.load(Ordering::Relaxed)
}

/// The hint for an `io_method` (PostgreSQL 18 and newer) whose reads and writes bypass the C
/// library; null if the method is allowed.
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

/// `sync` reads and writes in the backend, `worker` in other processes of the server; both use the
/// hooked calls. Any other method is refused, known or not.
fn io_method_remedy(method: &CStr) -> Option<&'static CStr> {
    match method.to_bytes() {
        b"sync" | b"worker" => None,
        _ => Some(c"Set io_method = worker in postgresql.conf."),
    }
}

/// The line that the guard module logs when a server starts: version of the library, keyring, data
/// key, suite, and where the key came from. Null on a plain cluster.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_start_line() -> *const c_char {
    static LINE: OnceLock<Option<CString>> = OnceLock::new();
    LINE.get_or_init(start_line).as_ref().map_or(core::ptr::null(), |line| line.as_ptr())
}

fn start_line() -> Option<CString> {
    let unlocked = datadir::cwd_root()?.unlocked()?;
    let keys = &unlocked.keys;
    let line = format!(
        "data directory is sealed: pgseal {}{}, keyring {}, data key {}, {}, key from {}",
        env!("CARGO_PKG_VERSION"),
        if pgseal_crypto::FIPS { " (FIPS build)" } else { "" },
        keys.keyring_id,
        keys.active().0,
        keys.suite(),
        unlocked.source
    );
    CString::new(line).ok()
}

/// The guard module calls this when it is loaded and has accepted the library.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_guard_hello() {
    MET.store(true, Ordering::Relaxed);
}

/// Whether the guard module is loaded, or this process does not need it. A server on a sealed
/// cluster must have it; else, if it were started later without the library, nothing would stop it
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

/// Logs that the guard module is missing.
pub fn tell_missing() {
    log::line(format_args!(
        "FATAL: the guard module is not loaded; add pgseal_guard to shared_preload_libraries in postgresql.conf"
    ));
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
