//! Tags of pages that a process reads here and there.

use super::{ENTRY, TagCache};
use crate::error::SealError;
use crate::geometry::{GROUP_PAGES, tag_entry_off};
use crate::storage::Storage;
use crate::units::BlockNo;

/// Entries that are read together: a look at one costs the kernel no less.
const RUN: usize = 16;
const RUN_BYTES: usize = RUN * ENTRY;
/// Runs that are remembered, of all files of the process: 1.5 MiB for 384 MiB of pages.
const RUNS: usize = 3072;
/// Looks at single tags after which they are worth this memory.
const LOOKS: u32 = 32;

/// Runs of tag entries that were read for single pages, each in the one place that it can have.
///
/// They are used only as long as the storage says that no process has changed a tag of their group
/// since, so they open nothing that the tags on the disk would not open.
#[derive(Default)]
pub(in crate::file) struct RecentTags {
    runs: Vec<[u64; 3]>,
    entries: Vec<u8>,
    looks: u32,
}

impl core::fmt::Debug for RecentTags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RecentTags").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl RecentTags {
    /// Finds or reads the entry of a page; `None`: it has to be looked up on its own.
    pub(super) fn entry<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        tags: &TagCache,
        block: BlockNo,
    ) -> Result<Option<[u8; ENTRY]>, SealError> {
        // Before the entries are read: a change while we read makes them old at once.
        let Some(changes) = storage.tag_changes(tags.name_of(block.0 / GROUP_PAGES)) else {
            return Ok(None);
        };
        if self.runs.is_empty() {
            self.looks += 1;
            if self.looks <= LOOKS {
                return Ok(None);
            }
            // Zeros from the allocator: they cost memory as they are used.
            self.runs = vec![[0; 3]; RUNS];
            self.entries = vec![0; RUNS * RUN_BYTES];
        }
        let run = block.0 / RUN as u64;
        let name = [tags.serial, run, changes];
        let place = (tags.serial.wrapping_mul(0x9E37).wrapping_add(run) % RUNS as u64) as usize;
        let entries = &mut self.entries[place * RUN_BYTES..(place + 1) * RUN_BYTES];
        if self.runs[place] != name {
            self.runs[place] = [0; 3];
            let got = storage.read_at(entries, tag_entry_off(BlockNo(run * RUN as u64)))?;
            entries[got..].fill(0);
            self.runs[place] = name;
        }
        let at = (block.0 % RUN as u64) as usize * ENTRY;
        let mut entry = [0; ENTRY];
        entry.copy_from_slice(&entries[at..at + ENTRY]);
        Ok(Some(entry))
    }
}
