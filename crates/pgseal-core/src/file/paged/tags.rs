//! The tags that a process caches of a paged file.

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

/// The tag block that was read last, and the entry that was read last on its own. The first page
/// that is read in a group may be the only one (an index look-up), so its entry is read alone. A
/// second page of the same group right after it suggests a scan, so the whole tag block is read.
///
/// Another process may have written pages of the group since. Where the processes count changes of
/// tags ([`Accelerator::tag_changes`]), a changed counter invalidates the cached block. Elsewhere
/// an old block is safe for a suite that authenticates: an old entry opens no new page, and the tag
/// block of a page that does not open is read again. For CTR, where an old entry would return
/// garbage, the cache is not used.
pub(in crate::file) struct TagCache {
    /// Whether the suite authenticates: then an old entry opens no new page, and entries may be
    /// cached from one operation to the next.
    authenticates: bool,
    pub(super) group: u64,
    pub(super) bytes: Box<[u8]>,
    /// The change counter of the group before its tag block was read.
    changes: Option<u64>,
    single: (BlockNo, [u8; ENTRY]),
    /// The name of the first group, from the random identity of the file.
    first_name: u64,
    /// Identifies the file among those that this process has opened.
    pub(in crate::file) serial: u64,
}

impl TagCache {
    /// An empty cache; it gets its memory with the first tag block.
    pub(in crate::file) fn new(header: &Header) -> TagCache {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let mut name = [0; 8];
        name.copy_from_slice(&header.file_id[..8]);
        TagCache {
            authenticates: header.suite.authenticates(),
            group: NO_GROUP,
            bytes: Box::default(),
            changes: None,
            single: (BlockNo(u64::MAX), [0; ENTRY]),
            first_name: u64::from_le_bytes(name),
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The name of a group of the file.
    pub(in crate::file) fn name_of(&self, group: u64) -> GroupName {
        GroupName(self.first_name.wrapping_add(group))
    }

    /// Whether tags are cached from one operation to the next.
    fn remembers<S: Accelerator + ?Sized>(&self, storage: &S) -> bool {
        self.authenticates && storage.remembers_tags()
    }

    /// Whether the tag block of this group is cached, and no process that counts changes has
    /// changed it.
    pub(super) fn has<S: Accelerator + ?Sized>(&self, storage: &S, group: u64) -> bool {
        self.group == group
            && self.remembers(storage)
            && self.changes == storage.tag_changes(self.name_of(group))
    }

    /// Call before reading a page: prefetches what [`TagCache::prepare`] will look up in `recent`,
    /// unless the loaded tag block covers the page.
    pub(super) fn expect(&self, block: BlockNo, recent: &RecentTags) {
        if self.group != block.0 / GROUP_PAGES {
            recent.prefetch(self, block);
        }
    }

    /// Loads the entry of a page for [`TagCache::entry`], from a cache if possible. A cached entry
    /// may be out of date where changes are not counted.
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
        let remembers = self.remembers(storage);
        if self.single.0.0 / GROUP_PAGES == group && remembers {
            return self.load(storage, block);
        }
        // The block of another group stays cached: a scan of that group may continue after this
        // read.
        self.single.0 = BlockNo(u64::MAX);
        let known = if remembers { recent.entry(storage, self, block)? } else { None };
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

    /// Loads the entry of a page if it is not loaded yet: without memory for the tag block, the
    /// entries of a group are read one by one.
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

    /// Reads the tag block of the group of this page; if there is no memory for the block, reads
    /// only the entry of the page.
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
        // Read the counter before the block: a change during the read then makes the block out of
        // date.
        self.changes = storage.tag_changes(self.name_of(group));
        let got = storage.read_at(&mut self.bytes, tag_block_off(group))?;
        self.bytes[got..].fill(0);
        self.group = group;
        Ok(())
    }

    /// The loaded entry of a page ([`TagCache::prepare`], [`TagCache::ensure`],
    /// [`TagCache::load`]); for any other page an entry that opens nothing.
    pub(super) fn entry(&self, block: BlockNo) -> [u8; ENTRY] {
        if self.group != block.0 / GROUP_PAGES {
            return if self.single.0 == block { self.single.1 } else { [0xFF; ENTRY] };
        }
        let at = (block.0 % GROUP_PAGES) as usize * ENTRY;
        let mut entry = [0; ENTRY];
        entry.copy_from_slice(&self.bytes[at..at + ENTRY]);
        entry
    }

    /// Drops the cached block and the cached entry.
    pub(super) fn clear(&mut self) {
        self.group = NO_GROUP;
        self.single.0 = BlockNo(u64::MAX);
    }

    /// Updates the cache with entries that this process has just written.
    pub(in crate::file) fn store(&mut self, first: BlockNo, entries: &[u8]) {
        if self.group == first.0 / GROUP_PAGES {
            let at = (first.0 % GROUP_PAGES) as usize * ENTRY;
            self.bytes[at..at + entries.len()].copy_from_slice(entries);
        }
        // Replace the single entry only if it is among `entries`: VACUUM writes pages that it read
        // earlier, and reads on elsewhere.
        let index = self.single.0.0.wrapping_sub(first.0);
        if let Some(entry) = usize::try_from(index).ok().and_then(|i| entries.as_chunks().0.get(i))
        {
            self.single.1 = *entry;
        }
    }

    /// Counts a change that this process made to tags of the group of this page. The cached block,
    /// which [`TagCache::store`] has updated, stays valid unless another process changed the group
    /// as well.
    pub(super) fn count_change<S: Accelerator + ?Sized>(&mut self, storage: &S, block: BlockNo) {
        let group = block.0 / GROUP_PAGES;
        let before = storage.count_tag_change(self.name_of(group));
        if self.group == group && self.changes == before {
            self.changes = before.map(|changes| changes + 1);
        }
    }
}
