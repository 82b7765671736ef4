//! Growth and truncation of a paged file.

use super::Paged;
use crate::error::SealError;
use crate::file::BLOCK;
use crate::file::operation::Operation;
use crate::geometry::{BLOCK_LEN, GROUP_PAGES, sealed_len};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen};

impl<S: Accelerator + ?Sized> Operation<'_, S, Paged> {
    /// Before a write at `plain_off`: if the write starts behind the page in which the file ends,
    /// fills that page with zeros and seals it anew, because readers will get the whole page, and
    /// clears tags that a crash left behind the end. The pages between stay holes.
    pub(super) fn fill_gap(&mut self, plain_off: u64) -> Result<(), SealError> {
        let plain = self.plain_len()?;
        self.file.reached = plain;
        if plain < plain_off && plain / BLOCK_LEN < plain_off / BLOCK_LEN {
            self.lengthen_last_page(plain, plain_off)?;
            self.ensure_no_tags_behind(plain)?;
        }
        Ok(())
    }

    /// Lengthens the file from the plain length `plain` to `new_len`: zeros fill the last page, and
    /// the pages behind it are holes.
    pub(super) fn lengthen(&mut self, plain: u64, new_len: u64) -> Result<(), SealError> {
        self.lengthen_last_page(plain, new_len)?;
        self.ensure_no_tags_behind(plain)?;
        Ok(self.storage.set_len(sealed_len(Layout::Paged, PlainLen(new_len)))?)
    }

    /// Truncates the file from the plain length `plain` to `new_len`, and clears the tags of the
    /// pages that are cut off.
    pub(super) fn cut(&mut self, plain: u64, new_len: u64) -> Result<(), SealError> {
        let target = sealed_len(Layout::Paged, PlainLen(new_len));
        let (block, in_block) = (BlockNo(new_len / BLOCK_LEN), (new_len % BLOCK_LEN) as usize);
        let cut = self.will_cut(block.0..plain.div_ceil(BLOCK_LEN));
        let result = self.cut_pages(plain, new_len, target, block, in_block);
        self.was_cut(cut);
        result
    }

    fn cut_pages(
        &mut self,
        plain: u64,
        new_len: u64,
        target: SealedLen,
        block: BlockNo,
        in_block: usize,
    ) -> Result<(), SealError> {
        if in_block == 0 || new_len == plain {
            self.file.tags.clear(&mut self.scratch.blocks);
            self.storage.set_len(target)?;
        } else {
            self.lend(
                |scratch| &mut scratch.page,
                |op, page| {
                    let page = page.room(BLOCK)?;
                    let had = op.read_page(block, page)?;
                    let entry = op.file.tags.entry(&op.scratch.blocks, block);
                    op.file.tags.clear(&mut op.scratch.blocks);
                    op.storage.set_len(target)?;
                    op.write_pages(block, &page[..in_block.min(had)])
                        .inspect_err(|_| op.put_back_page(block, had, &entry))
                },
            )?;
        }
        let first_cut = BlockNo(new_len.div_ceil(BLOCK_LEN));
        let result = self.zero_tags_from(first_cut);
        let last_group = plain / BLOCK_LEN / GROUP_PAGES;
        self.file.tags.forget(self.storage, first_cut.0..(last_group + 1) * GROUP_PAGES);
        for group in first_cut.0 / GROUP_PAGES..=last_group {
            let first = BlockNo(group * GROUP_PAGES);
            self.file.tags.count_change(self.storage, &mut self.scratch.blocks, first);
        }
        result
    }

    /// If the last page is partly filled, seals it anew with zeros up to `new_len` or the end of
    /// the page.
    fn lengthen_last_page(&mut self, plain: u64, new_len: u64) -> Result<(), SealError> {
        let in_block = (plain % BLOCK_LEN) as usize;
        if in_block == 0 {
            return Ok(());
        }
        let block = BlockNo(plain / BLOCK_LEN);
        let end = (new_len - block.0 * BLOCK_LEN).min(BLOCK_LEN) as usize;
        let zeros = [0; BLOCK];
        self.write_part(block, in_block, &zeros[in_block..end])
    }
}
