//! The other half of the guard module `pgseal_guard` (`guard/pgseal_guard.c`): each refuses to run
//! a sealed cluster without the other.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::datadir;
use crate::file::Errno;
use crate::log;
use crate::program::{self, Role};
use crate::sys;

/// The version of the agreement between library and guard module.
const ABI: u32 = 1;

static MET: AtomicBool = AtomicBool::new(false);

/// The version of the agreement, for the guard module.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_abi() -> u32 {
    ABI
}

/// Whether the relation suite of this cluster relies on full-page images and data checksums: 1 if
/// so, and also if it cannot be told.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_needs_full_page_images() -> c_int {
    match datadir::cwd_root().map(datadir::Root::keys) {
        // A plain cluster: nothing of ours relies on anything.
        None => 0,
        Some(Ok(keys)) => c_int::from(keys.suite.needs_full_page_images()),
        Some(Err(_)) => 1,
    }
}

/// The guard module is loaded and content.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_guard_hello() {
    MET.store(true, Ordering::Relaxed);
}

/// A server that serves a sealed cluster must have the guard module, or the next start without
/// the library would find nothing that stops it early.
pub fn check() -> Result<(), Errno> {
    if MET.load(Ordering::Relaxed) || program::role() != Role::Server {
        return Ok(());
    }
    if sys::env(c"PGSEAL_GUARD").is_some_and(|value| value == b"off") {
        MET.store(true, Ordering::Relaxed);
        return Ok(());
    }
    log::line(format_args!(
        "FATAL: the guard module is not loaded; add pgseal_guard to shared_preload_libraries in postgresql.conf"
    ));
    Err(libc::EACCES)
}
