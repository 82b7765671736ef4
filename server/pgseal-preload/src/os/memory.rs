//! An allocator with a reserve, for when the system has no memory.
//!
//! If an allocation of Rust's standard library fails, the process ends, and if the process is a
//! backend, the server restarts. So hooked calls use the stack, or allocations that can fail: large
//! memory (buffers, caches, the tag block of a file) is optional, and a call that cannot do without
//! its memory fails with `ENOMEM`.
//!
//! The remaining allocations are small: the entry of an open file, its cipher. A server opens files
//! where an error is a PANIC (a WAL segment, after commit), and where PostgreSQL itself needs no
//! memory. So if the C library has no memory for up to [`SMALL`] bytes, a reserve in the library's
//! own data supplies them, which exists from the start. If the reserve is used up, the call fails
//! with `ENOMEM`.
//!
//! A few code paths are long and rare and use the standard library as it is: start-up, fetching
//! keys, reading a command line, checking a module. They run in [`with_reserve`], which adds pieces
//! of up to [`LARGE`] bytes and some small pieces kept for this use. If even those are used up, the
//! process ends with one line in the log.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;

use pgseal_core::memory::{self, OutOfMemory};

use crate::os::log;

/// Bytes of a small piece.
const SMALL: usize = 1 << 10;
/// How many small pieces there are: enough for about 100 files that are opened while there is no
/// memory at all.
const SMALL_PIECES: usize = 768;
/// How many of them, the last ones, are kept for [`with_reserve`].
const KEPT_PIECES: usize = 128;
/// Bytes of a large piece.
const LARGE: usize = 64 << 10;
const LARGE_PIECES: usize = 8;
/// The alignment of pieces.
const ALIGN: usize = 64;

/// Pieces of one length. There is no mutex, since a child may be forked while it is held.
#[repr(C, align(4096))]
struct Pieces<const LEN: usize, const COUNT: usize> {
    memory: UnsafeCell<[[u8; LEN]; COUNT]>,
    taken: [AtomicBool; COUNT],
}

// SAFETY: each piece belongs to the caller that has set its mark.
unsafe impl<const LEN: usize, const COUNT: usize> Sync for Pieces<LEN, COUNT> {}

impl<const LEN: usize, const COUNT: usize> Pieces<LEN, COUNT> {
    const fn new() -> Pieces<LEN, COUNT> {
        Pieces {
            memory: UnsafeCell::new([[0; LEN]; COUNT]),
            taken: [const { AtomicBool::new(false) }; COUNT],
        }
    }

    /// Takes a free piece among the first `among`; null if all are taken.
    fn take(&self, among: usize) -> *mut u8 {
        let free = self.taken.iter().take(among).position(|taken| {
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire)
        });
        match free {
            // SAFETY: within the memory, which has as many pieces as there are marks.
            Some(index) => unsafe { self.memory.get().cast::<u8>().add(index * LEN) },
            None => core::ptr::null_mut(),
        }
    }

    /// Frees a piece; `false` if the address is not in this memory.
    fn give(&self, place: *mut u8) -> bool {
        let within = (place as usize).wrapping_sub(self.memory.get() as usize);
        let Some(taken) = self.taken.get(within / LEN) else { return false };
        taken.store(false, Ordering::Release);
        true
    }

    fn has(&self, place: *mut u8) -> bool {
        (place as usize).wrapping_sub(self.memory.get() as usize) < LEN * COUNT
    }
}

static SMALLS: Pieces<SMALL, SMALL_PIECES> = Pieces::new();
static LARGES: Pieces<LARGE, LARGE_PIECES> = Pieces::new();

thread_local! {
    /// The nesting depth of [`with_reserve`] in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Excludes the reserve from core dumps: when memory runs out, it holds keys. The first and the
/// last page may also hold other data of the library, which core dumps then lack too.
pub fn hide_reserve() {
    let start = SMALLS.memory.get().cast::<u8>();
    let (before, len) =
        whole_pages(start as usize, SMALL * SMALL_PIECES, crate::os::real::page_size());
    let first = start.wrapping_sub(before);
    // SAFETY: pages of the library's own data, of which each is mapped, because each holds a byte
    // of the pieces; the call only changes whether they are in core dumps.
    unsafe { libc::madvise(first.cast(), len, libc::MADV_DONTDUMP) };
}

/// All pages of this size that hold a byte of a range: how many bytes before it they begin, and
/// their length.
fn whole_pages(start: usize, len: usize, page_size: usize) -> (usize, usize) {
    let before = start % page_size;
    (before, (before + len).next_multiple_of(page_size))
}

/// Runs code that cannot report a lack of memory: it may use the reserve, and if that is used up
/// the process ends. For code paths that are rare, and where an error would be no better.
pub fn with_reserve<T>(work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    work()
}

/// `Arc::new`, or an error.
pub fn shared<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    // Stable Rust has no such call. So this first checks that the memory can be allocated; if
    // another thread takes it before `Arc::new` does, the reserve supplies it.
    let value = memory::boxed(([0_usize; 2], value))?;
    Ok(with_reserve(move || {
        let (_, value) = *value;
        Arc::new(value)
    }))
}

/// Bytes of stack that the library's calls may need in addition to what PostgreSQL needs.
const STACK: usize = 256 << 10;

/// Grows the stack by [`STACK`] bytes. The postmaster does this before it forks: a stack that
/// cannot grow later kills the process (SIGSEGV), and children inherit the grown stack.
#[inline(never)]
pub fn grow_stack() {
    let mut room = [0_u8; STACK];
    core::hint::black_box(&mut room);
}

/// The allocator of the library: the C library's allocator, then the reserve.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Allocates from the reserve, when the C library has no memory.
#[cold]
pub fn from_reserve(layout: Layout) -> *mut u8 {
    let needed = DEPTH.get() > 0;
    let mut place = core::ptr::null_mut();
    if layout.align() <= ALIGN && (needed || is_for_all()) {
        if layout.size() <= SMALL {
            place = SMALLS.take(if needed { SMALL_PIECES } else { SMALL_PIECES - KEPT_PIECES });
        } else if layout.size() <= LARGE && needed {
            place = LARGES.take(LARGE_PIECES);
        }
    }
    if place.is_null() && needed {
        let size = layout.size();
        log::line(format_args!(
            "FATAL: out of memory ({size} bytes) where pgseal cannot go on without it: fetching keys or looking at a program; free memory, or raise the limit of the process"
        ));
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) };
    }
    place
}

/// Whether the reserve may be used outside [`with_reserve`]. Tests switch this off in debug builds,
/// to see what happens when the reserve is used up.
fn is_for_all() -> bool {
    // SAFETY: a C string.
    !cfg!(debug_assertions) || unsafe { libc::getenv(c"PGSEAL_TEST_DRY".as_ptr()) }.is_null()
}

// SAFETY: the system's allocator upholds its own contract. A piece of the reserve is long enough,
// aligned, and belongs to one caller until it is freed.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() { from_reserve(layout) } else { place }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let place = unsafe { System.alloc_zeroed(layout) };
        if !place.is_null() {
            return place;
        }
        let place = from_reserve(layout);
        if !place.is_null() {
            // SAFETY: a piece is at least that long.
            unsafe { place.write_bytes(0, layout.size()) };
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if is_piece(place) {
            let _ = SMALLS.give(place) || LARGES.give(place);
            return;
        }
        // SAFETY: the caller's contract; the place is from the system's allocator.
        unsafe { System.dealloc(place, layout) };
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let piece = is_piece(place);
        if !piece {
            // SAFETY: the caller's contract; the place is from the system's allocator.
            let grown = unsafe { System.realloc(place, layout, new_size) };
            if !grown.is_null() {
                return grown;
            }
        }
        let Ok(wanted) = Layout::from_size_align(new_size, layout.align()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: the new size is not zero, by the caller's contract.
        let moved = if piece { unsafe { self.alloc(wanted) } } else { from_reserve(wanted) };
        if !moved.is_null() {
            let kept = layout.size().min(new_size);
            // SAFETY: both are valid for that many bytes, and different memory.
            unsafe { core::ptr::copy_nonoverlapping(place, moved, kept) };
            // SAFETY: the caller's contract.
            unsafe { self.dealloc(place, layout) };
        }
        moved
    }
}

#[inline]
fn is_piece(place: *mut u8) -> bool {
    SMALLS.has(place) || LARGES.has(place)
}

/// The `VmFlags` of the mapping at this address.
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
pub fn flags_at(place: *const u8) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut within = false;
    for line in smaps.lines() {
        let range = line.split_whitespace().next().and_then(|word| word.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
            within = (from..to).contains(&(place as usize));
        }
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| within) {
            return format!("{flags} ");
        }
    }
    panic!("{place:p} is not mapped");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_once_and_given_back() {
        static PIECES: Pieces<64, 4> = Pieces::new();
        let taken: Vec<_> = (0..3).map(|_| PIECES.take(3)).collect();
        assert!(PIECES.take(3).is_null());
        let last = PIECES.take(4);
        for (index, place) in taken.iter().chain([&last]).enumerate() {
            assert!(PIECES.has(*place) && (*place as usize).is_multiple_of(ALIGN), "{index}");
        }
        assert!(taken[0] != taken[1] && taken[1] != taken[2] && last != taken[2]);
        assert!(PIECES.give(taken[1]));
        assert_eq!(PIECES.take(4), taken[1]);
        assert!(!PIECES.give(core::ptr::null_mut()));
        assert!(!PIECES.has(last.wrapping_add(64)));
    }

    /// No piece is in a core dump, whatever the size of a page and wherever the linker put them.
    #[test]
    fn every_page_with_a_piece_is_hidden() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for start in [0x7000_0000, 0x7000_1000, 0x7000_f000, 0x7001_0000, 0x7000_2040] {
                let (before, len) = whole_pages(start, SMALL * SMALL_PIECES, page);
                let (first, end) = (start - before, start - before + len);
                assert!(first.is_multiple_of(page) && len.is_multiple_of(page));
                assert!(first <= start && start - first < page);
                assert!(end >= start + SMALL * SMALL_PIECES);
                assert!(end - page < start + SMALL * SMALL_PIECES);
            }
        }
        hide_reserve();
        let pieces = SMALLS.memory.get().cast::<u8>();
        for at in [0, SMALL * SMALL_PIECES - 1] {
            let flags = flags_at(pieces.wrapping_add(at));
            assert!(flags.contains(" dd "), "{flags}");
        }
    }

    /// Layouts as for the allocator; the test takes them directly from the reserve.
    #[test]
    fn small_pieces_come_from_the_reserve_and_large_ones_only_where_they_must() {
        let (small, large) = (Layout::new::<[u64; 50]>(), Layout::new::<[u8; 5000]>());
        let place = from_reserve(small);
        assert!(is_piece(place));
        assert!(from_reserve(large).is_null());
        let forced = with_reserve(|| from_reserve(large));
        assert!(is_piece(forced));
        // SAFETY: a piece of this length.
        unsafe { place.write_bytes(7, small.size()) };
        // SAFETY: from this allocator, with this layout.
        let moved = unsafe { ALLOCATOR.realloc(place, small, 3000) };
        // SAFETY: it has at least the old bytes.
        let old = unsafe { core::slice::from_raw_parts(moved, small.size()) };
        assert_eq!(old, [7; 400]);
        // SAFETY: from this allocator, with the layout that it has now.
        unsafe { ALLOCATOR.dealloc(moved, Layout::new::<[u64; 375]>()) };
        // SAFETY: as above.
        unsafe { ALLOCATOR.dealloc(forced, large) };
        assert!(!SMALLS.taken.iter().any(|taken| taken.load(Ordering::Relaxed)));
        assert!(!LARGES.taken.iter().any(|taken| taken.load(Ordering::Relaxed)));
    }
}
