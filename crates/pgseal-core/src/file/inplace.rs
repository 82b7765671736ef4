//! The in-place layout: XTS over 8192-byte data units, in 16-byte cells that are overwritten where
//! they lie (`spec/sealed-file.md`, section 8.1).

use super::cells::{CELL, SECTOR, open_unit};
use super::operation::{InLayout, Operation, Reading, Shared};
use super::spans::{Span, Spans, spans};
use super::undo::{NOTHING, Undo};
use super::{BATCH, BLOCK, OnDamage, all_zero};
use crate::error::SealError;
use crate::geometry::{BLOCK_LEN, CELL_LEN, HEADER_LEN, SECTOR_LEN, block_start, sealed_len};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{PlainLen, SealedLen, SealedOff};

/// The in-place layout.
pub(super) struct InPlace;

impl<S: Accelerator + ?Sized> InLayout for Operation<'_, S, InPlace> {
    fn read_spans(plain_off: u64, len: u64) -> Spans {
        spans(plain_off, len)
    }

    fn read_span(
        &mut self,
        span: Span,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        let start = block_start(span.block).0;
        if span.is_whole() {
            return self.read_cells(start, target, reading);
        }
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let unit = page.room((span.in_block + span.len).next_multiple_of(CELL))?;
                let got = op.read_cells(start, unit, reading)?;
                Ok(span.copy_from(&unit[..got], target))
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

impl<S: Accelerator + ?Sized> Shared for Operation<'_, S, InPlace> {
    const KEEPS_GAP: bool = true;
    const KNOWN_STEP: u64 = CELL_LEN;

    /// Writes bytes into a file of the plain length `had`, which is at least `plain_off`.
    fn write_spans(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError> {
        for span in spans(plain_off, bytes.len() as u64).most(BATCH) {
            let (pos, plain) = (span.off(), &bytes[span.range()]);
            let sealed_off = SealedOff(HEADER_LEN + pos);
            if !span.is_whole() {
                self.write_part(pos, plain, had)?;
            } else if pos >= had && all_zero(plain) {
                // Appended zeros are written unsealed: they read like a hole, but have their room
                // on the disk. PostgreSQL makes new WAL segments and new pages this way.
                self.storage.write_at(plain, sealed_off)?;
            } else {
                let out = self.scratch.out.room(plain.len())?;
                self.file.seal_units(pos, plain, out)?;
                self.storage.write_at(out, sealed_off)?;
            }
        }
        Ok(())
    }

    /// Before the file grows to `new_len`: seals zeros up to the end of the sector in which the
    /// file ends. A file that ends with a whole sector is not touched: two processes may write
    /// different pages behind the end of one SLRU segment, and a length set here would cut off the
    /// other process's page.
    fn fill_gap(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        let pad_end = had.next_multiple_of(CELL_LEN);
        if pad_end > had && new_len > pad_end {
            // The padding of the last cell is zeros already; only its filler is cut off.
            self.storage.set_len(SealedLen(HEADER_LEN + pad_end))?;
        }
        let explicit_end = had.next_multiple_of(SECTOR_LEN).min(new_len);
        if explicit_end > had {
            let zeros = [0; SECTOR];
            let len = (explicit_end - had) as usize;
            self.write_part(had, &zeros[..len], had)?;
        }
        Ok(())
    }

    /// Truncates the file to `end`, which lies within it. If `end` is inside a cell, writes a
    /// padded last cell and its filler.
    fn cut(&mut self, end: u64) -> Result<(), SealError> {
        let first = end - end % CELL_LEN;
        let odd = (end - first) as usize;
        let mut cell = [0; CELL];
        if odd != 0 {
            self.read(&mut cell[..odd], first, OnDamage::Fail)?;
        }
        self.file.reached = self.file.reached.min(first);
        self.storage.set_len(sealed_len(Layout::InPlace, PlainLen(first)))?;
        if odd != 0 {
            self.write_part(first, &cell[..odd], first)?;
        }
        Ok(())
    }

    /// Lengthens the file with zeros: sealed zeros up to the end of the sector and a hole behind
    /// it.
    fn lengthen(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        self.fill_gap(had, new_len)?;
        Ok(self.storage.set_len(sealed_len(Layout::InPlace, PlainLen(new_len)))?)
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, InPlace> {
    /// Reads and opens cells from the start of a unit on. Returns the number of plain bytes before
    /// the end of the file; the bytes of `target` behind them are unspecified.
    fn read_cells(
        &mut self,
        start: u64,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        let plain = self.read_stored(start, target)?;
        let cells = plain.next_multiple_of(CELL).min(target.len());
        let xts = self.file.cipher.xts()?;
        for (index, unit) in target[..cells].chunks_mut(BLOCK).enumerate() {
            let is_hole = open_unit(xts, start / BLOCK_LEN + index as u64, unit)?;
            reading.outcome.zero_blocks += u64::from(is_hole);
        }
        Ok(plain)
    }

    /// Writes bytes within one unit. Writes whole sectors, with the old content around the bytes,
    /// so that a sector is either a hole or sealed to its last cell.
    fn write_part(&mut self, pos: u64, bytes: &[u8], had: u64) -> Result<(), SealError> {
        let unit_start = pos - pos % BLOCK_LEN;
        let end = pos + bytes.len() as u64;
        let first = pos - pos % SECTOR_LEN;
        let stop = end.max(end.next_multiple_of(SECTOR_LEN).min(had));
        let (from, to) = ((first - unit_start) as usize, (stop - unit_start) as usize);
        let cells = to.next_multiple_of(CELL);

        self.lend(
            |scratch| &mut scratch.old,
            |op, page| {
                // XTS starts at the first cell of the unit. What the cells before `first` hold does
                // not change the cells that are written.
                let page = page.room(BLOCK)?;
                page[..cells].fill(0);
                if first < pos || end < stop {
                    op.read(&mut page[from..to], first, OnDamage::Fail)?;
                }
                let at = (pos - unit_start) as usize;
                let changed = at..at + bytes.len();
                let before = op.scratch.page.room(BLOCK)?;
                before[changed.clone()].copy_from_slice(&page[changed.clone()]);
                page[changed.clone()].copy_from_slice(bytes);
                let out = op.scratch.out.room(BLOCK + CELL)?;
                op.file.seal_units(unit_start, &page[..cells], &mut out[..cells])?;
                let filler = if stop >= had { to % CELL } else { 0 };
                out[cells..cells + filler].fill(0);
                let off = SealedOff(HEADER_LEN + first);
                let result = op.storage.write_at(&out[from..cells + filler], off);
                if result.is_err() && first < had {
                    // A torn cell would also lose the old bytes in it: write the old content back.
                    page[changed.clone()].copy_from_slice(&before[changed]);
                    let old = ((stop.min(had) - unit_start) as usize).next_multiple_of(CELL);
                    op.file.seal_units(unit_start, &page[..old], &mut out[..old])?;
                    let undo = Undo { old: [(off, &out[from..old]), NOTHING], end: None };
                    undo.roll_back(op.storage);
                }
                Ok(result?)
            },
        )
    }
}
