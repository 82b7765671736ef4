//! What a process remembers of the tags of a paged file.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{ENTRY, RecentTags};
use crate::error::SealError;
use crate::geometry::{GROUP_PAGES, TAG_BLOCK_LEN, tag_block_off, tag_entry_off};
use crate::header::Header;
use crate::memory;
use crate::storage::{Accelerator, GroupName};
use crate::units::BlockNo;

const TAG_BLOCK: usize = TAG_BLOCK_LEN as usize;
const NO_GROUP: u64 = u64::MAX;

/// The tag block that was read last, and the entry that was read last on its own: the first page
/// of a group that is read may be the only one (an index look-up), the second one right behind it
/// makes it worth to have the whole block (a scan).
///
/// Another process may have written pages of the group since. Where the processes count changes of
/// tags ([`Accelerator::tag_changes`]), the block is read again then. Elsewhere that is safe for a suite
/// that authenticates: an old entry opens no new page, and a page that does not open has its tag
/// block read again. For CTR, which would return garbage, the cache is not used.
pub(in crate::file) struct TagCache {
    /// Whether anything is remembered from one operation to the next.
    remembers: bool,
    pub(super) group: u64,
    pub(super) bytes: Box<[u8]>,
    /// What the changes of the group were before its block was read.
    changes: Option<u64>,
    single: (BlockNo, [u8; ENTRY]),
    /// The name of the first group, from the random identity of the file.
    first_name: u64,
    /// Names the file among those that this process has opened.
    pub(super) serial: u64,
}

impl TagCache {
    /// An empty cache; it gets its memory with the first tag block.
    pub(in crate::file) fn new(header: &Header) -> TagCache {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let mut name = [0; 8];
        name.copy_from_slice(&header.file_id[..8]);
        TagCache {
            remembers: header.suite.authenticates(),
            group: NO_GROUP,
            bytes: Box::default(),
            changes: None,
            single: (BlockNo(u64::MAX), [0; ENTRY]),
            first_name: u64::from_le_bytes(name),
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The name of a group of the file.
    pub(super) fn name_of(&self, group: u64) -> GroupName {
        GroupName(self.first_name.wrapping_add(group))
    }

    /// Whether the tag block of this group is remembered, and no process that counts has changed it.
    pub(super) fn has<S: Accelerator + ?Sized>(&self, storage: &S, group: u64) -> bool {
        self.remembers
            && self.group == group
            && self.changes == storage.tag_changes(self.name_of(group))
    }

    /// A page is read next: what [`TagCache::prepare`] will look at behind the tag block that is here
    /// is fetched meanwhile.
    pub(super) fn expect(&self, block: BlockNo, recent: &RecentTags) {
        if self.group != block.0 / GROUP_PAGES {
            recent.prefetch(self, block);
        }
    }

    /// Has the entry of a page at hand, as far as this process knows it.
    pub(super) fn prepare<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
        recent: &mut RecentTags,
    ) -> Result<(), SealError> {
        let group = block.0 / GROUP_PAGES;
        if self.has(storage, group) {
            self.single.0 = BlockNo(u64::MAX);
            return Ok(());
        }
        if self.group == group {
            self.group = NO_GROUP;
        }
        if self.single.0.0 / GROUP_PAGES == group && self.remembers {
            return self.load(storage, block);
        }
        // The block of another group stays: a scan goes on behind a look at a page elsewhere.
        self.single.0 = BlockNo(u64::MAX);
        let known = if self.remembers { recent.entry(storage, self, block)? } else { None };
        if let Some(entry) = known {
            self.single.1 = entry;
            self.single.0 = block;
            return Ok(());
        }
        self.look_up(storage, block)
    }

    /// Reads the entry of a page on its own.
    fn look_up<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
    ) -> Result<(), SealError> {
        self.single.0 = BlockNo(u64::MAX);
        let got = storage.read_at(&mut self.single.1, tag_entry_off(block))?;
        self.single.1[got..].fill(0);
        self.single.0 = block;
        Ok(())
    }

    /// Has the entry of a page at hand for sure: where there is no memory for the tag block, the
    /// pages of a group are looked up one by one.
    pub(super) fn ensure<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
    ) -> Result<(), SealError> {
        if self.group == block.0 / GROUP_PAGES || self.single.0 == block {
            return Ok(());
        }
        self.look_up(storage, block)
    }

    /// Reads the tag block of the group of this page; if there is no memory for one, its entry alone.
    pub(super) fn load<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
    ) -> Result<(), SealError> {
        let group = block.0 / GROUP_PAGES;
        self.group = NO_GROUP;
        if self.bytes.is_empty() {
            match memory::zeros(TAG_BLOCK) {
                Ok(bytes) => self.bytes = bytes.into_boxed_slice(),
                Err(_) => return self.look_up(storage, block),
            }
        }
        // Before the block is read: a change while we read makes it old at once.
        self.changes = storage.tag_changes(self.name_of(group));
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
        // Only if it is one of them: VACUUM writes pages behind those that it reads.
        let index = self.single.0.0.wrapping_sub(first.0);
        if let Some(entry) = usize::try_from(index).ok().and_then(|i| entries.as_chunks().0.get(i))
        {
            self.single.1 = *entry;
        }
    }

    /// Tags of the group of this page were changed by us, and [`TagCache::store`] knows how.
    pub(super) fn count_change<S: Accelerator + ?Sized>(&mut self, storage: &S, block: BlockNo) {
        let group = block.0 / GROUP_PAGES;
        let before = storage.count_tag_change(self.name_of(group));
        if self.group == group && self.changes == before {
            self.changes = before.map(|changes| changes + 1);
        }
    }
}
