//! Files that are read page after page, mapped into memory.
//!
//! Most of what reading a page from the page cache costs is waiting for memory while the kernel
//! copies it; a cipher that reads the page where it lies hides that wait behind its own work. So
//! from the [`RUN`]th read in a row on, pages are opened out of a map of the next two megabytes.
//!
//! Not where a page is soon written again, as VACUUM does: what was loaded through a map that only
//! reads is shared in the processor's cache, and writing to it waits for each line to become its own.
//! That costs more than the map saves.
//!
//! The map is a short cut that may fail at any time, and then the ordinary read decides:
//! - It is made only if those bytes are in the page cache now (`mincore(2)`, at three places): a
//!   disk is read ahead better by `read`.
//! - A page that has left the file since, or that the disk cannot give, raises SIGBUS. A handler puts
//!   zeros in place of the whole map and marks it lost; what the cipher made of them is dropped. A
//!   program that has a handler of its own gets no maps.
//! - A page that another process writes meanwhile is a torn one, as `read` would have seen it:
//!   PostgreSQL does not read what it writes, and its checksums tell where a backup did.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_core::SealedOff;
use pgseal_core::geometry::TAG_BLOCK_LEN;

use crate::real;

/// Reads one behind the other before the file is mapped.
const RUN: u32 = 8;
/// Bytes of a map.
const WINDOW: usize = 2 << 20;
/// Less is not worth the calls.
const LEAST: usize = 128 << 10;
/// Maps of one process; the one used longest ago makes room.
const WINDOWS: usize = 8;

/// What one open file knows of how it is read.
pub struct ReadAhead {
    /// Names the file among the maps of the process.
    id: u64,
    /// Where the next read starts if it follows the last one.
    next_off: u64,
    run: u32,
    /// No map below this: it was tried, and the pages were not in memory.
    not_before: u64,
}

struct Window {
    owner: u64,
    start: u64,
    len: usize,
    base: NonNull<u8>,
    last_use: u64,
}

// SAFETY: a map is memory of the process, not of a thread.
unsafe impl Send for Window {}

#[derive(Default)]
struct Pool {
    windows: [Option<Window>; WINDOWS],
    uses: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { windows: [const { None }; WINDOWS], uses: 0 });
static IDS: AtomicU64 = AtomicU64::new(0);

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        ReadAhead { id, next_off: u64::MAX, run: 0, not_before: 0 }
    }
}

impl ReadAhead {
    /// Shows the bytes to `look` if they are mapped, or may now be; `false` if not, or if they went
    /// away meanwhile.
    pub fn with_view(
        &mut self,
        fd: c_int,
        off: SealedOff,
        len: usize,
        look: &mut dyn FnMut(&[u8]),
    ) -> bool {
        // Between two groups of pages lies a tag block.
        let follows =
            off.0 == self.next_off || off.0 == self.next_off.saturating_add(TAG_BLOCK_LEN);
        self.run = if follows { self.run.saturating_add(1) } else { 0 };
        self.next_off = off.0 + len as u64;
        if self.run < RUN || off.0 < self.not_before {
            return false;
        }
        let mut pool = pool();
        pool.uses += 1;
        let uses = pool.uses;
        let Some(slot) = pool.slot(self.id, off.0, len) else {
            if !pool.open(self.id, fd, off.0) {
                self.not_before = off.0 + WINDOW as u64;
            }
            // This read was made the ordinary way, or the pages would not be in memory for sure.
            return false;
        };
        let Some(window) = slot else { return false };
        window.last_use = uses;
        // SAFETY: within the map, as `slot` says.
        let start = unsafe { window.base.as_ptr().add((off.0 - window.start) as usize) };
        let guard = Guarded::new(window.base.as_ptr() as usize, window.len);
        // SAFETY: mapped for reading for at least `len` bytes from here on. Other processes may
        // write to the file: the bytes go to a cipher and nowhere else, which takes any of them.
        look(unsafe { core::slice::from_raw_parts(start, len) });
        let intact = guard.intact();
        if !intact {
            *slot = None;
            self.run = 0;
        }
        intact
    }

    /// The file is being written to: it is read the ordinary way until as many reads have followed
    /// one another again.
    pub fn wrote(&mut self) {
        self.run = 0;
    }

    /// Gives the map back.
    pub fn close(&mut self) {
        self.run = 0;
        self.not_before = 0;
        pool().release(self.id);
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.close();
    }
}

impl Pool {
    /// The place of the map that has these bytes of the file.
    fn slot(&mut self, owner: u64, off: u64, len: usize) -> Option<&mut Option<Window>> {
        self.windows.iter_mut().find(|slot| {
            slot.as_ref().is_some_and(|window| {
                window.owner == owner
                    && off >= window.start
                    && off + len as u64 <= window.start + window.len as u64
            })
        })
    }

    fn release(&mut self, owner: u64) {
        for slot in &mut self.windows {
            if slot.as_ref().is_some_and(|window| window.owner == owner) {
                *slot = None;
            }
        }
    }

    /// Maps what follows in place of what the file had mapped, or of the map used longest ago.
    fn open(&mut self, owner: u64, fd: c_int, off: u64) -> bool {
        self.release(owner);
        let Some(mut window) = Window::new(owner, fd, off) else { return false };
        window.last_use = self.uses;
        let oldest =
            self.windows.iter_mut().min_by_key(|slot| slot.as_ref().map_or(0, |w| w.last_use));
        if let Some(slot) = oldest {
            *slot = Some(window);
        }
        true
    }
}

impl Window {
    fn new(owner: u64, fd: c_int, off: u64) -> Option<Window> {
        let page = real::page_size() as u64;
        let start = off - off % page;
        // SAFETY: no pointers involved. The kernel's own position means nothing to a sealed file.
        let end = u64::try_from(unsafe { real::lseek(fd, 0, libc::SEEK_END) }).ok()?;
        let rest = end.saturating_sub(start);
        let len = usize::try_from(rest - rest % page).unwrap_or(WINDOW).min(WINDOW);
        if len < LEAST || !crate::window::is_local(fd) || !handle_faults() {
            return None;
        }
        let off = libc::off_t::try_from(start).ok()?;
        let prot = libc::PROT_READ;
        // SAFETY: a new map at an address of the kernel's choice.
        let base = unsafe { real::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, off) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let window = Window { owner, start, len, base: NonNull::new(base.cast())?, last_use: 0 };
        let step = len / 2 / page as usize * page as usize;
        [0, step, len - page as usize].iter().all(|at| window.is_resident(*at)).then_some(window)
    }

    /// Whether the memory page at `at` is in the page cache.
    fn is_resident(&self, at: usize) -> bool {
        let mut answer = 0_u8;
        // SAFETY: within the map.
        let page = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: one memory page, one byte for the answer.
        let done = unsafe { libc::mincore(page.cast(), 1, &raw mut answer) };
        done == 0 && answer & 1 == 1
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: our own map, not used after this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// The map that is being read, for the handler: one at a time, under the lock of the pool.
static GUARDED_START: AtomicUsize = AtomicUsize::new(0);
static GUARDED_LEN: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicBool = AtomicBool::new(false);

/// While this lives, SIGBUS within the map marks it lost.
struct Guarded;

impl Guarded {
    fn new(start: usize, len: usize) -> Guarded {
        LOST.store(false, Ordering::Relaxed);
        GUARDED_LEN.store(len, Ordering::Relaxed);
        GUARDED_START.store(start, Ordering::SeqCst);
        Guarded
    }

    fn intact(self) -> bool {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        !LOST.load(Ordering::SeqCst)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        GUARDED_START.store(0, Ordering::SeqCst);
        GUARDED_LEN.store(0, Ordering::Relaxed);
    }
}

/// Installs the handler once, unless the program has one of its own.
fn handle_faults() -> bool {
    const UNKNOWN: u8 = 0;
    const OURS: u8 = 1;
    const THEIRS: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match STATE.load(Ordering::Relaxed) {
        OURS => return true,
        THEIRS => return false,
        _ => {}
    }
    // SAFETY: zeros are a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only asks.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action) };
    let mut ours = asked == 0 && action.sa_sigaction == libc::SIG_DFL;
    if ours {
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler calls nothing but the kernel.
        ours = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } == 0;
    }
    STATE.store(if ours { OURS } else { THEIRS }, Ordering::Relaxed);
    ours
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let info = unsafe { info.as_ref() };
    // SAFETY: SIGBUS has the field; of one that was sent, it is no address of ours.
    let address = info.map_or(0, |info| unsafe { info.si_addr() } as usize);
    let (start, len) = (GUARDED_START.load(Ordering::SeqCst), GUARDED_LEN.load(Ordering::Relaxed));
    if start != 0 && address.wrapping_sub(start) < len {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let at = ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: in place of our own map, whose bytes nobody trusts from here on.
        let zeros = unsafe { real::mmap(at, len, libc::PROT_READ, flags, -1, 0) };
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
