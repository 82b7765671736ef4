//! The WAL layout: in-place cells in groups of 256 pages, each group behind a tag block with a MAC
//! for each page and with flush records (`spec/sealed-file.md`, section 8.3).

use super::cells::{CELL, open_unit};
use super::operation::{InLayout, Operation, Reading};
use super::spans::{Span, Spans, spans};
use super::undo::{NOTHING, Undo};
use super::{BATCH, BLOCK, RETRIES, all_zero};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, GROUP_PAGES, SECTOR_LEN, TAG_BLOCK_LEN, block_sealed_off, block_start, tag_block_off,
};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, SealedOff};

mod held;
mod length;
mod rows;

pub use rows::FlushRecord;
pub(super) use rows::HeldRows;
pub(super) use rows::newest_flush_record;
use rows::{Entry, Rows};

const TAG_BLOCK: usize = TAG_BLOCK_LEN as usize;
/// Plain bytes of a group.
const GROUP: u64 = GROUP_PAGES * BLOCK_LEN;

/// The WAL layout.
pub(super) struct Wal;

/// What a page of WAL turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalPage {
    /// The page fits its entry.
    Authentic,
    /// All zeros, and allowed to be.
    Hole,
    /// The page does not fit its entry, or has none, and need not.
    Unfitting,
    /// The page does not fit its entry, or has none, but must open.
    Damaged,
    /// The file ends before the page.
    Gone,
}

impl<S: Accelerator + ?Sized> InLayout for Operation<'_, S, Wal> {
    fn read_spans(plain_off: u64, len: u64) -> Spans {
        spans(plain_off, len).in_groups()
    }

    fn read_span(
        &mut self,
        span: Span,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        if span.is_whole() {
            return self.read_pages(span.block, target, reading);
        }
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let len = match op.must_open(span.block) {
                    // A MAC is over all of the page.
                    true => BLOCK,
                    false => (span.in_block + span.len).next_multiple_of(CELL),
                };
                let page = page.room(len)?;
                let got = op.read_pages(span.block, page, reading)?;
                Ok(span.copy_from(&page[..got], target))
            },
        )
    }

    fn write(&mut self, bytes: &[u8], plain_off: u64) -> Result<(), SealError> {
        self.write_shared(bytes, plain_off)
    }

    fn set_len(&mut self, new_len: u64) -> Result<(), SealError> {
        self.set_shared_len(new_len)
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Wal> {
    /// Whether this page must open under its entry.
    fn must_open(&self, block: BlockNo) -> bool {
        block_start(block).0 + BLOCK_LEN <= self.file.must_open
    }

    /// Reads pages of one group, or the start of one that need not open. Returns the number of
    /// plain bytes before the end of the file.
    fn read_pages(
        &mut self,
        first: BlockNo,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        let plain = self.read_stored(block_start(first).0, target)?;
        let cells = plain.next_multiple_of(CELL).min(target.len());
        let pages = cells.div_ceil(BLOCK) as u64;
        let checked = (self.file.must_open / BLOCK_LEN).saturating_sub(first.0).min(pages);
        if checked > 0 {
            self.load_rows(first, BlockNo(first.0 + checked - 1))?;
        }
        for (block, page) in (first.0..).zip(target[..cells].chunks_mut(BLOCK)) {
            if block < first.0 + checked {
                self.check_page(BlockNo(block), self.loaded_entry(BlockNo(block)), page)?;
            }
            let is_hole = open_unit(self.file.cipher.xts()?, block, page)?;
            reading.outcome.zero_blocks += u64::from(is_hole);
        }
        Ok(plain)
    }

    /// Whether the stored cells of a page fit the entry.
    fn fits(&mut self, block: BlockNo, entry: &Entry, cells: &[u8]) -> Result<bool, SealError> {
        match entry.parts() {
            Some((nonce, tag)) => self.file.cipher.page_fits(block, nonce, &tag, cells),
            None => Ok(false),
        }
    }

    /// Checks a page that was just read and must open. If it does not fit the entry, reads both
    /// again, because a writer may have written the page but not yet the entry.
    fn check_page(
        &mut self,
        block: BlockNo,
        entry: Entry,
        cells: &mut [u8],
    ) -> Result<(), SealError> {
        if self.fits(block, &entry, cells)? {
            return Ok(());
        }
        self.lend(
            |scratch| &mut scratch.old,
            |op, again| {
                let again = again.room(BLOCK)?;
                for attempt in 1..RETRIES {
                    if attempt > 1 {
                        op.storage.pause(attempt - 1);
                    }
                    let entry = op.read_entry(block)?;
                    let plain = op.read_stored(block_start(block).0, again)?;
                    // A last page may have grown meanwhile, and its entry is over all of it.
                    let now = plain.next_multiple_of(CELL);
                    if now >= cells.len() && op.fits(block, &entry, &again[..now])? {
                        cells.copy_from_slice(&again[..cells.len()]);
                        return Ok(());
                    }
                }
                Err(SealError::BlockDamaged(block))
            },
        )
    }

    /// What a page is, for the walk over a file.
    pub(super) fn look_at(&mut self, block: BlockNo) -> Result<WalPage, SealError> {
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let page = page.room(BLOCK)?;
                let plain = op.read_stored(block_start(block).0, page)?;
                let cells = &mut page[..plain.next_multiple_of(CELL)];
                if cells.is_empty() {
                    return Ok(WalPage::Gone);
                }
                let must_open = op.must_open(block);
                if !must_open && all_zero(cells) {
                    return Ok(WalPage::Hole);
                }
                let entry = op.read_entry(block)?;
                match op.check_page(block, entry, cells) {
                    Ok(()) => Ok(WalPage::Authentic),
                    Err(SealError::BlockDamaged(_)) if must_open => Ok(WalPage::Damaged),
                    Err(SealError::BlockDamaged(_)) => Ok(WalPage::Unfitting),
                    Err(error) => Err(error),
                }
            },
        )
    }

    /// Writes bytes, group by group, into a file of the plain length `had`, which is at least
    /// `plain_off`.
    fn write_groups(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError> {
        let end = plain_off + bytes.len() as u64;
        let mut at = plain_off;
        while at < end {
            let stop = end.min(at - at % GROUP + GROUP);
            let part = &bytes[(at - plain_off) as usize..(stop - plain_off) as usize];
            self.write_in_group(part, at, had, end)?;
            at = stop;
        }
        Ok(())
    }

    /// Writes bytes of one group: the pages first, then the rows with their entries. The file has
    /// the plain length `had`, and the whole write goes on to `write_end`.
    fn write_in_group(
        &mut self,
        bytes: &[u8],
        at: u64,
        had: u64,
        write_end: u64,
    ) -> Result<(), SealError> {
        let end = at + bytes.len() as u64;
        let after = write_end.max(had);
        // An appended first page of a group is written together with the whole tag block, so that
        // no later entry of the group needs new room on a full disk.
        let new_group = at.is_multiple_of(GROUP) && at >= had;
        let whole = at.is_multiple_of(BLOCK_LEN) && end.is_multiple_of(BLOCK_LEN);
        if at >= had && whole && all_zero(bytes) {
            return self.append_zeros(bytes, at, new_group);
        }
        let (first, last) = (BlockNo(at / BLOCK_LEN), BlockNo((end - 1) / BLOCK_LEN));
        let mut rows = self.begin_write(first, last, new_group, end == write_end, after)?;
        let mut result = Ok(());
        if new_group && !whole {
            let block = self.scratch.rows.bytes(TAG_BLOCK);
            self.storage.write_at(block, tag_block_off(at / GROUP))?;
            self.count_change(first);
        }
        for span in spans(at, bytes.len() as u64).most(BATCH) {
            let plain = &bytes[span.range()];
            result = if span.is_whole() {
                let with_rows = new_group && whole && span.at == 0;
                self.write_pages(span, plain, had, &mut rows, with_rows)
            } else {
                self.write_part(span.off(), plain, had, after, &mut rows)
            };
            if result.is_err() {
                break;
            }
        }
        // Pages that were written before a failure need their entries as well.
        let written = if rows.has_new { self.write_rows(&rows) } else { Ok(()) };
        self.end_write(&rows, result.is_ok() && written.is_ok());
        result.and(written)
    }

    /// Appends pages of zeros as they are and without entries: PostgreSQL makes a new segment of
    /// zeros. They have their room on the disk, and read as zeros.
    fn append_zeros(&mut self, zeros: &[u8], at: u64, new_group: bool) -> Result<(), SealError> {
        let mut rest = zeros;
        let mut block = BlockNo(at / BLOCK_LEN);
        if new_group {
            let (first, behind) = zeros.split_at(zeros.len().min(BATCH * BLOCK));
            let out = self.scratch.out.room(TAG_BLOCK + first.len())?;
            out.fill(0);
            self.storage.write_at(out, tag_block_off(at / GROUP))?;
            self.count_change(block);
            rest = behind;
            block.0 += BATCH as u64;
        }
        if !rest.is_empty() {
            self.storage.write_at(rest, block_sealed_off(Layout::Wal, block))?;
        }
        Ok(())
    }

    /// Writes whole pages of one group, with the tag block before them if `with_rows`.
    fn write_pages(
        &mut self,
        span: Span,
        plain: &[u8],
        had: u64,
        rows: &mut Rows,
        with_rows: bool,
    ) -> Result<(), SealError> {
        let appended_zeros = span.off() >= had && all_zero(plain);
        let out = self.scratch.out.room(TAG_BLOCK + plain.len())?;
        let (block, sealed) = out.split_at_mut(TAG_BLOCK);
        let pages = (span.block.0..).map(BlockNo);
        let mut entries = [Entry::NONE; BATCH];
        if appended_zeros {
            sealed.fill(0);
        } else {
            self.file.seal_units(span.off(), plain, sealed)?;
            for ((no, page), entry) in pages.clone().zip(sealed.chunks(BLOCK)).zip(&mut entries) {
                let mut nonce = rows.nonce_of(no);
                let tag = self.file.cipher.page_mac(no, &mut nonce, page)?;
                *entry = Entry::new(nonce, tag);
            }
        }
        let entries = &entries[..plain.len() / BLOCK];
        if with_rows {
            let target = self.scratch.rows.room(TAG_BLOCK)?;
            rows.put_all(target, pages.zip(entries));
            block.copy_from_slice(target);
            let written = self.storage.write_at(out, tag_block_off(span.block.0 / GROUP_PAGES));
            self.count_change(span.block);
            written?;
            rows.has_new = false;
            return Ok(());
        }
        self.storage.write_at(sealed, block_sealed_off(Layout::Wal, span.block))?;
        if !appended_zeros {
            rows.put_all(self.scratch.rows.room(TAG_BLOCK)?, pages.zip(entries));
        }
        Ok(())
    }

    /// Writes bytes within one page. Writes whole sectors, with the old content around the bytes,
    /// so that a sector is either a hole or sealed to its last cell. The entry is over the page as
    /// it is when the file has the plain length `after`. Without bytes, only the entry changes.
    fn write_part(
        &mut self,
        pos: u64,
        bytes: &[u8],
        had: u64,
        after: u64,
        rows: &mut Rows,
    ) -> Result<(), SealError> {
        let unit_start = pos - pos % BLOCK_LEN;
        let block = BlockNo(unit_start / BLOCK_LEN);
        let end = pos + bytes.len() as u64;
        let first = pos - pos % SECTOR_LEN;
        let stop = end.max(end.next_multiple_of(SECTOR_LEN).min(had));
        let (from, to) = ((first - unit_start) as usize, (stop - unit_start) as usize);
        let cells = to.next_multiple_of(CELL);
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let page = page.room(BLOCK)?;
                let stored = match pos == unit_start && end >= had {
                    // Nothing of an old page is left.
                    true => op.forget_page(page)?,
                    false => op.load_page(block, page)?.next_multiple_of(CELL),
                };
                let at = (pos - unit_start) as usize;
                page[at..at + bytes.len()].copy_from_slice(bytes);
                if !bytes.is_empty() {
                    let out = op.scratch.out.room(BLOCK + CELL)?;
                    op.file.seal_units(unit_start, &page[..cells], &mut out[..cells])?;
                    let filler = if stop >= had { to % CELL } else { 0 };
                    out[cells..cells + filler].fill(0);
                    let off = SealedOff(block_sealed_off(Layout::Wal, block).0 + from as u64);
                    let old = op.scratch.old.room(BLOCK)?;
                    if let Err(error) = op.storage.write_at(&out[from..cells + filler], off) {
                        // A torn cell would also lose the old bytes in it, or the zeros of a gap:
                        // write them back.
                        let kept = (stop.min(had).max(first) - unit_start) as usize;
                        let kept = kept.next_multiple_of(CELL);
                        if kept > stored {
                            page[..kept].copy_from_slice(&old[..kept]);
                            if stored > 0 {
                                open_unit(op.file.cipher.xts()?, block.0, &mut page[..stored])?;
                            }
                            op.file.seal_units(unit_start, &page[..kept], &mut old[..kept])?;
                        }
                        let undo = Undo { old: [(off, &old[from..kept]), NOTHING], end: None };
                        undo.roll_back(op.storage);
                        return Err(error.into());
                    }
                    old[from..cells].copy_from_slice(&out[from..cells]);
                }
                let grown = (after - unit_start).min(BLOCK_LEN) as usize;
                let len = stored.max(cells).max(grown.next_multiple_of(CELL));
                op.make_entry(block, len, rows)
            },
        )
    }

    /// Makes the entry of a page over the first `len` bytes of its cells, which are in the buffer
    /// `old`.
    fn make_entry(&mut self, block: BlockNo, len: usize, rows: &mut Rows) -> Result<(), SealError> {
        let (mut nonce, cells) = (rows.nonce_of(block), &self.scratch.old.room(BLOCK)?[..len]);
        let tag = self.file.cipher.page_mac(block, &mut nonce, cells)?;
        let entry = Entry::new(nonce, tag);
        rows.put_all(self.scratch.rows.room(TAG_BLOCK)?, [(block, &entry)].into_iter());
        Ok(())
    }

    /// Reads a page, or as much of it as the file has: its plain bytes into `page`, its cells into
    /// the buffer `old`, zeros behind both. Checks the page if it must open: its cells get a new
    /// entry. Returns the number of its plain bytes.
    fn load_page(&mut self, block: BlockNo, page: &mut [u8]) -> Result<usize, SealError> {
        let plain = self.read_stored(block_start(block).0, page)?;
        let (cells, behind) = page.split_at_mut(plain.next_multiple_of(CELL));
        behind.fill(0);
        if !cells.is_empty() {
            if self.must_open(block) {
                let entry = self.read_entry(block)?;
                self.check_page(block, entry, cells)?;
            }
            let old = self.scratch.old.room(BLOCK)?;
            old[..cells.len()].copy_from_slice(cells);
            old[cells.len()..].fill(0);
            open_unit(self.file.cipher.xts()?, block.0, cells)?;
        } else {
            self.scratch.old.room(BLOCK)?.fill(0);
        }
        page[plain..].fill(0);
        Ok(plain)
    }

    /// Like [`Self::load_page`] for a page of which nothing is left.
    fn forget_page(&mut self, page: &mut [u8]) -> Result<usize, SealError> {
        page.fill(0);
        self.scratch.old.room(BLOCK)?.fill(0);
        Ok(0)
    }
}
