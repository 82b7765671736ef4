//! Growth and truncation of a WAL file.

use super::{GROUP, Wal};
use crate::error::SealError;
use crate::file::BLOCK;
use crate::file::cells::{CELL, SECTOR};
use crate::file::operation::{Operation, Shared};
use crate::geometry::{BLOCK_LEN, CELL_LEN, GROUP_PAGES, SECTOR_LEN, block_sealed_off, sealed_len};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedOff};

impl<S: Accelerator + ?Sized> Shared for Operation<'_, S, Wal> {
    const KEEPS_GAP: bool = true;
    const KNOWN_STEP: u64 = CELL_LEN;

    fn write_spans(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError> {
        self.write_groups(bytes, plain_off, had)
    }

    /// Lengthens the file with zeros: sealed zeros up to the end of the sector in which it ends,
    /// and a hole behind that sector.
    fn lengthen(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        self.settle()?;
        if new_len > had {
            self.fill_gap(had, new_len)?;
        }
        Ok(self.storage.set_len(sealed_len(Layout::Wal, PlainLen(new_len)))?)
    }

    /// Before the file grows to `new_len`: seals zeros up to the end of the sector in which the
    /// file ends, and makes the entry of the page anew, as it will be with that length. A file that
    /// ends with a whole page is not touched.
    fn fill_gap(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        self.settle()?;
        if had.is_multiple_of(BLOCK_LEN) {
            return Ok(());
        }
        let pad_end = had.next_multiple_of(CELL_LEN);
        if pad_end > had && new_len > pad_end {
            // The padding of the last cell is zeros already; only its filler is cut off.
            self.storage.set_len(sealed_len(Layout::Wal, PlainLen(pad_end)))?;
        }
        let explicit_end = had.next_multiple_of(SECTOR_LEN).min(new_len);
        let zeros = [0; SECTOR];
        let block = BlockNo(had / BLOCK_LEN);
        let mut rows = self.begin_rows(block, block, false)?;
        self.write_part(had, &zeros[..(explicit_end - had) as usize], had, new_len, &mut rows)?;
        self.write_rows(&rows)
    }

    /// Truncates the file to `end`. If `end` is inside a page, the page gets a new entry, and if it
    /// is inside a cell, a padded last cell and its filler. Clears the entries of the pages that
    /// are cut off.
    fn cut(&mut self, end: u64) -> Result<(), SealError> {
        self.settle()?;
        let in_block = (end % BLOCK_LEN) as usize;
        let had = self.plain_len()?;
        self.file.reached = self.file.reached.min(end - end % CELL_LEN);
        if in_block == 0 {
            self.storage.set_len(sealed_len(Layout::Wal, PlainLen(end)))?;
        } else {
            self.cut_in_page(BlockNo(end / BLOCK_LEN), in_block)?;
        }
        let result = self.clear_entries_from(BlockNo(end.div_ceil(BLOCK_LEN)));
        for group in end / GROUP..=had.max(end) / GROUP {
            self.count_change(BlockNo(group * GROUP_PAGES));
        }
        result
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Wal> {
    /// Truncates the file to the first `in_block` bytes of a page.
    fn cut_in_page(&mut self, block: BlockNo, in_block: usize) -> Result<(), SealError> {
        let unit_start = block.0 * BLOCK_LEN;
        let whole = in_block - in_block % CELL;
        let cells = in_block.next_multiple_of(CELL);
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let page = page.room(BLOCK)?;
                op.load_page(block, page)?;
                op.storage.set_len(sealed_len(Layout::Wal, PlainLen(unit_start + whole as u64)))?;
                // After the cut, which may have cut off the tag block: rows that are held are of
                // before.
                op.scratch.rows_held = None;
                let mut rows = op.begin_rows(block, block, false)?;
                if cells > whole {
                    // The whole sector, which may have had a hole at its end.
                    let from = whole - whole % SECTOR;
                    let filler = in_block - whole;
                    page[in_block..cells].fill(0);
                    let out = op.scratch.out.room(BLOCK + CELL)?;
                    op.file.seal_units(unit_start, &page[..cells], &mut out[..cells])?;
                    out[cells..cells + filler].fill(0);
                    let off = SealedOff(block_sealed_off(Layout::Wal, block).0 + from as u64);
                    op.storage.write_at(&out[from..cells + filler], off)?;
                    op.scratch.old.room(BLOCK)?[from..cells].copy_from_slice(&out[from..cells]);
                }
                op.make_entry(block, cells, &mut rows)?;
                op.write_rows(&rows)
            },
        )
    }
}
