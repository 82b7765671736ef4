//! Guards access to mapped files whose pages may become unavailable: the file is truncated, the
//! disk cannot read the page, or has no space for it. The kernel then sends SIGBUS, which would end
//! a server. During access to a map, a handler replaces the map by zeros and marks it lost; the
//! caller then uses `pread` or `pwrite`, which can report an error. A program that has its own
//! handler gets no maps.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use crate::os::real;

// The map that is being accessed, for the handler. There is one at a time: access happens under the
// lock of the buffers, which each read and write of a sealed file holds (`file/open_file.rs`), or
// in the main thread of a server's process (`file/wal/position.rs`), which has no other threads
// that read or write sealed files.
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicBool = AtomicBool::new(false);

/// Runs `touch`, which accesses a map of a file. Returns whether all of the map was available. If
/// not, zeros replace the map, and writes to them do not reach the file.
pub fn guarded(map: *mut u8, len: usize, touch: impl FnOnce()) -> bool {
    // A signal handler may have interrupted another access.
    let other = (START.load(Ordering::SeqCst), LEN.load(Ordering::SeqCst));
    START.store(0, Ordering::SeqCst);
    let is_other_lost = LOST.swap(false, Ordering::SeqCst);
    LEN.store(len, Ordering::SeqCst);
    START.store(map as usize, Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
    touch();
    compiler_fence(Ordering::SeqCst);
    START.store(0, Ordering::SeqCst);
    let is_lost = LOST.swap(is_other_lost, Ordering::SeqCst);
    LEN.store(other.1, Ordering::SeqCst);
    START.store(other.0, Ordering::SeqCst);
    !is_lost
}

/// Whether the SIGBUS handler is ours. Installs it if there is none.
pub fn is_handled() -> bool {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: this call only queries the handler.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action) } != 0 {
        return false;
    }
    let ours = on_fault as *const () as usize;
    if action.sa_sigaction != libc::SIG_DFL {
        return action.sa_sigaction == ours;
    }
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler calls nothing but the kernel.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let info = unsafe { info.as_ref() };
    // SAFETY: SIGBUS has the field; if a process sent the signal, the value is no address of our
    // map.
    let address = info.map_or(0, |info| unsafe { info.si_addr() } as usize);
    let (start, len) = (START.load(Ordering::SeqCst), LEN.load(Ordering::Relaxed));
    if start != 0 && address.wrapping_sub(start) < len {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: replaces our own map, whose bytes are not used after this.
        let zeros = unsafe { real::mmap(at, len, prot, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            LOST.store(true, Ordering::SeqCst);
            return;
        }
    }
    // The address is not in our map: apply the default action.
    // SAFETY: both may be called in a handler; the signal comes when it returns.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: as above.
    unsafe { libc::raise(signal) };
}
