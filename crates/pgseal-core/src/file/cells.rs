//! Cells of 16 bytes that are overwritten where they lie: what the in-place and the WAL layout
//! share (`spec/sealed-file.md`, section 8.1).

use super::operation::Operation;
use super::{BLOCK, SealedFile, all_zero};
use crate::error::SealError;
use crate::evp::Xts;
use crate::geometry::{BLOCK_LEN, CELL_LEN, SECTOR_LEN, block_sealed_off, plain_len};
use crate::storage::Accelerator;
use crate::units::{BlockNo, SealedLen};

pub(super) const CELL: usize = CELL_LEN as usize;
pub(super) const SECTOR: usize = SECTOR_LEN as usize;
/// The most bytes that can follow the last full cell: a padded cell and its filler.
const TAIL: usize = 2 * CELL - 1;

impl<S: Accelerator + ?Sized, L> Operation<'_, S, L> {
    /// Reads stored cells from the start of a unit on, all of one group. Returns the number of
    /// plain bytes that they hold before the end of the file; the bytes of `target` behind their
    /// cells are unspecified.
    pub(super) fn read_stored(
        &mut self,
        start: u64,
        target: &mut [u8],
    ) -> Result<usize, SealError> {
        let layout = self.file.header.layout;
        let end = start + target.len() as u64;
        if end > self.file.reached {
            let len = self.plain_len()?;
            self.file.reached = len - len % CELL_LEN;
        }
        // Before the known length there is no padding to tell from data, so the cheaper call
        // without the tail is enough.
        let inside = end <= self.file.reached;
        let sealed_off = block_sealed_off(layout, BlockNo(start / BLOCK_LEN));
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
            plain_len(layout, end).0.saturating_sub(start) as usize
        } else {
            target.len()
        };
        Ok(plain.min(target.len()))
    }
}

impl SealedFile {
    /// Seals units, or the start of one, from the plain offset `start` on.
    pub(super) fn seal_units(
        &mut self,
        start: u64,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<(), SealError> {
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
pub(super) fn open_unit(xts: &mut Xts, unit_no: u64, unit: &mut [u8]) -> Result<bool, SealError> {
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
