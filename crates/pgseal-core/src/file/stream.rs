//! The stream layout: blocks of up to 8192 bytes, each behind its nonce and before its tag
//! (`spec/sealed-file.md`, section 7).

use super::operation::{InLayout, Operation, Reading};
use super::spans::{Span, Spans, spans};
use super::undo::{NOTHING, Undo};
use super::{BATCH, BLOCK, OnDamage, RETRIES, SealedFile, ZEROS};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, NONCE_LEN, STREAM_OVERHEAD, STREAM_STRIDE, TAG_LEN, block_sealed_off, sealed_len,
};
use crate::keyset::Generation;
use crate::random::Random;
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen};

const STRIDE: usize = STREAM_STRIDE as usize;
const OVERHEAD: usize = STREAM_OVERHEAD as usize;
const NONCE: usize = NONCE_LEN as usize;
const TAG: usize = TAG_LEN as usize;

/// The stream layout.
pub(super) struct Stream;

impl<S: Accelerator + ?Sized> InLayout for Operation<'_, S, Stream> {
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
                let sealed = out.room(span.blocks() * STRIDE)?;
                let got =
                    op.storage.read_at(sealed, block_sealed_off(Layout::Stream, span.block))?;
                let (mut done, mut skip) = (0, span.in_block);
                for (index, stride) in sealed[..got].chunks_mut(STRIDE).enumerate() {
                    let block = BlockNo(span.block.0 + index as u64);
                    let plain = op.open_stride(block, stride, reading)?;
                    let bytes = plain.get(skip..).unwrap_or_default();
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
        // For a temporary file (ephemeral key), to which only one process writes, the cached length
        // is enough. Any other file may have been cut by another process since, and a gap that is
        // not filled is damage.
        if plain_off > self.file.reached || self.file.header.generation != Generation::EPHEMERAL {
            let plain = self.plain_len()?;
            self.file.reached = plain;
            let start = plain_off - plain_off % BLOCK_LEN;
            if plain < start {
                let mut last = [0; STRIDE];
                let undo = self.undo_of_growth(plain, &mut last)?;
                let result =
                    self.fill_gap(plain, start).and_then(|()| self.write_bytes(bytes, plain_off));
                if result.is_err() {
                    self.file.reached = plain;
                    undo.roll_back(self.storage);
                }
                return result;
            }
        }
        self.write_bytes(bytes, plain_off)
    }

    fn set_len(&mut self, new_len: u64) -> Result<(), SealError> {
        let plain = self.plain_len()?;
        if new_len > plain {
            let mut last = [0; STRIDE];
            let undo = self.undo_of_growth(plain, &mut last)?;
            return self.fill_gap(plain, new_len).inspect_err(|_| undo.roll_back(self.storage));
        }
        let (block, in_block) = (BlockNo(new_len / BLOCK_LEN), (new_len % BLOCK_LEN) as usize);
        if in_block == 0 || new_len == plain {
            return Ok(self.storage.set_len(sealed_len(Layout::Stream, PlainLen(new_len)))?);
        }
        let mut keep = [0; BLOCK];
        let keep = &mut keep[..in_block];
        let start = block.0 * BLOCK_LEN;
        self.read(keep, start, OnDamage::Fail)?;
        // First the cut, then the block: a crash between the two leaves a shorter file, never a
        // block that does not open.
        self.storage.set_len(sealed_len(Layout::Stream, PlainLen(start)))?;
        self.write_part(block, 0, keep)
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Stream> {
    /// Opens a block that was just read; returns its plain bytes.
    fn open_stride<'b>(
        &mut self,
        block: BlockNo,
        stride: &'b mut [u8],
        reading: &mut Reading,
    ) -> Result<&'b [u8], SealError> {
        if stride.len() <= OVERHEAD {
            return Ok(&[]);
        }
        let end = stride.len() - TAG;
        for attempt in 1..=RETRIES {
            let (head, tag) = stride.split_at_mut(end);
            let (nonce, data) = head.split_at_mut(NONCE);
            let mut tag_bytes = [0; TAG];
            tag_bytes.copy_from_slice(tag);
            if self.file.cipher.open_block(block, nonce, &tag_bytes, data).is_ok() {
                return Ok(&stride[NONCE..end]);
            }
            self.storage.pause(attempt);
            let got = self.storage.read_at(stride, block_sealed_off(Layout::Stream, block))?;
            stride[got..].fill(0);
        }
        reading.note_damage(block, &mut stride[NONCE..end])?;
        Ok(&stride[NONCE..end])
    }

    /// Writes bytes that leave no gap: they begin before the end of the last block or right behind
    /// it.
    fn write_bytes(&mut self, bytes: &[u8], plain_off: u64) -> Result<(), SealError> {
        for span in spans(plain_off, bytes.len() as u64).most(BATCH) {
            let plain = &bytes[span.range()];
            if span.is_whole() {
                self.write_blocks(span.block, plain)?;
            } else {
                self.write_part(span.block, span.in_block, plain)?;
            }
            self.file.has_reached(span.end());
        }
        Ok(())
    }

    /// Prepares the rollback of growth over a gap: the old length of the file and, if the last
    /// block is not full, its sealed bytes, because the block is sealed anew with zeros. The bytes
    /// are read into `last`.
    fn undo_of_growth<'b>(
        &self,
        plain: u64,
        last: &'b mut [u8; STRIDE],
    ) -> Result<Undo<'b>, SealError> {
        let end = Some(self.storage.len()?);
        let at = block_sealed_off(Layout::Stream, BlockNo(plain / BLOCK_LEN));
        let is_full = plain.is_multiple_of(BLOCK_LEN);
        let got = if is_full { 0 } else { self.storage.read_at(last, at)? };
        Ok(Undo { old: [(at, &last[..got]), NOTHING], end })
    }

    /// Seals zeros from the plain length `plain` up to `new_len`, starting with the rest of a last
    /// block that is not full. Bytes of a stream file that were never sealed would be damage.
    fn fill_gap(&mut self, plain: u64, new_len: u64) -> Result<(), SealError> {
        for span in spans(plain, new_len - plain).most(BATCH) {
            let zeros = &ZEROS[..span.len];
            if span.in_block == 0 {
                self.write_blocks(span.block, zeros)?;
            } else {
                self.write_part(span.block, span.in_block, zeros)?;
            }
        }
        Ok(())
    }

    /// Seals up to [`BATCH`] blocks, of which the last may be the short end of the file.
    fn write_blocks(&mut self, first: BlockNo, plain: &[u8]) -> Result<(), SealError> {
        let len = plain.len() + plain.len().div_ceil(BLOCK) * OVERHEAD;
        let out = self.scratch.out.room(len)?;
        for (index, (block, stride)) in plain.chunks(BLOCK).zip(out.chunks_mut(STRIDE)).enumerate()
        {
            let number = BlockNo(first.0 + index as u64);
            self.file.seal_stride(number, block, stride, self.random)?;
        }
        Ok(self.storage.write_at(out, block_sealed_off(Layout::Stream, first))?)
    }

    /// Writes a part of a block. If the write fails, for example on a full disk, restores the old
    /// content of the block, so that a failed append loses no old data.
    fn write_part(
        &mut self,
        block: BlockNo,
        in_block: usize,
        bytes: &[u8],
    ) -> Result<(), SealError> {
        let at = block_sealed_off(Layout::Stream, block);
        self.lend(
            |scratch| &mut scratch.out,
            |op, out| {
                let stride = out.room(STRIDE)?;
                let got = op.storage.read_at(stride, at)?;
                op.scratch.old.room(STRIDE)?[..got].copy_from_slice(&stride[..got]);
                let mut reading = Reading::new(OnDamage::Fail);
                let had_bytes = op.open_stride(block, &mut stride[..got], &mut reading)?;
                let page = op.scratch.page.room(BLOCK)?;
                let had = had_bytes.len();
                page[..had].copy_from_slice(had_bytes);
                let end = in_block + bytes.len();
                if had < in_block {
                    page[had..in_block].fill(0);
                }
                page[in_block..end].copy_from_slice(bytes);
                let len = had.max(end);
                let sealed = &mut stride[..len + OVERHEAD];
                op.file.seal_stride(block, &page[..len], sealed, op.random)?;
                op.storage.write_at(sealed, at).inspect_err(|_| {
                    // A block that is not full was the end of the file.
                    let end = (got < STRIDE).then_some(SealedLen(at.0 + got as u64));
                    let old = [(at, op.scratch.old.bytes(got)), NOTHING];
                    Undo { old, end }.roll_back(op.storage);
                })?;
                Ok(())
            },
        )
    }
}

impl SealedFile {
    /// Seals one block into `stride`, which is 28 bytes longer than `plain`.
    fn seal_stride(
        &mut self,
        block: BlockNo,
        plain: &[u8],
        stride: &mut [u8],
        random: &dyn Random,
    ) -> Result<(), SealError> {
        let mut nonce = [0; NONCE];
        random.fill(&mut nonce)?;
        let (head, tag) = stride.split_at_mut(NONCE + plain.len());
        let (nonce_out, data) = head.split_at_mut(NONCE);
        tag.copy_from_slice(&self.cipher.seal_block(block, &mut nonce, plain, data)?);
        nonce_out.copy_from_slice(&nonce);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Scratch;
    use crate::random::LibraryRandom;
    use crate::storage::Storage;
    use crate::storage::fault::FaultStorage;
    use crate::storage::mem::MemStorage;
    use crate::suite::Suite;
    use crate::testing::new_file;
    use crate::units::{PlainOff, SealedOff};

    const SUITE: Suite = Suite::Aes256Gcm;

    fn create<S: Storage>(storage: &S) -> (SealedFile, Scratch, LibraryRandom) {
        let file = new_file(storage, SUITE, Layout::Stream).unwrap();
        (file, Scratch::new(), LibraryRandom::new())
    }

    #[test]
    fn a_wiped_block_is_damage_not_zeros() {
        let storage = MemStorage::default();
        let (mut file, mut scratch, random) = create(&storage);
        file.write_at(&storage, &mut scratch, &[5; 3 * BLOCK], PlainOff(0), &random).unwrap();
        let wiped = block_sealed_off(Layout::Stream, BlockNo(1)).0 as usize;
        storage.bytes()[wiped..wiped + STRIDE].fill(0);
        let mut buf = [0; BLOCK];
        for (block, sound) in [(0, true), (1, false), (2, true)] {
            let at = PlainOff(block * BLOCK_LEN);
            let read = file.read_at(&storage, &mut scratch, &mut buf, at, OnDamage::Fail);
            match read {
                Ok(outcome) => assert!(sound && outcome.zero_blocks == 0 && buf == [5; BLOCK]),
                Err(SealError::BlockDamaged(damaged)) => assert!(!sound && damaged.0 == block),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Every block of a gap opens on its own, and none is a block of zeros on the disk.
    #[test]
    fn a_gap_is_sealed_block_by_block() {
        for by_length in [true, false] {
            let storage = MemStorage::default();
            let (mut file, mut scratch, random) = create(&storage);
            file.write_at(&storage, &mut scratch, &[5; 100], PlainOff(0), &random).unwrap();
            // Three batches of zeros and a part of a block.
            let end = 40 * BLOCK_LEN + 50;
            if by_length {
                file.set_len(&storage, &mut scratch, PlainLen(end), &random).unwrap();
            } else {
                let last = PlainOff(end - 1);
                file.write_at(&storage, &mut scratch, &[0], last, &random).unwrap();
            }
            assert_eq!(file.plain_len(&storage).unwrap().0, end);
            let body = storage.bytes()[crate::geometry::HEADER_LEN as usize..].to_vec();
            assert!(body.chunks(STRIDE).all(|stride| stride[..NONCE] != [0; NONCE]));
            let mut plain = vec![1; end as usize];
            let start = PlainOff(0);
            let outcome =
                file.read_at(&storage, &mut scratch, &mut plain, start, OnDamage::Fail).unwrap();
            assert_eq!((outcome.len as u64, outcome.zero_blocks), (end, 0));
            assert!(plain[..100] == [5; 100] && plain[100..].iter().all(|byte| *byte == 0));
        }
    }

    /// Whichever write of a gap finds the disk full, the file has its old bytes afterwards.
    #[test]
    fn a_gap_that_finds_the_disk_full_is_taken_back() {
        for had in [100, BLOCK] {
            for number in 1..5 {
                for by_length in [true, false] {
                    let storage = FaultStorage::new(MemStorage::default());
                    let (mut file, mut scratch, random) = create(&storage);
                    let start = PlainOff(0);
                    file.write_at(&storage, &mut scratch, &[5; BLOCK][..had], start, &random)
                        .unwrap();
                    let old_len = storage.len().unwrap();
                    let mut old = vec![0; old_len.0 as usize];
                    storage.read_at(&mut old, SealedOff(0)).unwrap();
                    storage.arm(format!("enospc@write#{number}:100").parse().unwrap());
                    let far = 50 * BLOCK_LEN + 7;
                    let result = if by_length {
                        file.set_len(&storage, &mut scratch, PlainLen(far), &random)
                    } else {
                        file.write_at(&storage, &mut scratch, &[6; 30], PlainOff(far), &random)
                    };
                    assert!(matches!(result, Err(SealError::Io(_))), "{had} {number}");
                    assert_eq!(storage.len().unwrap(), old_len, "{had} {number} {by_length}");
                    let mut now = vec![0; old.len()];
                    storage.read_at(&mut now, SealedOff(0)).unwrap();
                    assert!(now == old, "{had} {number} {by_length}");
                }
            }
        }
    }
}
