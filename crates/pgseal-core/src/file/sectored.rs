//! The sectored layout: each sector of 512 bytes has its own nonce and tag
//! (`spec/sealed-file.md`, section 8.2).
//!
//! A device writes a sector whole or not at all. So after a torn write each sector opens, with its
//! old or its new content, and no order between two writes is needed.

use pgseal_crypto::NonceBytes;

use super::operation::{InLayout, Operation, Reading, Shared};
use super::spans::{Span, Spans, spans};
use super::undo::{NOTHING, Undo};
use super::{BATCH, BLOCK, OnDamage, RETRIES, SealedFile, ZEROS, all_zero};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, BLOCK_SECTORS, NONCE_LEN, SECTOR_DATA_LEN, SECTOR_LEN, SECTORED_STRIDE, TAG_LEN,
    block_sealed_off, plain_len, sealed_len,
};
use crate::random::Random;
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen, SealedOff};

const SECTOR: usize = SECTOR_LEN as usize;
/// Plain bytes in a sector; the last sector of a block holds fewer, and is padded with zeros.
const DATA: usize = SECTOR_DATA_LEN as usize;
const SECTORS: usize = BLOCK_SECTORS as usize;
const STRIDE: usize = SECTORED_STRIDE as usize;
const NONCE: usize = NONCE_LEN as usize;
const HEAD: usize = NONCE + TAG_LEN as usize;

/// The sectored layout.
pub(super) struct Sectored;

impl<S: Accelerator + ?Sized> InLayout for Operation<'_, S, Sectored> {
    fn read_spans(plain_off: u64, len: u64) -> Spans {
        spans(plain_off, len).joined().most(BATCH)
    }

    fn read_span(
        &mut self,
        span: Span,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        self.lend(
            |scratch| &mut scratch.out,
            |op, out| {
                // One sector more than the blocks have: if the read ends before it, the file ends
                // in these blocks, and its length is known without asking for it.
                let sealed = out.room(span.blocks() * STRIDE + SECTOR)?;
                let at = block_sealed_off(Layout::Sectored, span.block);
                let got = op.storage.read_at(sealed, at)?;
                let mut plain = span.blocks() * BLOCK;
                if got < sealed.len() {
                    let end = plain_len(Layout::Sectored, SealedLen(at.0 + got as u64)).0;
                    plain = plain.min(end.saturating_sub(span.block.0 * BLOCK_LEN) as usize);
                }
                let (mut done, mut skip) = (0, span.in_block);
                let mut page = [0; BLOCK];
                for (index, stride) in sealed.chunks_mut(STRIDE).enumerate() {
                    let len = plain.saturating_sub(index * BLOCK).min(BLOCK);
                    if len == 0 {
                        break;
                    }
                    let block = BlockNo(span.block.0 + index as u64);
                    let stride = &mut stride[..sectors_of(len) * SECTOR];
                    op.open_stride(block, stride, &mut page[..len], reading)?;
                    let bytes = page[..len].get(skip..).unwrap_or_default();
                    let take = bytes.len().min(span.len - done);
                    target[done..done + take].copy_from_slice(&bytes[..take]);
                    done += take;
                    skip = 0;
                }
                Ok(done)
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

impl<S: Accelerator + ?Sized> Shared for Operation<'_, S, Sectored> {
    const KEEPS_GAP: bool = false;
    const KNOWN_STEP: u64 = 1;

    /// Writes bytes into a file of the plain length `had`, which is at least `plain_off`.
    fn write_spans(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError> {
        for span in spans(plain_off, bytes.len() as u64).most(BATCH) {
            let plain = &bytes[span.range()];
            if span.is_whole() {
                self.write_blocks(span.block, plain)?;
            } else {
                self.write_part(span, plain, had)?;
            }
        }
        Ok(())
    }

    /// Lengthens the file to `new_len` with sealed zeros. The caller lets only one writer at a time
    /// lengthen the file; otherwise the zeros could overwrite a page that another writer just
    /// appended.
    fn fill_gap(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        for span in spans(had, new_len - had).most(BATCH) {
            let filled = self
                .write_spans(&ZEROS[..span.len], span.off(), span.off())
                .and_then(|()| self.cut_filler(span.off(), span.end()));
            if let Err(error) = filled {
                // A full disk: the file keeps its length.
                let _ = self.cut(had);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Truncates the file to `end`. If `end` is inside a sector, seals the rest of the sector anew,
    /// so that what was cut off cannot come back when the file grows.
    fn cut(&mut self, end: u64) -> Result<(), SealError> {
        self.file.reached = self.file.reached.min(end);
        let sealed = sealed_len(Layout::Sectored, PlainLen(end));
        let block = BlockNo(end / BLOCK_LEN);
        let in_block = (end % BLOCK_LEN) as usize;
        let odd = in_block % DATA;
        if odd == 0 {
            return Ok(self.storage.set_len(sealed)?);
        }
        let first = end - odd as u64;
        let mut rest = [0; DATA];
        self.read(&mut rest[..odd], first, OnDamage::Fail)?;
        let sector_end = SealedLen(sealed.0 - odd as u64);
        if self.storage.len()?.0 >= sector_end.0 + SECTOR_LEN {
            // The filler must be zeros: otherwise a sector that a power cut loses later would not
            // be zeros. So the bytes of the next sector are cut off first.
            self.storage.set_len(sector_end)?;
        }
        self.storage.set_len(sealed)?;
        let span = Span { block, in_block: in_block - odd, at: 0, len: odd };
        self.write_part(span, &rest[..odd], first)
    }

    fn lengthen(&mut self, had: u64, new_len: u64) -> Result<(), SealError> {
        self.fill_gap(had, new_len)
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Sectored> {
    /// Opens the sectors of a block, or of its start, into `page`. Reads them again if one does not
    /// open, because a writer may have written only some of its bytes.
    fn open_stride(
        &mut self,
        block: BlockNo,
        stride: &mut [u8],
        page: &mut [u8],
        reading: &mut Reading,
    ) -> Result<(), SealError> {
        for attempt in 1..=RETRIES {
            let mut sectors = stride.chunks_mut(SECTOR).zip(page.chunks_mut(DATA)).enumerate();
            if sectors.all(|(index, (sector, data))| {
                self.file.open_sector(sector_no(block, index), sector, data)
            }) {
                return Ok(());
            }
            self.storage.pause(attempt);
            let at = block_sealed_off(Layout::Sectored, block);
            let got = self.storage.read_at(stride, at)?;
            stride[got..].fill(0);
        }
        reading.note_damage(block, page)
    }

    /// Seals and writes up to [`BATCH`] whole blocks.
    fn write_blocks(&mut self, first: BlockNo, plain: &[u8]) -> Result<(), SealError> {
        let out = self.scratch.out.room(plain.len() / BLOCK * STRIDE)?;
        for (index, (page, stride)) in plain.chunks(BLOCK).zip(out.chunks_mut(STRIDE)).enumerate() {
            let block = BlockNo(first.0 + index as u64);
            self.file.seal_sectors(block, 0, page, stride, self.random)?;
        }
        Ok(self.storage.write_at(out, block_sealed_off(Layout::Sectored, first))?)
    }

    /// Writes bytes within one block: seals the sectors anew that hold them. If the write fails,
    /// for example on a full disk, restores the old sectors.
    fn write_part(&mut self, span: Span, bytes: &[u8], had: u64) -> Result<(), SealError> {
        let block_start = span.block.0 * BLOCK_LEN;
        let (from, to) = (span.in_block, span.in_block + span.len);
        // The sectors, and the plain bytes of the block that they hold.
        let (first, last) = (from / DATA, (to - 1) / DATA);
        let (start, room) = (first * DATA, (last + 1) * DATA);
        // How many bytes of the block the file has up to the end of these sectors, before and after
        // the write.
        let before = (had.saturating_sub(block_start) as usize).min(room).min(BLOCK);
        let after = before.max(to);
        self.lend(
            |scratch| &mut scratch.old,
            |op, page| {
                let page = &mut page.room(BLOCK)?[start..room.min(BLOCK)];
                page.fill(0);
                if start < before && (start < from || to < before) {
                    let off = block_start + start as u64;
                    op.read(&mut page[..before - start], off, OnDamage::Fail)?;
                }
                page[from - start..to - start].copy_from_slice(bytes);

                let at = SealedOff(
                    block_sealed_off(Layout::Sectored, span.block).0 + (first * SECTOR) as u64,
                );
                let sealed = (last + 1 - first) * SECTOR;
                let old = op.scratch.page.room(STRIDE + SECTOR)?;
                let got = op.storage.read_at(&mut old[..sealed + SECTOR], at)?;
                let out = op.scratch.out.room(STRIDE + SECTOR)?;
                op.file.seal_sectors(span.block, first, page, &mut out[..sealed], op.random)?;
                // If the file ends within the last sector, a filler tells the length.
                let ends_here = block_start + after as u64 >= had && after < BLOCK;
                let filler = if ends_here { after % DATA } else { 0 };
                out[sealed..sealed + filler].fill(0);
                op.storage.write_at(&out[..sealed + filler], at).inspect_err(|_| {
                    let end = (got < sealed + SECTOR).then_some(SealedLen(at.0 + got as u64));
                    let old = op.scratch.page.bytes(got.min(sealed));
                    Undo { old: [(at, old), NOTHING], end }.roll_back(op.storage);
                })?;
                Ok(())
            },
        )
    }

    /// Seals zeros into the sectors of zeros of some blocks; see
    /// [`SealedFile::fill_lost_sectors`].
    pub(super) fn fill_lost(
        &mut self,
        may_be_lost: &dyn Fn(BlockNo) -> bool,
    ) -> Result<u64, SealError> {
        let mut filled = 0;
        for span in spans(0, self.plain_len()?).most(1).filter(|span| may_be_lost(span.block)) {
            let at = block_sealed_off(Layout::Sectored, span.block);
            let stride = &mut self.scratch.out.room(STRIDE)?[..sectors_of(span.len) * SECTOR];
            let got = self.storage.read_at(stride, at)?;
            for (index, sector) in stride[..got].chunks_exact_mut(SECTOR).enumerate() {
                if all_zero(sector) {
                    self.file.seal_sectors(span.block, index, &[0], sector, self.random)?;
                    let off = at.0 + (index * SECTOR) as u64;
                    self.storage.write_at(sector, SealedOff(off))?;
                    filled += 1;
                }
            }
        }
        Ok(filled)
    }
}

impl SealedFile {
    /// Opens a sector, and copies its plain bytes to `data`. Returns whether the sector is
    /// authentic.
    fn open_sector(&mut self, sector_no: BlockNo, sector: &mut [u8], data: &mut [u8]) -> bool {
        let Some((head, sealed)) = sector.split_at_mut_checked(HEAD) else { return false };
        let (nonce, sector_tag) = head.split_at(NONCE);
        let mut tag = [0; HEAD - NONCE];
        tag.copy_from_slice(sector_tag);
        if self.cipher.open_block(sector_no, nonce, &tag, sealed).is_err() {
            return false;
        }
        data.copy_from_slice(&sealed[..data.len()]);
        true
    }

    /// Seals the plain bytes of sectors of one block, from its sector `first` on. The last sector
    /// is padded with zeros.
    fn seal_sectors(
        &mut self,
        block: BlockNo,
        first: usize,
        plain: &[u8],
        out: &mut [u8],
        random: &dyn Random,
    ) -> Result<(), SealError> {
        let mut nonces: [NonceBytes; SECTORS] = [[0; NONCE]; SECTORS];
        let count = plain.len().div_ceil(DATA);
        // Draw all nonces with one call: it may be a system call.
        random.fill(nonces[..count].as_flattened_mut())?;
        for (index, ((data, sector), mut nonce)) in
            plain.chunks(DATA).zip(out.chunks_exact_mut(SECTOR)).zip(nonces).enumerate()
        {
            let mut padded = [0; DATA];
            padded[..data.len()].copy_from_slice(data);
            let (head, sealed) = sector.split_at_mut(HEAD);
            let number = sector_no(block, first + index);
            let tag = self.cipher.seal_block(number, &mut nonce, &padded, sealed)?;
            head[..NONCE].copy_from_slice(&nonce);
            head[NONCE..].copy_from_slice(&tag);
        }
        Ok(())
    }
}

/// The number of a sector in the file, which its associated data holds in the place of a block
/// number.
fn sector_no(block: BlockNo, index: usize) -> BlockNo {
    BlockNo(block.0 * BLOCK_SECTORS + index as u64)
}

/// The sectors that hold the first `len` plain bytes of a block.
fn sectors_of(len: usize) -> usize {
    len.div_ceil(DATA)
}
