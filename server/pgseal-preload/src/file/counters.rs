//! Counts what the server seals and opens, in memory that all its processes share.
//!
//! The postmaster makes the memory before its first fork; its children inherit the map. A process
//! adds to the slot of the CPU that it runs on, with one atomic addition per counter, so that no
//! cache line moves between CPUs and no process waits for another. If a process is moved to another
//! CPU in between, it adds to the slot of the old one, and the sums are still right.
//!
//! The memory is an anonymous file of mode 0600 without a name in any file system. The postmaster
//! keeps it open: root and the server's own user can read it through `/proc/PID/fd`, as `pgseal
//! status` does. It holds nothing but numbers. Without it the server runs on and counts nothing.

use core::ffi::{c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pgseal_core::ReadOutcome;
use pgseal_core::error::SealError;
use pgseal_core::geometry::BLOCK_LEN;
use pgseal_pgdata::counters::{
    CLASSES, COLUMN_COUNTERS, COLUMN_WORD, COUNTERS, ClassIndex, Counter, HEADER_BYTES, MAGIC,
    MEMORY_NAME, SLOT_BYTES, TEXT_OFF, VERSION,
};

use crate::os::log;
use crate::os::real;
use crate::os::sys;

/// The number of slots, a power of two; on a machine with more CPUs, several CPUs share a slot.
const SLOTS: usize = 64;
const SLOT_WORDS: usize = SLOT_BYTES / 8;
const BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;

type Slots = [AtomicU64; SLOTS * SLOT_WORDS];

/// The counters; null while nothing is counted.
static COUNTED: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());
/// When the memory was made, seconds since 1970.
static STARTED_S: AtomicU64 = AtomicU64::new(0);

/// A counter of one slot.
fn counter(slot: usize, word: usize) -> Option<&'static AtomicU64> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    let slots = unsafe { COUNTED.load(Ordering::Acquire).as_ref() }?;
    slots.get((slot % SLOTS) * SLOT_WORDS + word)
}

#[inline]
fn add_word(word: usize, number: u64) {
    if number == 0 {
        return;
    }
    // SAFETY: no pointers involved. A failure returns -1, which selects a slot as well.
    let cpu = unsafe { libc::sched_getcpu() } as usize;
    if let Some(counter) = counter(cpu, word) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// Adds to a counter of a class.
#[inline]
pub fn add(class: ClassIndex, counter: Counter, number: u64) {
    add_word(class.word(counter), number);
}

/// The number of blocks that these bytes lie in.
fn blocks(off: u64, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    (off + len as u64 - 1) / BLOCK_LEN - off / BLOCK_LEN + 1
}

/// Counts a read at this offset by its outcome.
#[inline]
pub fn opened(class: ClassIndex, off: u64, outcome: &ReadOutcome) {
    let not_opened = outcome.zero_blocks + outcome.damaged_blocks;
    let opened = blocks(off, outcome.len).saturating_sub(not_opened);
    let bytes = (outcome.len as u64).saturating_sub(not_opened * BLOCK_LEN);
    add(class, Counter::OpenedBlocks, opened);
    add(class, Counter::OpenedBytes, bytes);
    if not_opened > 0 {
        add(class, Counter::ZeroBlocksRead, outcome.zero_blocks);
        add(class, Counter::FailedBlocks, outcome.damaged_blocks);
    }
}

/// Counts a write of `len` bytes at this offset. `zeros` blocks of it were written as zeros,
/// unsealed.
#[inline]
pub fn sealed(class: ClassIndex, off: u64, len: usize, zeros: u64) {
    add(class, Counter::SealedBlocks, blocks(off, len).saturating_sub(zeros));
    add(class, Counter::SealedBytes, (len as u64).saturating_sub(zeros * BLOCK_LEN));
    add(class, Counter::ZeroBlocksWritten, zeros);
}

/// Counts an operation on a sealed file that failed with this error.
pub fn failed(class: ClassIndex, error: &SealError) {
    match error {
        SealError::BlockDamaged(_) | SealError::BlockOlder(_) => {
            add(class, Counter::FailedBlocks, 1);
        }
        SealError::Header(_) | SealError::KeyUnknown { .. } => add(class, Counter::FailedFiles, 1),
        _ => {}
    }
}

/// Makes the shared memory. The postmaster calls this once, before it forks.
pub fn share() {
    if counter(0, 0).is_some() {
        return;
    }
    match map() {
        Ok(start) => {
            // SAFETY: the map is larger than its header.
            let slots = unsafe { start.add(HEADER_BYTES) };
            COUNTED.store(slots.cast(), Ordering::Release);
        }
        Err(errno) => log::line(format_args!(
            "WARNING: no memory for counters (errno {errno}): \"pgseal status\" will have none; the server runs on"
        )),
    }
}

/// Maps the memory, [`BYTES`] long, and writes its header. The descriptor stays open for readers.
fn map() -> Result<*mut u8, c_int> {
    let owned = sys::memory_file(MEMORY_NAME, true)?;
    let fd = owned.0;
    // SAFETY: no pointers involved.
    let private = unsafe { libc::fchmod(fd, 0o600) };
    // SAFETY: no pointers involved.
    let sized = unsafe { real::ftruncate(fd, BYTES as libc::off_t) };
    // Seals against truncation, which would kill the processes that count.
    if private != 0 || sized != 0 {
        return Err(real::errno());
    }
    sys::seal_memory_file(&owned, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new map at an address of the kernel's choice.
    let start = unsafe { real::mmap(ptr::null_mut(), BYTES, prot, libc::MAP_SHARED, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(real::errno());
    }
    let header = header();
    // SAFETY: the map is fresh, writable and larger than the header.
    unsafe { ptr::copy_nonoverlapping(header.as_ptr(), start.cast(), HEADER_BYTES) };
    core::mem::forget(owned);
    Ok(start.cast())
}

fn header() -> Vec<u8> {
    // SAFETY: a null pointer asks for the result alone.
    let now = u64::try_from(unsafe { libc::time(ptr::null_mut()) }).unwrap_or(0);
    STARTED_S.store(now, Ordering::Relaxed);
    let text = [
        env!("CARGO_PKG_VERSION").to_owned(),
        CLASSES.join(" "),
        COUNTERS.join(" "),
        COLUMN_COUNTERS.join(" "),
        String::new(),
    ]
    .join("\n");
    let numbers = [SLOTS, SLOT_BYTES, CLASSES.len(), COUNTERS.len(), COLUMN_COUNTERS.len()];
    let mut header = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    header.extend(numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()));
    header.extend(now.to_le_bytes());
    header.extend((text.len() as u32).to_le_bytes());
    debug_assert_eq!(header.len(), TEXT_OFF);
    header.extend(text.bytes());
    header.resize(HEADER_BYTES, 0);
    header
}

fn sum(word: usize) -> u64 {
    let slots = (0..SLOTS).filter_map(|slot| counter(slot, word));
    slots.fold(0, |sum, counter| sum.wrapping_add(counter.load(Ordering::Relaxed)))
}

/// For the extension: when counting began, seconds since 1970; 0 if nothing is counted here.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_counters_started() -> i64 {
    let counts = counter(0, 0).is_some();
    if counts { i64::try_from(STARTED_S.load(Ordering::Relaxed)).unwrap_or(0) } else { 0 }
}

/// For the extension: the name (truncated to its room, with NUL at the end) and the counters of the
/// class with this number, in the order of [`COUNTERS`]. Returns how many counters were written; 0
/// if there is no such class, or if nothing is counted here.
///
/// # Safety
/// `name` is valid for writes of `name_room` bytes, `values` of `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_counters_of_class(
    class: u32,
    name: *mut c_char,
    name_room: u32,
    values: *mut u64,
    room: u32,
) -> u32 {
    let Some(known) = CLASSES.get(class as usize).filter(|_| counter(0, 0).is_some()) else {
        return 0;
    };
    if name_room > 0 {
        // SAFETY: the caller's contract.
        let name =
            unsafe { core::slice::from_raw_parts_mut(name.cast::<u8>(), name_room as usize) };
        let (letters, end) = name.split_at_mut(known.len().min(name.len() - 1));
        letters.copy_from_slice(&known.as_bytes()[..letters.len()]);
        end[0] = 0;
    }
    let first = class as usize * COUNTERS.len();
    // SAFETY: the caller's contract.
    unsafe { write_sums(first, COUNTERS.len(), values, room) }
}

/// For the extension: the counters of column values of all sessions, in the order of
/// [`COLUMN_COUNTERS`]. Returns how many counters were written; 0 if nothing is counted here.
///
/// # Safety
/// `values` is valid for writes of `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_counters_of_columns(values: *mut u64, room: u32) -> u32 {
    if counter(0, 0).is_none() {
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe { write_sums(COLUMN_WORD, COLUMN_COUNTERS.len(), values, room) }
}

/// For the extension: adds the numbers of column values that this session sealed, opened and failed
/// to open since its last call.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_counters_add_columns(sealed: u64, opened: u64, failed: u64) {
    for (at, number) in [sealed, opened, failed].into_iter().enumerate() {
        add_word(COLUMN_WORD + at, number);
    }
}

/// # Safety
/// `values` is valid for writes of `room` numbers.
unsafe fn write_sums(first: usize, number: usize, values: *mut u64, room: u32) -> u32 {
    let number = number.min(room as usize);
    // SAFETY: no more than `room`, by the caller's contract.
    let values = unsafe { core::slice::from_raw_parts_mut(values, number) };
    for (value, word) in values.iter_mut().zip(first..) {
        *value = sum(word);
    }
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_whole_blocks() {
        for (off, len, wanted) in
            [(0, 0, 0), (0, 1, 1), (0, 8192, 1), (8191, 2, 2), (8192, 8193, 2), (100, 8192, 2)]
        {
            assert_eq!(blocks(off, len), wanted, "{off} {len}");
        }
    }

    /// Children add to the memory that their parent made, whatever CPU they run on.
    #[test]
    fn what_children_count_is_seen_by_the_parent() {
        let wal = ClassIndex::of(pgseal_pgdata::Class::Wal);
        add(wal, Counter::SealedBlocks, 1);
        assert_eq!(pgseal_counters_started(), 0, "nothing is counted before there is memory");
        share();
        assert!(pgseal_counters_started() > 0);
        for _ in 0..4 {
            // SAFETY: the child calls nothing but what is safe after fork in a threaded program.
            let child = unsafe { libc::fork() };
            if child == 0 {
                for _ in 0..1000 {
                    sealed(wal, 8000, 400, 0);
                }
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0);
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
        }
        let outcome = ReadOutcome {
            len: 4 * 8192,
            zero_blocks: 1,
            damaged_blocks: 1,
            ..ReadOutcome::default()
        };
        opened(wal, 0, &outcome);
        pgseal_counters_add_columns(3, 2, 1);

        let (mut name, mut values) = ([0 as c_char; 8], [0; 8]);
        // SAFETY: both have the room that is named.
        let got =
            unsafe { pgseal_counters_of_class(4, name.as_mut_ptr(), 8, values.as_mut_ptr(), 8) };
        assert_eq!(got, 8);
        assert_eq!(name[..4].iter().map(|byte| *byte as u8).collect::<Vec<_>>(), b"wal\0");
        assert_eq!(values, [8000, 1_600_000, 2, 16384, 1, 0, 1, 0]);
        // SAFETY: three numbers of the eight.
        assert_eq!(unsafe { pgseal_counters_of_columns(values.as_mut_ptr(), 3) }, 3);
        assert_eq!(values[..3], [3, 2, 1]);
        // SAFETY: as above.
        let beyond =
            unsafe { pgseal_counters_of_class(99, name.as_mut_ptr(), 8, values.as_mut_ptr(), 8) };
        assert_eq!(beyond, 0);
    }
}
