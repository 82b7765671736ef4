//! Memory for keys: the data keys, the key schedules of open files, and everything that AWS-LC
//! allocates. This memory is excluded from core dumps (`MADV_DONTDUMP`), and locked into RAM as far
//! as `RLIMIT_MEMLOCK` allows (`mlock(2)`).
//!
//! A range of addresses is reserved once and made usable chunk by chunk. A child of `fork` inherits
//! the memory and its exclusion from core dumps, but not the `mlock`: a handler of
//! `pthread_atfork(3)` locks the memory again before the child does anything else. Until then the
//! child shares the pages of the parent, which are locked.
//!
//! `memfd_secret(2)` is not used: its memory stays shared after a `fork`, but each process has its
//! own key schedules. It would also gain little: whoever may read the memory of the process can
//! read the rows in shared buffers, too.
//!
//! No mutex is used here: a child may be forked while a mutex is held.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::alloc::Layout;

use pgseal_core::memory::KeyMemory;

use crate::os::memory;
use crate::os::real;

/// Bytes of a cell. An allocation takes one or more adjacent cells.
const CELL: usize = 128;
/// The most cells of an allocation. The largest allocation with a key in it, an AES-GCM context,
/// takes five.
const MOST_CELLS: usize = 8;
/// Cells of a row: one for each bit of its mask.
const ROW_CELLS: usize = u64::BITS as usize;
const ROW: usize = CELL * ROW_CELLS;
/// The bytes that are made usable and locked at once: the smallest default of `RLIMIT_MEMLOCK`.
const CHUNK: usize = 64 << 10;
/// The bytes of the reserved range: enough for the key schedules of 16000 files, more than a server
/// process has open.
const ROOM: usize = 16 << 20;

/// The bytes that the keys of a process with a thousand open files need.
const ENOUGH: usize = 1 << 20;

static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// How many chunks are usable.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
/// For each row, the mask of its allocated cells.
static TAKEN: [AtomicU64; ROOM / ROW] = [const { AtomicU64::new(0) }; ROOM / ROW];
/// The row of the last allocation.
static LAST_ROW: AtomicUsize = AtomicUsize::new(0);

/// Makes AWS-LC and the keys allocate their memory here.
pub fn start() {
    pgseal_core::memory::use_for_keys(KeyMemory { take, give });
}

fn cells_of(layout: Layout) -> Option<usize> {
    let cells = layout.size().div_ceil(CELL).max(1);
    (cells <= MOST_CELLS && layout.align() <= CELL).then_some(cells)
}

/// Allocates memory for a key.
///
/// # Safety
/// As for `GlobalAlloc::alloc`.
unsafe fn take(layout: Layout) -> *mut u8 {
    let Some(cells) = cells_of(layout) else {
        // No key is that long.
        // SAFETY: the caller's contract.
        return unsafe { std::alloc::alloc(layout) };
    };
    loop {
        let chunks = CHUNKS.load(Ordering::Acquire);
        if let Some(place) = take_cells(cells, chunks * CHUNK / ROW) {
            return place;
        }
        if !grow(chunks) {
            // Never use ordinary memory: the reserve, too, is excluded from core dumps.
            return memory::from_reserve(layout);
        }
    }
}

fn take_cells(cells: usize, rows: usize) -> Option<*mut u8> {
    let first = LAST_ROW.load(Ordering::Relaxed);
    for at in 0..rows {
        let row = (first + at) % rows;
        let mut taken = TAKEN[row].load(Ordering::Relaxed);
        loop {
            // The bits where a run of `cells` free cells begins.
            let starts = (1..cells).fold(!taken, |starts, by| starts & !taken >> by);
            if starts == 0 {
                break;
            }
            let start = starts.trailing_zeros();
            let wanted = taken | mask(cells) << start;
            let swapped = TAKEN[row].compare_exchange_weak(
                taken,
                wanted,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => {
                    LAST_ROW.store(row, Ordering::Relaxed);
                    let within = row * ROW + start as usize * CELL;
                    // SAFETY: within the chunks that are usable.
                    return Some(unsafe { BASE.load(Ordering::Relaxed).add(within) });
                }
                Err(now) => taken = now,
            }
        }
    }
    None
}

fn mask(cells: usize) -> u64 {
    (1 << cells) - 1
}

/// Frees memory from [`take`]. The caller has wiped it.
///
/// # Safety
/// As for `GlobalAlloc::dealloc`.
unsafe fn give(place: *mut u8, layout: Layout) {
    let within = (place as usize).wrapping_sub(BASE.load(Ordering::Relaxed) as usize);
    match cells_of(layout) {
        Some(cells) if within < ROOM => {
            let (row, start) = (within / ROW, within % ROW / CELL);
            TAKEN[row].fetch_and(!(mask(cells) << start), Ordering::Release);
        }
        // SAFETY: the memory is from the reserve or from the global allocator, and `dealloc` tells
        // them apart.
        _ => unsafe { std::alloc::dealloc(place, layout) },
    }
}

/// Makes one more chunk usable, after the first `chunks`.
#[cold]
fn grow(chunks: usize) -> bool {
    let errno = real::errno();
    let grown = (chunks + 1) * CHUNK <= ROOM && make_usable(chunks);
    if grown {
        // Another thread may have made the same chunk usable first.
        let order = Ordering::AcqRel;
        let _ = CHUNKS.compare_exchange(chunks, chunks + 1, order, Ordering::Relaxed);
    }
    real::set_errno(errno);
    grown
}

fn make_usable(chunk: usize) -> bool {
    let Some(base) = base() else { return false };
    // SAFETY: within the reserved range.
    let start = unsafe { base.add(chunk * CHUNK) };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: memory of our own reserved range; nobody uses this chunk before it is counted in
    // `CHUNKS`.
    if unsafe { libc::mprotect(start.cast(), CHUNK, prot) } != 0 {
        return false;
    }
    // Beyond the limit the memory stays unlocked: `prepare` has reported that.
    lock(start, CHUNK);
    true
}

/// The start of the reserved range, which is mapped on the first call.
fn base() -> Option<*mut u8> {
    let known = BASE.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous map at an address of the kernel's choice.
    let made = unsafe { real::mmap(ptr::null_mut(), ROOM, libc::PROT_NONE, flags, -1, 0) };
    if made == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: our own map.
    unsafe { libc::madvise(made, ROOM, libc::MADV_DONTDUMP) };
    let order = Ordering::AcqRel;
    match BASE.compare_exchange(ptr::null_mut(), made.cast(), order, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: the handler only makes system calls. If the registration fails for lack of
            // memory, children do not lock their memory.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            Some(made.cast())
        }
        Err(other) => {
            // SAFETY: our own map, which no other thread has a pointer to.
            unsafe { libc::munmap(made, ROOM) };
            Some(other)
        }
    }
}

/// Locks the pages of this range as they are first touched; `false` if the limit does not allow it.
fn lock(start: *mut u8, len: usize) -> bool {
    let start: *const c_void = start.cast();
    // SAFETY: the contents stay as they are.
    let locked = unsafe { libc::mlock2(start, len, libc::MLOCK_ONFAULT as libc::c_uint) } == 0;
    // Some sandboxes allow only the older call.
    // SAFETY: as above.
    locked || (real::errno() != libc::ENOMEM && unsafe { libc::mlock(start, len) } == 0)
}

/// Locks the memory again in a child: `mlock` is not inherited.
unsafe extern "C" fn in_child() {
    let errno = real::errno();
    let (base, chunks) = (BASE.load(Ordering::Relaxed), CHUNKS.load(Ordering::Relaxed));
    if !lock(base, chunks * CHUNK) {
        // Lock as many chunks as the limit allows.
        // SAFETY: within the chunks that are usable.
        let _ = (0..chunks).all(|chunk| lock(unsafe { base.add(chunk * CHUNK) }, CHUNK));
    }
    real::set_errno(errno);
}

/// How much memory with keys can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The keys of many open files can be locked.
    Enough,
    /// Only this many bytes can be locked.
    Bytes(u64),
}

/// Excludes the reserve from core dumps as well, and returns how much of the keys can be locked.
pub fn prepare() -> Limit {
    memory::hide_reserve();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    let asked: c_int = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    // Processes of root or with CAP_IPC_LOCK have no limit, which only an attempt can tell.
    if asked != 0 || limit.rlim_cur >= ENOUGH as u64 || can_lock(ENOUGH) {
        return Limit::Enough;
    }
    Limit::Bytes(limit.rlim_cur)
}

fn can_lock(len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous map at an address of the kernel's choice.
    let map = unsafe { real::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        return false;
    }
    let locked = lock(map.cast(), len);
    // SAFETY: our own map.
    unsafe { libc::munmap(map, len) };
    locked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::memory::flags_at;

    /// A chunk is whole pages, whatever their size, so that it is made usable and locked on its
    /// own.
    #[test]
    fn a_chunk_is_whole_pages() {
        assert!(CHUNK.is_multiple_of(64 << 10) && ROOM.is_multiple_of(CHUNK));
        assert!(CHUNK.is_multiple_of(real::page_size()));
    }

    /// Whether the memory at `place` is excluded from core dumps and, if `may_lock`, locked.
    fn is_safe(place: *const u8, may_lock: bool) -> bool {
        let flags = flags_at(place);
        flags.contains(" dd ") && (flags.contains(" lo ") || !may_lock)
    }

    #[test]
    fn pieces_are_locked_and_in_no_core_dump_also_in_a_child() {
        let (small, may_lock) = (Layout::new::<[u8; 32]>(), can_lock(ENOUGH));
        let context = Layout::from_size_align(608, 16).unwrap();
        // More than a chunk, so that the usable memory must grow.
        // SAFETY: the layouts have a size.
        let pieces: Vec<*mut u8> =
            (0..200).map(|at| unsafe { take(if at % 2 == 0 { small } else { context }) }).collect();
        let mut sorted = pieces.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[1] as usize - two[0] as usize >= CELL));
        for place in &pieces {
            // SAFETY: at least 32 bytes.
            unsafe { place.write_bytes(0x5A, 32) };
            assert!(is_safe(*place, may_lock), "{}", flags_at(*place));
        }
        // SAFETY: the child only reads /proc and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let own = unsafe { take(context) };
            let safe = pieces.iter().chain([&own]).all(|place| is_safe(*place, may_lock));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!safe)) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "in a child");
        for (at, place) in pieces.into_iter().enumerate() {
            // SAFETY: taken with this layout.
            unsafe { give(place, if at % 2 == 0 { small } else { context }) };
        }
        // Freed memory is reused.
        let chunks = CHUNKS.load(Ordering::Relaxed);
        for _ in 0..10_000 {
            // SAFETY: the layout has a size.
            let place = unsafe { take(context) };
            // SAFETY: taken with this layout.
            unsafe { give(place, context) };
        }
        assert_eq!(CHUNKS.load(Ordering::Relaxed), chunks);
    }

    #[test]
    fn what_is_too_long_for_a_key_is_ordinary_memory() {
        let layout = Layout::new::<[u8; 2000]>();
        // SAFETY: the layout has a size.
        let place = unsafe { take(layout) };
        assert!(!flags_at(place).contains(" dd "));
        // SAFETY: taken with this layout.
        unsafe { give(place, layout) };
    }
}
