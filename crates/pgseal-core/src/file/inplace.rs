//! The in-place layout: XTS over 8192-byte data units, in 16-byte cells that are overwritten where
//! they lie (`spec/sealed-file.md`, section 8).

use super::operation::{InLayout, Operation, Reading};
use super::spans::{Span, Spans, spans};
use super::undo::{NOTHING, Undo};
use super::{BATCH, BLOCK, OnDamage, SealedFile, all_zero};
use crate::error::SealError;
use crate::evp::Xts;
use crate::geometry::{
    BLOCK_LEN, CELL_LEN, HEADER_LEN, SECTOR_LEN, block_start, plain_len, sealed_len,
};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{PlainLen, SealedLen, SealedOff};

const CELL: usize = CELL_LEN as usize;
const SECTOR: usize = SECTOR_LEN as usize;
/// The most bytes that can follow the last full cell: a padded cell and its filler.
const TAIL: usize = 2 * CELL - 1;

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
        let end = plain_off + bytes.len() as u64;
        let mut had = self.file.reached;
        // The length to which a failed write is cut back. It is at least `plain_off`, because
        // another process may have written into the gap meanwhile.
        let mut kept = had;
        // A write of a part of a block needs the present end of the file, which another process may
        // have moved.
        let whole = plain_off.is_multiple_of(BLOCK_LEN) && end.is_multiple_of(BLOCK_LEN);
        if end > self.file.reached || !whole {
            had = self.plain_len()?;
            kept = had.max(plain_off);
            if had < plain_off {
                self.fill_sector(had, plain_off)?;
                had = plain_off;
            }
        }
        let result = self.write_cells(bytes, plain_off, had);
        if result.is_err() && end > had {
            // For example a full disk: cut off what was appended, keep the rest.
            let _ = self.cut(kept);
            return result;
        }
        result?;
        if end > had {
            self.cut_filler(had, end)?;
        }
        // Rounded down to a full cell: a file that ends inside a cell has a filler, which the next
        // append must notice and cut off.
        let known = end.max(had);
        self.file.has_reached(known - known % CELL_LEN);
        Ok(())
    }

    fn set_len(&mut self, new_len: u64) -> Result<(), SealError> {
        let had = self.plain_len()?;
        if new_len >= had { self.lengthen(had, new_len) } else { self.cut(new_len) }
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
        let end = start + target.len() as u64;
        if end > self.file.reached {
            let len = self.plain_len()?;
            self.file.reached = len - len % CELL_LEN;
        }
        // Before the known length there is no padding to tell from data, so the cheaper call
        // without the tail is enough.
        let inside = end <= self.file.reached;
        let sealed_off = SealedOff(HEADER_LEN + start);
        let (got, most) = if inside {
            (self.storage.read_at(target, sealed_off)?, target.len())
        } else {
            let mut tail = [0; TAIL];
            let got = self.storage.read_two_at(target, &mut tail, sealed_off)?;
            (got, target.len() + TAIL)
        };
        let plain = if got < most {
            // The file ends here, so its length is known without asking for it.
            let end = SealedLen(sealed_off.0 + got as u64);
            plain_len(Layout::InPlace, end).0.saturating_sub(start) as usize
        } else {
            target.len()
        };
        let plain = plain.min(target.len());
        let cells = plain.next_multiple_of(CELL).min(target.len());
        let xts = self.file.cipher.xts()?;
        for (index, unit) in target[..cells].chunks_mut(BLOCK).enumerate() {
            let is_hole = open_unit(xts, start / BLOCK_LEN + index as u64, unit)?;
            reading.outcome.zero_blocks += u64::from(is_hole);
        }
        Ok(plain)
    }

    /// Writes bytes into a file of the plain length `had`, which is at least `plain_off`.
    fn write_cells(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError> {
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
        self.fill_sector(had, new_len)?;
        Ok(self.storage.set_len(sealed_len(Layout::InPlace, PlainLen(new_len)))?)
    }

    /// Before the file grows to `new_len`: seals zeros up to the end of the sector in which the
    /// file ends. A file that ends with a whole sector is not touched: two processes may write
    /// different pages behind the end of one SLRU segment, and a length set here would cut off the
    /// other process's page.
    fn fill_sector(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
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
}

impl SealedFile {
    /// Seals units, or the start of one, from the plain offset `start` on.
    fn seal_units(&mut self, start: u64, plain: &[u8], out: &mut [u8]) -> Result<(), SealError> {
        let xts = self.cipher.xts()?;
        for (index, (unit, out)) in plain.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
            xts.encrypt(start / BLOCK_LEN + index as u64, unit, out)?;
        }
        Ok(())
    }
}

/// For each sector of a unit, the offset in the sector at which its hole starts. For a sector
/// without a hole, only its last cell is looked at.
fn data_lens(unit: &[u8]) -> [usize; BLOCK / SECTOR] {
    let mut lens = [SECTOR; BLOCK / SECTOR];
    for (sector, len) in unit.chunks(SECTOR).zip(&mut lens) {
        let zeros = sector.rchunks(CELL).take_while(|cell| all_zero(cell)).count() * CELL;
        *len = sector.len().saturating_sub(zeros);
    }
    lens
}

/// Opens the start of a unit in place. Cells of zeros that end a sector are a hole and stay zeros:
/// the file was lengthened there and never written, or a power cut kept the length and lost the
/// write. Returns whether all of the unit is a hole.
fn open_unit(xts: &mut Xts, unit_no: u64, unit: &mut [u8]) -> Result<bool, SealError> {
    let data_lens = data_lens(unit);
    let sectors = || unit.chunks(SECTOR).zip(&data_lens);
    if sectors().all(|(_, data_len)| *data_len == 0) {
        return Ok(!unit.is_empty());
    }
    let holes = sectors().any(|(sector, data_len)| *data_len < sector.len());
    xts.decrypt(unit_no, unit)?;
    if holes {
        for (sector, data_len) in unit.chunks_mut(SECTOR).zip(data_lens) {
            if let Some(hole) = sector.get_mut(data_len..) {
                hole.fill(0);
            }
        }
    }
    Ok(false)
}
