//! A cache of tag entries for reads of single pages in random order.

use super::{ENTRY, TagCache};
use crate::error::SealError;
use crate::evp::prefetch;
use crate::file::Buffer;
use crate::geometry::{GROUP_PAGES, tag_entry_off};
use crate::memory::OutOfMemory;
use crate::storage::Accelerator;
use crate::units::BlockNo;

/// Entries that are read with one call: reading a single entry costs the kernel as much.
const RUN: usize = 16;
const RUN_BYTES: usize = RUN * ENTRY;
/// Runs in one set of the cache: with one, two files that are read in turn would evict each other's
/// runs.
const WAYS: usize = 4;
const SETS: usize = 1024;
/// Bytes of all cached entries, for all files of the process: 2 MiB for 512 MiB of pages.
const ENTRIES: usize = SETS * WAYS * RUN_BYTES;
/// Lookups of single tags after which the process allocates the cache.
const LOOKS: u32 = 32;

/// The index of the set in which a run of a file is cached.
fn set_of(serial: u64, run: u64) -> usize {
    (serial.wrapping_mul(0x9E37).wrapping_add(run) % SETS as u64) as usize
}

/// The key of a cached run: the file and the run in one number, and the change counter of the group
/// when the run was read. All zeros mean that nothing is cached, as no file has the serial number
/// 0.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Name {
    run_of_file: u64,
    changes: u64,
}

impl Name {
    /// `None` if the serial number of the file or the number of the run does not fit in 32 bits.
    fn new(serial: u64, run: u64, changes: u64) -> Option<Name> {
        let fits = serial < 1 << 32 && run < 1 << 32;
        fits.then_some(Name { run_of_file: serial << 32 | run, changes })
    }
}

/// The keys of the runs in one set, in one line of the processor's cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Name; WAYS]);

/// A set-associative cache of runs of tag entries that were read for single pages.
///
/// A cached run is used only as long as the storage says that no process has changed a tag of its
/// group since, so cached entries open nothing that the tags on the disk would not open.
#[derive(Default)]
pub(in crate::file) struct RecentTags {
    sets: Vec<Set>,
    entries: Buffer,
    looks: u32,
    /// The way that was evicted last, in any set; the next eviction takes the way after it.
    hand: usize,
}

impl core::fmt::Debug for RecentTags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RecentTags").field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}

impl RecentTags {
    /// Returns the tag entry of a page, from the cache or read from the storage with its run.
    /// `None`: the caller has to read the entry on its own.
    pub(super) fn entry<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        tags: &TagCache,
        block: BlockNo,
    ) -> Result<Option<[u8; ENTRY]>, SealError> {
        // Read the counter before the entries: a change during the read then makes the entries out
        // of date.
        let Some(changes) = storage.tag_changes(tags.name_of(block.0 / GROUP_PAGES)) else {
            return Ok(None);
        };
        if self.sets.is_empty() {
            self.looks += 1;
            if self.looks <= LOOKS {
                return Ok(None);
            }
            if self.take_memory().is_err() {
                // Without this memory each tag is read on its own. The allocation is retried after
                // as many lookups.
                self.looks = 0;
                return Ok(None);
            }
        }
        let run = block.0 / RUN as u64;
        let Some(name) = Name::new(tags.serial, run, changes) else { return Ok(None) };
        let set = set_of(tags.serial, run);
        let way = self.way_of(set, name);
        let at = (set * WAYS + way) * RUN_BYTES;
        // The memory comes from the kernel as it is used.
        let entries = &mut self.entries.room(ENTRIES)?[at..at + RUN_BYTES];
        let known = &mut self.sets[set].0[way];
        if *known != name {
            *known = Name::default();
            let got = storage.read_at(entries, tag_entry_off(BlockNo(run * RUN as u64)))?;
            entries[got..].fill(0);
            *known = name;
        }
        let at = (block.0 % RUN as u64) as usize * ENTRY;
        let mut entry = [0; ENTRY];
        entry.copy_from_slice(&entries[at..at + ENTRY]);
        Ok(Some(entry))
    }

    /// Allocates the memory of the whole cache, or none.
    fn take_memory(&mut self) -> Result<(), OutOfMemory> {
        let mut sets = Vec::new();
        sets.try_reserve_exact(SETS)?;
        self.entries.room(ENTRIES)?;
        sets.resize(SETS, Set::default());
        self.sets = sets;
        Ok(())
    }

    /// Prefetches what [`RecentTags::entry`] will read for this page into the processor's cache.
    /// The caller reads the page from the storage meanwhile, which takes longer.
    pub(super) fn prefetch(&self, tags: &TagCache, block: BlockNo) {
        let set = set_of(tags.serial, block.0 / RUN as u64);
        let Some(names) = self.sets.get(set) else { return };
        prefetch(names);
        let entries = self.entries.bytes(ENTRIES);
        let at = set * WAYS * RUN_BYTES + (block.0 % RUN as u64) as usize * ENTRY;
        entries.get(at..).unwrap_or_default().chunks(RUN_BYTES).take(WAYS).for_each(prefetch);
    }

    /// The way of the set for this run: the way that holds the run already, even if out of date,
    /// else an empty way, else the way of another run, which is evicted.
    fn way_of(&mut self, set: usize, name: Name) -> usize {
        let ways = &self.sets[set].0;
        let runs = |run_of_file: u64| ways.iter().position(|way| way.run_of_file == run_of_file);
        runs(name.run_of_file).or_else(|| runs(0)).unwrap_or_else(|| {
            self.hand = (self.hand + 1) % WAYS;
            self.hand
        })
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::io;

    use super::*;
    use crate::storage::mem::MemStorage;
    use crate::storage::{GroupName, Storage};
    use crate::suite::{Layout, Suite};
    use crate::testing::new_file;
    use crate::units::{SealedLen, SealedOff};

    /// A storage whose tag entries hold their own offset and the number of changes so far.
    #[derive(Default)]
    struct Entries {
        changes: Cell<u64>,
        reads: Cell<u64>,
    }

    impl Storage for Entries {
        fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
            self.reads.set(self.reads.get() + 1);
            for (index, entry) in buf.chunks_mut(ENTRY).enumerate() {
                let at = off.0 + (index * ENTRY) as u64;
                entry[..8].copy_from_slice(&at.to_le_bytes());
                entry[8..16].copy_from_slice(&self.changes.get().to_le_bytes());
            }
            Ok(buf.len())
        }
        fn write_at(&self, _: &[u8], _: SealedOff) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn len(&self) -> io::Result<SealedLen> {
            Ok(SealedLen(u64::MAX))
        }
        fn set_len(&self, _: SealedLen) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Accelerator for Entries {
        fn tag_changes(&self, _: GroupName) -> Option<u64> {
            Some(self.changes.get())
        }
    }

    fn tags_of_a_file() -> TagCache {
        let file = new_file(&MemStorage::default(), Suite::Aes256Gcm, Layout::Paged).unwrap();
        TagCache::new(file.header())
    }

    fn check(recent: &mut RecentTags, storage: &Entries, file: &TagCache, block: u64) {
        let block = BlockNo(block);
        let Some(entry) = recent.entry(storage, file, block).unwrap() else { return };
        let (at, changes) = entry[..16].split_at(8);
        assert_eq!(at, tag_entry_off(block).0.to_le_bytes(), "block {}", block.0);
        assert_eq!(changes, storage.changes.get().to_le_bytes(), "block {}", block.0);
    }

    #[test]
    fn every_entry_is_the_right_one_whatever_is_pushed_out_or_changed() {
        let (mut recent, storage) = (RecentTags::default(), Entries::default());
        let files: Vec<TagCache> = (0..3).map(|_| tags_of_a_file()).collect();
        for round in 0..60_000_u64 {
            if round % 9000 == 0 {
                storage.changes.set(storage.changes.get() + 1);
            }
            let mixed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            check(&mut recent, &storage, &files[(mixed % 3) as usize], mixed % 70_000);
        }
    }

    #[test]
    fn files_of_half_a_gigabyte_together_are_read_once() {
        let (mut recent, storage) = (RecentTags::default(), Entries::default());
        let files: Vec<TagCache> = (0..4).map(|_| tags_of_a_file()).collect();
        let pages = (512 << 20) / 8192 / 4;
        let all = |recent: &mut RecentTags| {
            for block in (0..pages).step_by(RUN) {
                for file in &files {
                    check(recent, &storage, file, block);
                }
            }
        };
        all(&mut recent);
        all(&mut recent);
        let before = storage.reads.get();
        all(&mut recent);
        let again = storage.reads.get() - before;
        assert!(again < 4 * pages / RUN as u64 / 20, "{again} runs were read again");
    }
}
