//! Maps of files whose pages may go away: a file is cut short, its disk cannot give the page, or has no
//! room for one. The kernel says so with SIGBUS, which would end a server. While a map is touched here, a
//! handler puts zeros in its place instead and marks it lost; the caller then reads or writes the
//! ordinary way, which has an error for it. A program that has a handler of its own gets no maps.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use crate::os::real;

// The map that is being touched, for the handler. One at a time: under the lock of the buffers, which
// each read and write of a sealed file has (`file/open_file.rs`).
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicBool = AtomicBool::new(false);

/// Touches a map of a file, and says whether all of it was there. If not, zeros lie in its place, of
/// which nothing comes to the file.
pub fn guarded(map: *mut u8, len: usize, touch: impl FnOnce()) -> bool {
    LOST.store(false, Ordering::Relaxed);
    LEN.store(len, Ordering::Relaxed);
    START.store(map as usize, Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
    touch();
    compiler_fence(Ordering::SeqCst);
    START.store(0, Ordering::SeqCst);
    !LOST.load(Ordering::SeqCst)
}

/// Whether the handler is ours: it is installed if there is none.
pub fn is_handled() -> bool {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only asks.
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
    // SAFETY: SIGBUS has the field; of one that was sent, it is no address of ours.
    let address = info.map_or(0, |info| unsafe { info.si_addr() } as usize);
    let (start, len) = (START.load(Ordering::SeqCst), LEN.load(Ordering::Relaxed));
    if start != 0 && address.wrapping_sub(start) < len {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: in place of our own map, whose bytes nobody trusts from here on.
        let zeros = unsafe { real::mmap(at, len, prot, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            LOST.store(true, Ordering::SeqCst);
            return;
        }
    }
    // Not ours: what would have happened without us.
    // SAFETY: both may be called in a handler; the signal comes when it returns.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: as above.
    unsafe { libc::raise(signal) };
}
