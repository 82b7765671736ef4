//! Repair of tags without pages and of pages without tags, which truncation, crashes and failed
//! writes leave.

use super::blocks::TagBlock;
use super::{BLOCK, ENTRY, Paged, TAG_BLOCK, all_zero};
use crate::error::SealError;
use crate::file::operation::Operation;
use crate::file::spans::Span;
use crate::file::undo::{NOTHING, Undo};
use crate::geometry::{
    BLOCK_LEN, GROUP_PAGES, block_sealed_off, block_start, plain_len, sealed_len, tag_entry_off,
};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen};

impl<S: Accelerator + ?Sized> Operation<'_, S, Paged> {
    /// Rolls back a failed write of a part of a page: restores the `had` sealed bytes of the page,
    /// which are in the buffer `old`, and its tag entry. Counts the tag change.
    pub(super) fn put_back_page(&mut self, block: BlockNo, had: usize, entry: &[u8; ENTRY]) {
        let at = block_sealed_off(Layout::Paged, block);
        let undo = match had {
            // The page did not exist, so the write appended it: cut it off.
            0 => Undo {
                old: [NOTHING; 2],
                end: Some(sealed_len(Layout::Paged, PlainLen(block_start(block).0))),
            },
            _ => Undo {
                old: [(at, self.scratch.old.bytes(had)), (tag_entry_off(block), entry)],
                // A page that is not full was the end of the file.
                end: (had < BLOCK).then_some(SealedLen(at.0 + had as u64)),
            },
        };
        let begun = Self::will_write(self.storage, self.file.pages, block, 1);
        undo.roll_back(self.storage);
        begun.failed();
        self.file.tags.forget(self.storage, block.0..block.0 + 1);
        self.file.tags.count_change(self.storage, &mut self.scratch.blocks, block);
    }

    /// Before a write of whole pages: the plain length below which no byte is cut off if the write
    /// fails. Asks the storage only if the write may both overwrite pages and append some.
    pub(super) fn kept_of(&self, pages: Span) -> Result<u64, SealError> {
        if pages.end() <= self.file.reached {
            return Ok(pages.end());
        }
        if pages.blocks() == 1 {
            // The page is appended, or it is there and the file does not end in it.
            return Ok(pages.off());
        }
        Ok(self.plain_len()?.max(pages.off()))
    }

    /// After a failed write of whole pages, for example on a full disk: if the file now ends within
    /// these pages, cuts off those behind the plain length `kept`. Overwrites the other pages that
    /// have no tag with zeros, so that they are holes again.
    pub(super) fn drop_unfinished(&mut self, pages: Span, kept: u64) {
        let Ok(sealed) = self.storage.len() else { return };
        let mut plain = plain_len(Layout::Paged, sealed).0;
        let room = sealed_len(Layout::Paged, PlainLen(kept));
        let begun = Self::will_write(self.storage, self.file.pages, pages.block, pages.blocks());
        // The caller reports the error of the write; errors of the repair are ignored.
        if sealed > room && plain < pages.end() {
            let _ = self.storage.set_len(room);
            plain = kept;
        }
        // Leave out pages behind the end: this function may run twice for one write, and after the
        // cut the second run must not append a page.
        let end = pages.end().min(plain) / BLOCK_LEN;
        let mut entry = [0; ENTRY];
        for block in (pages.block.0..end).map(BlockNo) {
            let got = self.storage.read_at(&mut entry, tag_entry_off(block));
            if got.is_ok() && all_zero(&entry) {
                let _ = self.storage.write_at(&[0; BLOCK], block_sealed_off(Layout::Paged, block));
            }
        }
        begun.failed();
    }

    /// Before the file grows by holes: clears tags of pages behind the end, in the group in which
    /// the file ends. A crash leaves such tags if a truncation reached the disk but the clearing of
    /// the tags did not, or if a tag reached the disk but its page did not.
    pub(super) fn ensure_no_tags_behind(&mut self, plain: u64) -> Result<(), SealError> {
        let first = BlockNo(plain.div_ceil(BLOCK_LEN));
        let index = (first.0 % GROUP_PAGES) as usize;
        if index == 0 {
            return Ok(());
        }
        self.file.tags.load(self.storage, &mut self.scratch.blocks, first)?;
        if self.are_blank(first, TAG_BLOCK - index * ENTRY)? {
            return Ok(());
        }
        self.file.tags.clear(&mut self.scratch.blocks);
        let result = self.zero_tags_from(first);
        let group_end = (first.0 / GROUP_PAGES + 1) * GROUP_PAGES;
        self.file.tags.forget(self.storage, first.0..group_end);
        self.file.tags.count_change(self.storage, &mut self.scratch.blocks, first);
        result
    }

    /// The tag block of the group of this page, if it is here, even an old one.
    fn block_of(&self, page: BlockNo) -> Option<&TagBlock> {
        self.scratch.blocks.get(self.file.tags.serial, page.0 / GROUP_PAGES)
    }

    /// Whether the `len` bytes of tag entries from the page `first` on, all in one tag block, are
    /// zeros. Reads them from the storage if there was no memory to load the tag block.
    fn are_blank(&self, first: BlockNo, len: usize) -> Result<bool, SealError> {
        if let Some(block) = self.block_of(first) {
            let at = (first.0 % GROUP_PAGES) as usize * ENTRY;
            return Ok(all_zero(&block.bytes[at..at + len]));
        }
        let mut entries = [0; TAG_BLOCK];
        let got = self.storage.read_at(&mut entries[..len], tag_entry_off(first))?;
        Ok(all_zero(&entries[..got]))
    }

    /// Clears the tags from the page `first` to the end of its group, so that these pages read as
    /// zeros when the file grows again. If `first` starts a group, the group and its tag block were
    /// cut off.
    pub(super) fn zero_tags_from(&self, first: BlockNo) -> Result<(), SealError> {
        let index = (first.0 % GROUP_PAGES) as usize;
        if index != 0 {
            let zeros = [0; TAG_BLOCK];
            self.storage.write_at(&zeros[index * ENTRY..], tag_entry_off(first))?;
        }
        Ok(())
    }

    /// Clears the tags of pages that were just appended as zeros, if a crash left tags there. The
    /// cached tag block, even an old one, shows such tags, because only a crash leaves them.
    /// `blank` holds zeros of the length of the tag entries.
    pub(super) fn ensure_no_tags_of(
        &mut self,
        first: BlockNo,
        blank: &[u8],
    ) -> Result<(), SealError> {
        if self.block_of(first).is_none() {
            self.file.tags.load(self.storage, &mut self.scratch.blocks, first)?;
        }
        if !self.are_blank(first, blank.len())? {
            self.file.tags.clear(&mut self.scratch.blocks);
            self.storage.write_at(blank, tag_entry_off(first))?;
        }
        Ok(())
    }
}
