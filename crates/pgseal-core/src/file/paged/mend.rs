//! Tags without pages and pages without tags: what truncation, crashes and failed writes leave,
//! and how it is put right.

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
    /// After a failed write of a part of a page: puts back the page, of which there were `had` sealed
    /// bytes that are in the buffer `old`, and its tag entry; counts the change.
    pub(super) fn put_back_page(&mut self, block: BlockNo, had: usize, entry: &[u8; ENTRY]) {
        let at = block_sealed_off(Layout::Paged, block);
        let undo = match had {
            // There was no such page, and it can only be the last one.
            0 => Undo {
                old: [NOTHING; 2],
                end: Some(sealed_len(Layout::Paged, PlainLen(block_start(block).0))),
            },
            _ => Undo {
                old: [(at, self.scratch.old.bytes(had)), (tag_entry_off(block), entry)],
                // A page that is not full ended the file.
                end: (had < BLOCK).then_some(SealedLen(at.0 + had as u64)),
            },
        };
        undo.roll_back(self.storage);
        self.file.tags.count_change(self.storage, block);
    }

    /// After a failed write (a full disk) of whole pages: cuts off half a page that ends the file, and
    /// makes pages without tags the holes that they were or would be after a plain append.
    pub(super) fn drop_unfinished(&mut self, pages: Span) {
        let Ok(sealed) = self.storage.len() else { return };
        let plain = plain_len(Layout::Paged, sealed).0;
        let room = sealed_len(Layout::Paged, PlainLen(pages.off()));
        // The error that brought us here is the one to report.
        if sealed > room && plain < pages.end() {
            let _ = self.storage.set_len(room);
            return;
        }
        // No page behind the end: a second call, after the cut, must not append one.
        let end = pages.end().min(plain) / BLOCK_LEN;
        let mut entry = [0; ENTRY];
        for block in (pages.block.0..end).map(BlockNo) {
            let got = self.storage.read_at(&mut entry, tag_entry_off(block));
            if got.is_ok() && all_zero(&entry) {
                let _ = self.storage.write_at(&[0; BLOCK], block_sealed_off(Layout::Paged, block));
            }
        }
    }

    /// Before holes appear behind the end: clears tags that lie there. A crash kept a truncation and
    /// lost the clearing of its tags, or a page and not the tag of it.
    pub(super) fn ensure_no_tags_behind(&mut self, plain: u64) -> Result<(), SealError> {
        let first = BlockNo(plain.div_ceil(BLOCK_LEN));
        let index = (first.0 % GROUP_PAGES) as usize;
        if index == 0 {
            return Ok(());
        }
        self.file.tags.load(self.storage, first)?;
        if self.are_blank(first, TAG_BLOCK - index * ENTRY)? {
            return Ok(());
        }
        self.file.tags.clear();
        let result = self.zero_tags_from(first);
        self.file.tags.count_change(self.storage, first);
        result
    }

    /// Whether the tag entries from this page on, `len` bytes in one tag block, are zeros: of the block
    /// that was just loaded, or, if there was no memory for it, on the disk.
    fn are_blank(&self, first: BlockNo, len: usize) -> Result<bool, SealError> {
        let tags = &self.file.tags;
        if tags.group == first.0 / GROUP_PAGES {
            let at = (first.0 % GROUP_PAGES) as usize * ENTRY;
            return Ok(all_zero(&tags.bytes[at..at + len]));
        }
        let mut entries = [0; TAG_BLOCK];
        let got = self.storage.read_at(&mut entries[..len], tag_entry_off(first))?;
        Ok(all_zero(&entries[..got]))
    }

    /// Clears the tags of the pages that were cut off, up to the end of the last group that is left,
    /// so that the pages read as zeros when the file grows again.
    pub(super) fn zero_tags_from(&self, first: BlockNo) -> Result<(), SealError> {
        let index = (first.0 % GROUP_PAGES) as usize;
        if index != 0 {
            let zeros = [0; TAG_BLOCK];
            self.storage.write_at(&zeros[index * ENTRY..], tag_entry_off(first))?;
        }
        Ok(())
    }

    /// Clears the tags of pages that were just appended as holes, if a crash left any there; what is
    /// remembered of the group is enough to know, as nothing but a crash does. `blank` is their length
    /// in zeros.
    pub(super) fn ensure_no_tags_of(
        &mut self,
        first: BlockNo,
        blank: &[u8],
    ) -> Result<(), SealError> {
        if self.file.tags.group != first.0 / GROUP_PAGES {
            self.file.tags.load(self.storage, first)?;
        }
        if !self.are_blank(first, blank.len())? {
            self.file.tags.clear();
            self.storage.write_at(blank, tag_entry_off(first))?;
        }
        Ok(())
    }
}
