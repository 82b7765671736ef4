//! The entry of the WAL page that a server wrote last, in memory that its processes share, until
//! the next page is written (`spec/sealed-file.md`, section 8.3).
//!
//! One process at a time writes WAL: PostgreSQL's WALWriteLock, or the one WAL receiver, ensures
//! that. The postmaster makes the memory before its first fork. Without it, each write to the WAL
//! brings its own entries into the file.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pgseal_core::BlockNo;
use pgseal_core::storage::{Held, HeldEntry};

use crate::file::accelerators;
use crate::os::log;
use crate::os::sys;

/// The states of a slot. A process that is killed while it changes the slot leaves [`UNKNOWN`].
const UNKNOWN: u64 = 0;
const NOTHING: u64 = 1;
const ENTRY: u64 = 2;

/// What is kept: for which file, and of which page.
#[repr(C)]
#[derive(Default)]
struct Slot {
    state: AtomicU64,
    file_id: [AtomicU64; 2],
    block: AtomicU64,
    /// Nonce and tag, with four zeros behind.
    entry: [AtomicU64; 4],
}

/// The slot; null before [`share`].
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

fn slot() -> Option<&'static Slot> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    unsafe { SLOT.load(Ordering::Acquire).as_ref() }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(padded);
    }
    words
}

impl Slot {
    fn get(&self, file_id: &[u8; 16]) -> Held {
        let state = self.state.load(Ordering::Acquire);
        let own = self.file_id.each_ref().map(|word| word.load(Ordering::Relaxed));
        if own != words(file_id) {
            return Held::Unknown;
        }
        match state {
            NOTHING => Held::Known(None),
            ENTRY => {
                let mut entry = [0; 28];
                for (target, word) in entry.chunks_mut(8).zip(&self.entry) {
                    let bytes = word.load(Ordering::Relaxed).to_le_bytes();
                    target.copy_from_slice(&bytes[..target.len()]);
                }
                let block = BlockNo(self.block.load(Ordering::Relaxed));
                Held::Known(Some(HeldEntry { block, entry }))
            }
            _ => Held::Unknown,
        }
    }

    fn set(&self, file_id: &[u8; 16], held: Held) {
        self.state.store(UNKNOWN, Ordering::SeqCst);
        let state = match held {
            Held::NotKept | Held::Unknown => return,
            Held::Known(None) => NOTHING,
            Held::Known(Some(held)) => {
                self.block.store(held.block.0, Ordering::Relaxed);
                for (word, value) in self.entry.iter().zip(words::<4>(&held.entry)) {
                    word.store(value, Ordering::Relaxed);
                }
                ENTRY
            }
        };
        for (word, value) in self.file_id.iter().zip(words::<2>(file_id)) {
            word.store(value, Ordering::Relaxed);
        }
        self.state.store(state, Ordering::Release);
    }
}

/// What is kept of a file.
#[inline]
pub fn get(file_id: &[u8; 16]) -> Held {
    slot().map_or(Held::NotKept, |slot| slot.get(file_id))
}

/// Keeps what is known of a file, and forgets what was kept of another one.
#[inline]
pub fn set(file_id: &[u8; 16], held: Held) {
    if let Some(slot) = slot() {
        slot.set(file_id, held);
    }
}

/// Forgets everything: a recovery begins, and a process may have been killed while it wrote.
pub fn forget() {
    if let Some(slot) = slot() {
        slot.state.store(UNKNOWN, Ordering::SeqCst);
    }
}

/// Makes the shared memory. The postmaster calls this once, before it forks.
pub fn share() {
    if !accelerators::are_on() || slot().is_some() {
        return;
    }
    match sys::shared_memory(size_of::<Slot>()) {
        Ok(map) => SLOT.store(map.cast(), Ordering::Release),
        Err(errno) => log::line(format_args!(
            "WARNING: no shared memory for the entry of the last page of the WAL (errno {errno}); each commit writes a sector more"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_one_file() {
        let slot = Slot::default();
        let (one, other) = ([1; 16], [2; 16]);
        assert_eq!(slot.get(&one), Held::Unknown);
        // What was never set is not that of the file of zeros.
        assert_eq!(slot.get(&[0; 16]), Held::Unknown);
        let mut entry = [0; 28];
        entry.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
        let held = Held::Known(Some(HeldEntry { block: BlockNo(7), entry }));
        slot.set(&one, held);
        assert_eq!((slot.get(&one), slot.get(&other)), (held, Held::Unknown));
        slot.set(&other, Held::Known(None));
        assert_eq!((slot.get(&one), slot.get(&other)), (Held::Unknown, Held::Known(None)));
        slot.set(&other, Held::Unknown);
        assert_eq!(slot.get(&other), Held::Unknown);
    }
}
