//! What a process remembers of the tags of a paged file.

use super::ENTRY;
use crate::error::SealError;
use crate::geometry::{GROUP_PAGES, TAG_BLOCK_LEN, tag_block_off, tag_entry_off};
use crate::storage::Storage;
use crate::units::BlockNo;

const TAG_BLOCK: usize = TAG_BLOCK_LEN as usize;
const NO_GROUP: u64 = u64::MAX;

/// The tag block that was read last, and the entry that was read last on its own: the first page
/// of a group that is read may be the only one (an index look-up), the second one makes it worth
/// to have the whole block (a scan).
///
/// Another process may have written pages of the group since. That is safe for a suite that
/// authenticates: an old entry opens no new page, and a page that does not open has its tag block
/// read again. For CTR, which would return garbage, the cache is not used.
pub(in crate::file) struct TagCache {
    pub(super) group: u64,
    pub(super) bytes: Box<[u8]>,
    pub(super) single: (BlockNo, [u8; ENTRY]),
}

impl TagCache {
    /// An empty cache; it gets its memory with the first tag block.
    pub(in crate::file) fn new() -> TagCache {
        TagCache { group: NO_GROUP, bytes: Box::default(), single: (BlockNo(u64::MAX), [0; ENTRY]) }
    }

    /// Has the entry of a page at hand, as far as this process knows it.
    pub(super) fn prepare<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
        fresh: bool,
    ) -> Result<(), SealError> {
        let group = block.0 / GROUP_PAGES;
        if self.group == group && !fresh {
            return Ok(());
        }
        if self.single.0.0 / GROUP_PAGES == group && !fresh {
            return self.load(storage, group);
        }
        self.group = NO_GROUP;
        self.single.0 = BlockNo(u64::MAX);
        let got = storage.read_at(&mut self.single.1, tag_entry_off(block))?;
        self.single.1[got..].fill(0);
        self.single.0 = block;
        Ok(())
    }

    pub(super) fn load<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        group: u64,
    ) -> Result<(), SealError> {
        self.group = NO_GROUP;
        if self.bytes.is_empty() {
            self.bytes = vec![0; TAG_BLOCK].into_boxed_slice();
        }
        let got = storage.read_at(&mut self.bytes, tag_block_off(group))?;
        self.bytes[got..].fill(0);
        self.group = group;
        Ok(())
    }

    /// The entry of a page that [`TagCache::prepare`] or [`TagCache::load`] has at hand; for any
    /// other page one that opens nothing.
    pub(super) fn entry(&self, block: BlockNo) -> [u8; ENTRY] {
        if self.group != block.0 / GROUP_PAGES {
            return if self.single.0 == block { self.single.1 } else { [0xFF; ENTRY] };
        }
        let at = (block.0 % GROUP_PAGES) as usize * ENTRY;
        let mut entry = [0; ENTRY];
        entry.copy_from_slice(&self.bytes[at..at + ENTRY]);
        entry
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.group = NO_GROUP;
        self.single.0 = BlockNo(u64::MAX);
    }

    /// Remembers entries that this process has just written.
    pub(in crate::file) fn store(&mut self, first: BlockNo, entries: &[u8]) {
        if self.group == first.0 / GROUP_PAGES {
            let at = (first.0 % GROUP_PAGES) as usize * ENTRY;
            self.bytes[at..at + entries.len()].copy_from_slice(entries);
        }
        self.single.0 = BlockNo(u64::MAX);
    }
}
