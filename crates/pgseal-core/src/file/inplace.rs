//! The in-place layout: XTS over 8192-byte data units, in 16-byte cells that are overwritten where
//! they lie (`spec/sealed-file.md`, section 8).

use super::spans::spans;
use super::{BATCH, BLOCK, OnDamage, ReadOutcome, Scratch, SealedFile, all_zero};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, CELL_LEN, HEADER_LEN, SECTOR_LEN, block_start, plain_len, sealed_len,
};
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen, SealedOff};

const CELL: usize = CELL_LEN as usize;
const SECTOR: usize = SECTOR_LEN as usize;
/// The most bytes that lie behind the last plain byte: a padded cell and its filler.
const TAIL: usize = 2 * CELL - 1;

pub(super) fn read<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &mut [u8],
    plain_off: u64,
    on_damage: OnDamage,
) -> Result<ReadOutcome, SealError> {
    let mut outcome = ReadOutcome::default();
    for span in spans(plain_off, buf.len() as u64) {
        let (unit_start, target) = (block_start(span.block).0, &mut buf[span.range()]);
        let got = if span.is_whole() {
            read_cells(file, storage, unit_start, target, &mut outcome, on_damage)?
        } else {
            let unit = scratch.page.room((span.in_block + span.len).next_multiple_of(CELL))?;
            let got = read_cells(file, storage, unit_start, unit, &mut outcome, on_damage)?;
            let bytes = unit[..got].get(span.in_block..).unwrap_or_default();
            let take = bytes.len().min(span.len);
            target[..take].copy_from_slice(&bytes[..take]);
            take
        };
        outcome.len += got;
        if got < span.len {
            break;
        }
    }
    Ok(outcome)
}

/// Reads and opens cells from the start of a unit on. Returns the plain bytes before the end of
/// the file; what `target` holds behind them is unspecified.
fn read_cells<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    start: u64,
    target: &mut [u8],
    outcome: &mut ReadOutcome,
    on_damage: OnDamage,
) -> Result<usize, SealError> {
    let end = start + target.len() as u64;
    if end > file.reached {
        let len = file.plain_len(storage)?.0;
        file.reached = len - len % CELL_LEN;
    }
    // Within what the file is known to have reached there is no padding to be told from data, and
    // the call that asks for a little more than PostgreSQL did is the dearer one.
    let inside = end <= file.reached;
    let (got, most) = if inside {
        (storage.read_at(target, SealedOff(HEADER_LEN + start))?, target.len())
    } else {
        let mut tail = [0; TAIL];
        let got = storage.read_two_at(target, &mut tail, SealedOff(HEADER_LEN + start))?;
        (got, target.len() + TAIL)
    };
    let plain = if got < most {
        // The file ends here, so its length is known without asking for it.
        let end = SealedLen(HEADER_LEN + start + got as u64);
        plain_len(Layout::InPlace, end).0.saturating_sub(start) as usize
    } else {
        target.len()
    };
    let plain = plain.min(target.len());
    let cells = plain.next_multiple_of(CELL).min(target.len());
    let solid = file.header.solid;
    let xts = file.cipher.xts()?;
    for (index, unit) in target[..cells].chunks_mut(BLOCK).enumerate() {
        let unit_no = start / BLOCK_LEN + index as u64;
        match open_unit(xts, unit_no, unit)? {
            Holes::None => {}
            Holes::Some | Holes::All if solid => {
                outcome.note_damage(BlockNo(unit_no), unit, on_damage)?;
            }
            Holes::Some => {}
            Holes::All => outcome.zero_blocks += 1,
        }
    }
    Ok(plain)
}

/// Which sectors of a unit, or of the start of one, are holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holes {
    None,
    Some,
    All,
}

/// Where the hole of each sector of a unit starts, counted from the sector; a sector without one costs
/// a look at its last cell.
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
/// write.
fn open_unit(xts: &mut crate::evp::Xts, unit_no: u64, unit: &mut [u8]) -> Result<Holes, SealError> {
    let data_lens = data_lens(unit);
    let sectors = || unit.chunks(SECTOR).zip(&data_lens);
    if sectors().all(|(_, data_len)| *data_len == 0) {
        return Ok(if unit.is_empty() { Holes::None } else { Holes::All });
    }
    let holes = sectors().any(|(sector, data_len)| *data_len < sector.len());
    xts.decrypt(unit_no, unit)?;
    if holes {
        for (sector, data_len) in unit.chunks_mut(SECTOR).zip(data_lens) {
            if let Some(hole) = sector.get_mut(data_len..) {
                hole.fill(0);
            }
        }
        return Ok(Holes::Some);
    }
    Ok(Holes::None)
}

pub(super) fn write<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &[u8],
    plain_off: u64,
) -> Result<(), SealError> {
    let end = plain_off + buf.len() as u64;
    let mut had = file.reached;
    // The length that a write which fails leaves. Behind a hole it is that of the gap: another process
    // may have written into it meanwhile.
    let mut kept = had;
    // A part of a block is written up to the end that the file has now, which another process
    // may have moved.
    let whole = plain_off.is_multiple_of(BLOCK_LEN) && end.is_multiple_of(BLOCK_LEN);
    if end > file.reached || !whole {
        had = file.plain_len(storage)?.0;
        kept = if file.header.solid { had } else { had.max(plain_off) };
        if had < plain_off {
            fill_gap(file, storage, scratch, had, plain_off)?;
            had = plain_off;
        }
    }
    let result = write_cells(file, storage, scratch, buf, plain_off, had);
    if result.is_err() && end > had {
        // A full disk: what was there stays, what was appended goes.
        let _ = restore_end(file, storage, scratch, kept);
        return result;
    }
    result?;
    if end > had {
        cut_filler(storage, had, end)?;
    }
    // Only up to a cell: behind an odd end lies a filler that the next append has to know of.
    let known = end.max(had);
    file.reached = file.reached.max(known - known % CELL_LEN);
    Ok(())
}

/// After the file grew from `had` to `end`: what is left of the filler that was behind its last cell.
fn cut_filler<S: Storage + ?Sized>(storage: &S, had: u64, end: u64) -> Result<(), SealError> {
    let (had, end) =
        (sealed_len(Layout::InPlace, PlainLen(had)), sealed_len(Layout::InPlace, PlainLen(end)));
    if end < had { Ok(storage.set_len(end)?) } else { Ok(()) }
}

/// Seals zeros where a file that has no holes has some: a power cut kept its length and lost what
/// was written. Only while nobody writes, before redo makes anew what it lost.
///
/// Returns how many sectors were filled.
pub(super) fn fill_holes<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
) -> Result<u64, SealError> {
    let len = file.plain_len(storage)?.0;
    let mut filled = 0;
    for span in spans(0, len).most(1) {
        let (unit_start, cells) = (span.off(), span.len.next_multiple_of(CELL));
        let unit = scratch.page.room(BLOCK)?;
        let got = storage.read_at(&mut unit[..cells], SealedOff(HEADER_LEN + unit_start))?;
        let data_lens = data_lens(&unit[..got]);
        if open_unit(file.cipher.xts()?, unit_start / BLOCK_LEN, &mut unit[..got])? == Holes::None {
            continue;
        }
        let out = scratch.out.room(BLOCK)?;
        seal_units(file, unit_start, &unit[..got], &mut out[..got])?;
        for (index, sector) in out[..got].chunks(SECTOR).enumerate() {
            if data_lens[index] < sector.len() {
                let off = unit_start + (index * SECTOR) as u64;
                storage.write_at(sector, SealedOff(HEADER_LEN + off))?;
                filled += 1;
            }
        }
    }
    Ok(filled)
}

fn write_cells<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &[u8],
    plain_off: u64,
    had: u64,
) -> Result<(), SealError> {
    for span in spans(plain_off, buf.len() as u64).most(BATCH) {
        let (pos, plain) = (span.off(), &buf[span.range()]);
        if span.is_whole() {
            if pos >= had && !file.header.solid && all_zero(plain) {
                // Appended zeros are a hole, only with its room on the disk: so are new WAL
                // segments and new pages made.
                storage.write_at(plain, SealedOff(HEADER_LEN + pos))?;
            } else {
                let out = scratch.out.room(plain.len())?;
                seal_units(file, pos, plain, out)?;
                storage.write_at(out, SealedOff(HEADER_LEN + pos))?;
            }
        } else {
            write_part(file, storage, scratch, pos, plain, had)?;
        }
    }
    Ok(())
}

/// Writes bytes within one unit: whole sectors, with what they held before, so that a sector is
/// either a hole or sealed to its last cell.
fn write_part<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    pos: u64,
    bytes: &[u8],
    had: u64,
) -> Result<(), SealError> {
    let unit_start = pos - pos % BLOCK_LEN;
    let end = pos + bytes.len() as u64;
    let first = pos - pos % SECTOR_LEN;
    let stop = end.max(end.next_multiple_of(SECTOR_LEN).min(had));
    let (from, to) = ((first - unit_start) as usize, (stop - unit_start) as usize);
    let cells = to.next_multiple_of(CELL);

    let mut page = core::mem::take(&mut scratch.old);
    let result = (|| {
        // The cells of the unit before ours do not matter to ours, but XTS starts at the first.
        let page = page.room(BLOCK)?;
        page[..cells].fill(0);
        if first < pos || end < stop {
            read(file, storage, scratch, &mut page[from..to], first, OnDamage::Fail)?;
        }
        let at = (pos - unit_start) as usize;
        let changed = at..at + bytes.len();
        let before = scratch.page.room(BLOCK)?;
        before[changed.clone()].copy_from_slice(&page[changed.clone()]);
        page[changed.clone()].copy_from_slice(bytes);
        let out = scratch.out.room(BLOCK + CELL)?;
        seal_units(file, unit_start, &page[..cells], &mut out[..cells])?;
        let filler = if stop >= had { to % CELL } else { 0 };
        out[cells..cells + filler].fill(0);
        let off = SealedOff(HEADER_LEN + first);
        let result = storage.write_at(&out[from..cells + filler], off);
        if result.is_err() && first < had {
            // A torn cell would cost its neighbours: put back what was there.
            page[changed.clone()].copy_from_slice(&before[changed]);
            let old = ((stop.min(had) - unit_start) as usize).next_multiple_of(CELL);
            seal_units(file, unit_start, &page[..old], &mut out[..old])?;
            let _ = storage.write_at(&out[from..old], off);
        }
        Ok(result?)
    })();
    scratch.old = page;
    result
}

fn seal_units(
    file: &mut SealedFile,
    start: u64,
    plain: &[u8],
    out: &mut [u8],
) -> Result<(), SealError> {
    let xts = file.cipher.xts()?;
    for (index, (unit, out)) in plain.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
        xts.encrypt(start / BLOCK_LEN + index as u64, unit, out)?;
    }
    Ok(())
}

pub(super) fn set_len<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    new_len: u64,
) -> Result<(), SealError> {
    let had = file.plain_len(storage)?.0;
    if new_len >= had {
        return lengthen(file, storage, scratch, had, new_len);
    }
    restore_end(file, storage, scratch, new_len)
}

/// Makes the file end at `end`, which lies within it: a padded last cell and its filler, if the
/// length is odd.
fn restore_end<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    end: u64,
) -> Result<(), SealError> {
    let first = end - end % CELL_LEN;
    let odd = (end - first) as usize;
    let mut cell = [0; CELL];
    if odd != 0 {
        read(file, storage, scratch, &mut cell[..odd], first, OnDamage::Fail)?;
    }
    file.reached = file.reached.min(first);
    storage.set_len(sealed_len(Layout::InPlace, PlainLen(first)))?;
    if odd != 0 {
        write_part(file, storage, scratch, first, &cell[..odd], first)?;
    }
    Ok(())
}

/// Lengthens the file with zeros: cells of zeros up to the next sector, a hole behind it.
fn lengthen<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    had: u64,
    new_len: u64,
) -> Result<(), SealError> {
    fill_gap(file, storage, scratch, had, new_len)?;
    if file.header.solid {
        return Ok(());
    }
    Ok(storage.set_len(sealed_len(Layout::InPlace, PlainLen(new_len)))?)
}

/// Before a write at `new_len`, behind the end of the file: a hole, or in a file that has none sealed
/// zeros. In such a file the caller keeps apart writers that lengthen it: another one's page must
/// not be taken for a gap.
fn fill_gap<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    had: u64,
    new_len: u64,
) -> Result<(), SealError> {
    if !file.header.solid {
        return fill_sector(file, storage, scratch, had, new_len);
    }
    for span in spans(had, new_len - had).most(1) {
        let (at, zeros) = (span.off(), [0; BLOCK]);
        if let Err(error) = write_cells(file, storage, scratch, &zeros[..span.len], at, at) {
            // A full disk: the file keeps its length.
            let _ = restore_end(file, storage, scratch, had);
            return Err(error);
        }
        cut_filler(storage, at, span.end())?;
    }
    Ok(())
}

/// Before the file grows to `new_len`: cells of zeros up to the end of the sector in which it
/// ends. A file that ends with a whole sector is not touched: two processes may write different
/// pages behind the end of one SLRU segment, and a length set here would cut off the other's.
fn fill_sector<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    had: u64,
    new_len: u64,
) -> Result<(), SealError> {
    let pad_end = had.next_multiple_of(CELL_LEN);
    if pad_end > had && new_len > pad_end {
        // The padding of an odd last cell is zeros already; its filler goes.
        storage.set_len(SealedLen(HEADER_LEN + pad_end))?;
    }
    let explicit_end = had.next_multiple_of(SECTOR_LEN).min(new_len);
    if explicit_end > had {
        let zeros = [0; SECTOR];
        let len = (explicit_end - had) as usize;
        write_part(file, storage, scratch, had, &zeros[..len], had)?;
    }
    Ok(())
}
