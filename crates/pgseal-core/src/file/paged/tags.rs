//! The tags that a process has at hand of a paged file.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{ENTRY, TagBlocks};
use crate::error::SealError;
use crate::geometry::{GROUP_PAGES, tag_block_off, tag_entry_off};
use crate::header::Header;
use crate::shared_tags::{RUN, RUN_BYTES, RunsOf, SharedTags};
use crate::storage::{Accelerator, GroupName};
use crate::units::BlockNo;

const NO_BLOCK: BlockNo = BlockNo(u64::MAX);

/// Where the tags of a file come from: a tag block that this process has ([`TagBlocks`]), runs of
/// entries that the processes of a server share ([`SharedTags`]), or the file. Has the entry that
/// was read last on its own.
///
/// The first page that is read in a group may be the only one (an index look-up), so its entry is
/// read alone, or with its run. A second page of the same group right after it, whose run is not
/// known, suggests a scan: then the whole tag block is read.
///
/// Another process may have written pages of the group since. Where the processes count changes of
/// tags ([`Accelerator::tag_changes`]), a changed counter invalidates a tag block. Elsewhere an old
/// block is safe for a suite that authenticates: an old entry opens no new page, and the tag block
/// of a page that does not open is read again. For CTR, where an old entry would return garbage,
/// nothing is kept from one operation to the next.
pub(in crate::file) struct TagCache {
    /// Whether the suite authenticates: then an old entry opens no new page, and entries may be
    /// kept from one operation to the next.
    authenticates: bool,
    single: (BlockNo, [u8; ENTRY]),
    /// The name of the first group, from the random identity of the file.
    first_name: u64,
    runs: RunsOf,
    /// Identifies the file among those that this process has opened.
    pub(in crate::file) serial: u64,
}

impl TagCache {
    /// Of a file with this header, without any tags.
    pub(in crate::file) fn new(header: &Header) -> TagCache {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let mut name = [0; 8];
        name.copy_from_slice(&header.file_id[..8]);
        TagCache {
            authenticates: header.suite.authenticates(),
            single: (NO_BLOCK, [0; ENTRY]),
            first_name: u64::from_le_bytes(name),
            runs: RunsOf::file(&header.file_id),
            serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The name of a group of the file.
    pub(in crate::file) fn name_of(&self, group: u64) -> GroupName {
        GroupName(self.first_name.wrapping_add(group))
    }

    /// Whether tags are kept from one operation to the next.
    fn remembers<S: Accelerator + ?Sized>(&self, storage: &S) -> bool {
        self.authenticates && storage.remembers_tags()
    }

    /// The shared runs, if this file's are among them.
    fn shared<'a, S: Accelerator + ?Sized>(&self, storage: &'a S) -> Option<&'a SharedTags> {
        storage.shared_tags().filter(|_| self.remembers(storage))
    }

    /// Whether the tag block of this group is here, and no process that counts changes has changed
    /// it.
    pub(super) fn has<S: Accelerator + ?Sized>(
        &self,
        storage: &S,
        blocks: &mut TagBlocks,
        group: u64,
    ) -> bool {
        self.remembers(storage)
            && blocks
                .using(self.serial, group)
                .is_some_and(|block| block.changes == storage.tag_changes(self.name_of(group)))
    }

    /// Call before reading a page: prefetches what [`TagCache::prepare`] will look up in the shared
    /// runs, unless a tag block covers the page.
    pub(super) fn expect<S: Accelerator + ?Sized>(
        &self,
        storage: &S,
        blocks: &TagBlocks,
        block: BlockNo,
    ) {
        if let Some(shared) = self.shared(storage)
            && blocks.get(self.serial, block.0 / GROUP_PAGES).is_none()
        {
            shared.prefetch(self.runs, block);
        }
    }

    /// Gets the entry of a page for [`TagCache::entry`], from memory if possible. It may be out of
    /// date where changes are not counted.
    pub(super) fn prepare<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        blocks: &mut TagBlocks,
        block: BlockNo,
    ) -> Result<(), SealError> {
        let group = block.0 / GROUP_PAGES;
        if self.has(storage, blocks, group) {
            self.single.0 = NO_BLOCK;
            return Ok(());
        }
        blocks.drop_group(self.serial, group);
        let shared = self.shared(storage);
        if let Some(entry) = shared.and_then(|shared| shared.entry(self.runs, block)) {
            self.single = (block, entry);
            return Ok(());
        }
        if self.single.0.0 / GROUP_PAGES == group && self.remembers(storage) {
            return self.load(storage, blocks, block);
        }
        match shared {
            Some(shared) => self.read_run(storage, shared, block),
            None => self.look_up(storage, block),
        }
    }

    /// Reads the entry of a page on its own.
    fn look_up<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        block: BlockNo,
    ) -> Result<(), SealError> {
        self.single.0 = NO_BLOCK;
        let got = storage.read_at(&mut self.single.1, tag_entry_off(block))?;
        self.single.1[got..].fill(0);
        self.single.0 = block;
        Ok(())
    }

    /// Reads the entry of a page with its run, for all processes.
    fn read_run<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        shared: &SharedTags,
        block: BlockNo,
    ) -> Result<(), SealError> {
        self.single.0 = NO_BLOCK;
        let mut run = [0; RUN_BYTES];
        let at = block.0 as usize % RUN;
        let first = BlockNo(block.0 - at as u64);
        let before = shared.before_read(self.runs, block);
        let got = storage.read_at(&mut run, tag_entry_off(first))?;
        run[got..].fill(0);
        shared.keep(self.runs, block, before, &run);
        self.single = (block, run.as_chunks().0[at]);
        Ok(())
    }

    /// Gets the entry of a page if it is not here yet: without memory for the tag block, the
    /// entries of a group are read one by one.
    pub(super) fn ensure<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        blocks: &TagBlocks,
        block: BlockNo,
    ) -> Result<(), SealError> {
        let is_here = blocks.get(self.serial, block.0 / GROUP_PAGES).is_some();
        if is_here || self.single.0 == block {
            return Ok(());
        }
        self.look_up(storage, block)
    }

    /// Reads the tag block of the group of this page; if there is no memory for the block, reads
    /// only the entry of the page.
    pub(super) fn load<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        blocks: &mut TagBlocks,
        block: BlockNo,
    ) -> Result<(), SealError> {
        let group = block.0 / GROUP_PAGES;
        let Ok(taken) = blocks.take(self.serial, group) else {
            return self.look_up(storage, block);
        };
        // Read the counter before the block: a change during the read then makes the block out of
        // date.
        taken.changes = storage.tag_changes(self.name_of(group));
        let got = storage.read_at(&mut taken.bytes, tag_block_off(group))?;
        taken.bytes[got..].fill(0);
        blocks.enter(self.serial, group);
        Ok(())
    }

    /// The entry of a page that is here ([`TagCache::prepare`], [`TagCache::ensure`],
    /// [`TagCache::load`]); for any other page an entry that opens nothing.
    pub(super) fn entry(&self, blocks: &TagBlocks, block: BlockNo) -> [u8; ENTRY] {
        let index = (block.0 % GROUP_PAGES) as usize;
        match blocks.get(self.serial, block.0 / GROUP_PAGES) {
            Some(tags) => tags.bytes.as_chunks().0[index],
            None if self.single.0 == block => self.single.1,
            None => [0xFF; ENTRY],
        }
    }

    /// Drops all tags of the file that this process has.
    pub(super) fn clear(&mut self, blocks: &mut TagBlocks) {
        blocks.drop_file(self.serial);
        self.single.0 = NO_BLOCK;
    }

    /// Changes what this process and all others have at hand to entries that were just written.
    pub(in crate::file) fn store<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        blocks: &mut TagBlocks,
        first: BlockNo,
        entries: &[u8],
    ) {
        if let Some(block) = blocks.using(self.serial, first.0 / GROUP_PAGES) {
            let at = (first.0 % GROUP_PAGES) as usize * ENTRY;
            block.bytes[at..at + entries.len()].copy_from_slice(entries);
        }
        // Replace the single entry only if it is among `entries`: VACUUM writes pages that it read
        // earlier, and reads on elsewhere.
        let index = self.single.0.0.wrapping_sub(first.0);
        if let Some(entry) = usize::try_from(index).ok().and_then(|i| entries.as_chunks().0.get(i))
        {
            self.single.1 = *entry;
        }
        if let Some(shared) = self.shared(storage) {
            shared.written(self.runs, first, entries);
        }
    }

    /// The shared runs of these pages, whose entries are no more what they were, are not used any
    /// more.
    pub(super) fn forget<S: Accelerator + ?Sized>(&self, storage: &S, pages: Range<u64>) {
        if let Some(shared) = self.shared(storage) {
            shared.forget(self.runs, pages);
        }
    }

    /// Counts a change that this process made to tags of the group of this page. The tag block,
    /// which [`TagCache::store`] has changed, stays valid unless another process changed the group
    /// as well.
    pub(super) fn count_change<S: Accelerator + ?Sized>(
        &self,
        storage: &S,
        blocks: &mut TagBlocks,
        block: BlockNo,
    ) {
        let group = block.0 / GROUP_PAGES;
        let before = storage.count_tag_change(self.name_of(group));
        if let Some(block) = blocks.using(self.serial, group)
            && block.changes == before
        {
            block.changes = before.map(|changes| changes + 1);
        }
    }
}
