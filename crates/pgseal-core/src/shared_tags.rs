//! Tag entries of pages, in memory that all processes of a server share
//! (`spec/while-it-runs.md`, section 6).
//!
//! Reads of single pages in random order need one entry each. A [`SharedTags`] keeps *runs* of
//! [`RUN`] adjacent entries, as one call reads them from the file, in sets of [`WAYS`] runs. What
//! one process reads, the others need not read; what one writes, it changes here.
//!
//! An entry that is found here is the one that is in the file, as far as the processes of the
//! server wrote it: whoever has written entries changes or drops them here before its write ends,
//! and what was read from the file before that is not kept. So a page that the disk lost does not
//! open.
//!
//! Nobody waits for anybody. A set has a *state* that every change counts up. Who changes the runs
//! of a set locks it for these few instructions; a reader that finds a set locked, or changed after
//! it has looked, takes nothing from it. A writer that finds it locked only counts up, and the
//! holder of the lock then drops all runs of the set. A process that dies with the lock leaves the
//! set unused until the next recovery begins ([`SharedTags::begin_anew`]).

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::evp::prefetch;
use crate::geometry::TAG_ENTRY_LEN;
use crate::units::BlockNo;

/// Entries of a run, which are read from a file with one call: to read a single one costs the
/// kernel as much.
pub const RUN: usize = 16;
/// Runs of a set: with one, two files that are read in turn would push each other's runs out.
pub const WAYS: usize = 4;

const ENTRY: usize = TAG_ENTRY_LEN as usize;
/// Bytes of the entries of a run.
pub const RUN_BYTES: usize = RUN * ENTRY;
const ENTRY_WORDS: usize = ENTRY / 8;

/// The state of a set, in 64 bits: bit 0 says that it is locked, bits 1 to 31 count up with each
/// change, and the upper half is the epoch in which it was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u64);

const LOCKED: u64 = 1;
const CHANGE: u64 = 2;
const CHANGES: u64 = 0xFFFF_FFFE;
const EPOCH: u32 = 32;

impl State {
    fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    fn epoch(self) -> u32 {
        (self.0 >> EPOCH) as u32
    }

    /// The state after one more change.
    fn next(self, epoch: u32, locked: bool) -> State {
        let changes = self.0.wrapping_add(CHANGE) & CHANGES;
        State(u64::from(epoch) << EPOCH | changes | u64::from(locked))
    }

    /// A number that differs from change to change.
    fn count(self) -> usize {
        ((self.0 & CHANGES) >> 1) as usize
    }
}

/// The entries of one run.
#[derive(Debug)]
#[repr(C)]
struct Run([[AtomicU64; ENTRY_WORDS]; RUN]);

/// A set of runs. All zeros: it has none.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TagSet {
    state: AtomicU64,
    /// The names of the runs; 0: none. They are changed under the lock.
    names: [AtomicU64; WAYS],
    /// So that each pair of entries is one line of the processor's cache.
    _room: [u64; 3],
    runs: [Run; WAYS],
}

impl TagSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> TagSet {
        TagSet {
            state: AtomicU64::new(0),
            names: [const { AtomicU64::new(0) }; WAYS],
            _room: [0; 3],
            runs: [const { Run([const { [const { AtomicU64::new(0) }; ENTRY_WORDS] }; RUN]) };
                WAYS],
        }
    }

    fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    fn replace(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn way_of(&self, name: u64) -> Option<usize> {
        self.names.iter().position(|known| known.load(Ordering::Relaxed) == name)
    }

    fn drop_all(&self) {
        for name in &self.names {
            name.store(0, Ordering::Relaxed);
        }
    }

    /// Locks the set if its state is still this one. Runs of an earlier epoch are dropped.
    fn lock(&self, from: State, epoch: u32) -> Option<Lock<'_>> {
        let own = from.next(epoch, true);
        if !self.replace(from, own) {
            return None;
        }
        // The lock is seen before the runs change.
        fence(Ordering::Release);
        if from.epoch() != epoch {
            self.drop_all();
        }
        Some(Lock { set: self, own, epoch })
    }
}

impl Default for TagSet {
    fn default() -> TagSet {
        TagSet::new()
    }
}

/// A set that this process has locked.
struct Lock<'a> {
    set: &'a TagSet,
    own: State,
    epoch: u32,
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let mut state = self.own;
        // Somebody has written entries meanwhile, and could not change them here.
        while !self.set.replace(state, state.next(self.epoch, false)) {
            state = self.set.state();
            if !state.is_locked() || state.epoch() != self.epoch {
                // All processes were taken for dead, this one too.
                return;
            }
            self.set.drop_all();
        }
    }
}

impl Run {
    fn put(&self, index: usize, entry: &[u8; ENTRY]) {
        for (word, bytes) in self.0[index % RUN].iter().zip(entry.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    fn get(&self, index: usize) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        for (word, bytes) in self.0[index % RUN].iter().zip(entry.as_chunks_mut::<8>().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        entry
    }
}

/// The runs of one file.
#[derive(Clone, Copy, Debug)]
pub struct RunsOf {
    /// The index of the first set, before it is reduced to the number of sets.
    index: u64,
    name: u64,
}

impl RunsOf {
    /// Those of the file with this identity, which is random. Files with the same name would be
    /// given each other's entries, which open nothing.
    #[must_use]
    pub fn file(id: &[u8; 16]) -> RunsOf {
        let (words, _) = id.as_chunks::<8>();
        let [name, index] = [words[0], words[1]].map(u64::from_le_bytes);
        RunsOf { index, name }
    }

    /// The index of the set, and the name, of a run.
    #[inline]
    fn run(self, run: u64) -> (u64, u64) {
        let name = self.name.wrapping_add(run.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (self.index.wrapping_add(run), name.max(1))
    }
}

/// The state of a set before a run was read from its file.
#[derive(Clone, Copy, Debug)]
pub struct SeenSet(State);

/// The table of runs.
#[derive(Clone, Copy)]
pub struct SharedTags {
    sets: &'static [TagSet],
    epoch: &'static AtomicU32,
}

impl fmt::Debug for SharedTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTags").field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}

impl SharedTags {
    /// A table of these sets, as many as a power of two. `epoch` is shared as the sets are. `None`
    /// if the number of sets is no power of two.
    #[must_use]
    pub fn new(sets: &'static [TagSet], epoch: &'static AtomicU32) -> Option<SharedTags> {
        sets.len().is_power_of_two().then_some(SharedTags { sets, epoch })
    }

    #[inline]
    fn set(&self, index: u64) -> &'static TagSet {
        // The length is a power of two, so the index is in range.
        &self.sets[index as usize & (self.sets.len() - 1)]
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Prefetches what [`SharedTags::entry`] will read into the processor's cache.
    #[inline]
    pub fn prefetch(&self, file: RunsOf, block: BlockNo) {
        let set = self.set(file.run(block.0 / RUN as u64).0);
        prefetch(&set.state);
        for run in &set.runs {
            prefetch(&run.0[block.0 as usize % RUN]);
        }
    }

    /// The entry of a page, if its run is here.
    #[inline]
    #[must_use]
    pub fn entry(&self, file: RunsOf, block: BlockNo) -> Option<[u8; ENTRY]> {
        let (index, name) = file.run(block.0 / RUN as u64);
        let set = self.set(index);
        let state = set.state();
        if state.is_locked() || state.epoch() != self.epoch() {
            return None;
        }
        let entry = set.runs[set.way_of(name)?].get(block.0 as usize % RUN);
        // Name and entry belong together if the state is still the same.
        fence(Ordering::Acquire);
        (set.state.load(Ordering::Relaxed) == state.0).then_some(entry)
    }

    /// To be called before the run of this page is read from the file.
    #[must_use]
    pub fn before_read(&self, file: RunsOf, block: BlockNo) -> SeenSet {
        SeenSet(self.set(file.run(block.0 / RUN as u64).0).state())
    }

    /// Keeps the entries of the run of this page, unless somebody has changed the set since
    /// `before`. Another run of the set is pushed out.
    pub fn keep(&self, file: RunsOf, block: BlockNo, before: SeenSet, run: &[u8; RUN_BYTES]) {
        let (index, name) = file.run(block.0 / RUN as u64);
        let (set, SeenSet(state), epoch) = (self.set(index), before, self.epoch());
        if state.is_locked() && state.epoch() == epoch {
            return;
        }
        let Some(lock) = set.lock(state, epoch) else { return };
        let way = set.way_of(name).or_else(|| set.way_of(0)).unwrap_or(state.count() % WAYS);
        set.names[way].store(name, Ordering::Relaxed);
        for (at, entry) in run.as_chunks::<ENTRY>().0.iter().enumerate() {
            set.runs[way].put(at, entry);
        }
        drop(lock);
    }

    /// To be called after the entries of adjacent pages were written to the file: changes them
    /// here.
    pub fn written(&self, file: RunsOf, first: BlockNo, entries: &[u8]) {
        let mut entries = entries.as_chunks::<ENTRY>().0;
        let mut block = first.0;
        while !entries.is_empty() {
            let at = block as usize % RUN;
            let (of_run, rest) = entries.split_at((RUN - at).min(entries.len()));
            self.change(file, block / RUN as u64, Some((at, of_run)));
            block += of_run.len() as u64;
            entries = rest;
        }
    }

    /// Drops the runs of these pages, whose entries were changed otherwise, or perhaps not.
    pub fn forget(&self, file: RunsOf, blocks: core::ops::Range<u64>) {
        for run in blocks.start / RUN as u64..blocks.end.div_ceil(RUN as u64) {
            self.change(file, run, None);
        }
    }

    /// Changes some entries of a run, if it is here, or drops it.
    fn change(&self, file: RunsOf, run: u64, entries: Option<(usize, &[[u8; ENTRY]])>) {
        let (index, name) = file.run(run);
        let (set, epoch) = (self.set(index), self.epoch());
        loop {
            let state = set.state();
            if state.epoch() != epoch || state.is_locked() {
                // It has nothing, or the holder of the lock drops everything. Who reads the run
                // from the file meanwhile does not keep it.
                if set.replace(state, state.next(state.epoch(), state.is_locked())) {
                    return;
                }
                continue;
            }
            let Some(way) = set.way_of(name) else {
                if set.replace(state, state.next(epoch, false)) {
                    return;
                }
                continue;
            };
            let Some(lock) = set.lock(state, epoch) else { continue };
            match entries {
                None => set.names[way].store(0, Ordering::Relaxed),
                Some((at, entries)) => {
                    for (index, entry) in (at..).zip(entries) {
                        set.runs[way].put(index, entry);
                    }
                }
            }
            drop(lock);
            return;
        }
    }

    /// To be called when a recovery begins: all processes that were changing a set are dead.
    /// Nothing is known any more.
    pub fn begin_anew(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that dies with the lock of a set takes the set out of use until the next recovery
    /// begins, and nobody waits for it. If it lives after all, it changes nothing any more.
    #[test]
    fn nobody_waits_for_a_process_that_died() {
        let sets = Vec::leak(vec![TagSet::new()]);
        let table = SharedTags::new(sets, Box::leak(Box::new(AtomicU32::new(0)))).unwrap();
        let (file, block, run) = (RunsOf::file(&[7; 16]), BlockNo(3), [9; RUN_BYTES]);
        let keep = || table.keep(file, block, table.before_read(file, block), &run);
        keep();
        assert_eq!(table.entry(file, block), Some([9; ENTRY]));
        let dead = table.sets[0].lock(table.sets[0].state(), 0).unwrap();
        keep();
        table.written(file, block, &[8; ENTRY]);
        table.forget(file, 0..1);
        assert_eq!(table.entry(file, block), None);
        table.begin_anew();
        assert_eq!(table.entry(file, block), None);
        keep();
        assert_eq!(table.entry(file, block), Some([9; ENTRY]));
        drop(dead);
        assert_eq!(table.entry(file, block), Some([9; ENTRY]));
    }

    /// A write that finds the set locked drops what its holder has.
    #[test]
    fn a_write_while_the_set_is_locked_leaves_nothing_known() {
        let sets = Vec::leak(vec![TagSet::new()]);
        let table = SharedTags::new(sets, Box::leak(Box::new(AtomicU32::new(0)))).unwrap();
        let (file, run) = (RunsOf::file(&[7; 16]), [9; RUN_BYTES]);
        for block in [BlockNo(0), BlockNo(16)] {
            table.keep(file, block, table.before_read(file, block), &run);
        }
        let lock = table.sets[0].lock(table.sets[0].state(), 0).unwrap();
        table.written(file, BlockNo(5), &[8; ENTRY]);
        drop(lock);
        assert_eq!([0, 5, 16].map(|block| table.entry(file, BlockNo(block))), [None; 3]);
        table.keep(file, BlockNo(0), table.before_read(file, BlockNo(0)), &run);
        assert_eq!(table.entry(file, BlockNo(5)), Some([9; ENTRY]));
    }
}
