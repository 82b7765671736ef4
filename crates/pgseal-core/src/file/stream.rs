//! The stream layout: blocks of up to 8192 bytes, each behind its nonce and before its tag
//! (`spec/sealed-file.md`, section 7).

use super::spans::spans;
use super::{BATCH, BLOCK, OnDamage, RETRIES, ReadOutcome, Scratch, SealedFile, fresh_nonce};
use crate::error::SealError;
use crate::geometry::{BLOCK_LEN, STREAM_OVERHEAD, STREAM_STRIDE, block_sealed_off, sealed_len};
use crate::keyset::Generation;
use crate::random::Random;
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen, SealedOff};

const STRIDE: usize = STREAM_STRIDE as usize;
const OVERHEAD: usize = STREAM_OVERHEAD as usize;
const NONCE: usize = 12;
const TAG: usize = 16;

/// What a gap is filled with; a constant, so that filling one needs no heap.
static ZEROS: [u8; BATCH * BLOCK] = [0; BATCH * BLOCK];

pub(super) fn read<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &mut [u8],
    plain_off: u64,
    on_damage: OnDamage,
) -> Result<ReadOutcome, SealError> {
    let mut outcome = ReadOutcome::default();
    for span in spans(plain_off, buf.len() as u64).joined().most(BATCH) {
        let sealed = scratch.out.room(span.blocks() * STRIDE)?;
        let got = storage.read_at(sealed, block_sealed_off(Layout::Stream, span.block))?;
        let mut rest = &mut buf[span.range()];
        let mut skip = span.in_block;
        for (index, stride) in sealed[..got].chunks_mut(STRIDE).enumerate() {
            let block = BlockNo(span.block.0 + index as u64);
            let plain = open_stride(file, storage, block, stride, on_damage, &mut outcome)?;
            let bytes = plain.get(skip..).unwrap_or_default();
            let (target, behind) = rest.split_at_mut(bytes.len().min(rest.len()));
            target.copy_from_slice(&bytes[..target.len()]);
            outcome.len += target.len();
            (rest, skip) = (behind, 0);
        }
        if !rest.is_empty() {
            break;
        }
    }
    Ok(outcome)
}

/// Opens a block that was just read; returns its plain bytes.
fn open_stride<'a, S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    block: BlockNo,
    stride: &'a mut [u8],
    on_damage: OnDamage,
    outcome: &mut ReadOutcome,
) -> Result<&'a [u8], SealError> {
    if stride.len() <= OVERHEAD {
        return Ok(&[]);
    }
    let end = stride.len() - TAG;
    for attempt in 1..=RETRIES {
        let (head, tag) = stride.split_at_mut(end);
        let (nonce, data) = head.split_at_mut(NONCE);
        let (mut nonce_bytes, mut tag_bytes) = ([0; NONCE], [0; TAG]);
        nonce_bytes.copy_from_slice(nonce);
        tag_bytes.copy_from_slice(tag);
        if file.cipher.open_block(block, nonce_bytes, &tag_bytes, data).is_ok() {
            return Ok(&stride[NONCE..end]);
        }
        storage.pause(attempt);
        let got = storage.read_at(stride, block_sealed_off(Layout::Stream, block))?;
        stride[got..].fill(0);
    }
    outcome.note_damage(block, &mut stride[NONCE..end], on_damage)?;
    Ok(&stride[NONCE..end])
}

pub(super) fn write<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &[u8],
    plain_off: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    // What is remembered will do where one process writes. Elsewhere another one may have cut the
    // file since, and a gap that nobody fills is damage.
    if plain_off > file.reached || file.header.generation != Generation::EPHEMERAL {
        let plain = file.plain_len(storage)?.0;
        file.reached = plain;
        let start = plain_off - plain_off % BLOCK_LEN;
        if plain < start {
            let before = Before::of_end(storage, plain)?;
            let result = fill_gap(file, storage, scratch, plain, start, random)
                .and_then(|()| write_bytes(file, storage, scratch, buf, plain_off, random));
            if result.is_err() {
                file.reached = plain;
                before.put_back(storage);
            }
            return result;
        }
    }
    write_bytes(file, storage, scratch, buf, plain_off, random)
}

/// Writes bytes that begin in the last block of the file, right behind it, or before it.
fn write_bytes<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &[u8],
    plain_off: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    for span in spans(plain_off, buf.len() as u64).most(BATCH) {
        let plain = &buf[span.range()];
        if span.is_whole() {
            write_blocks(file, storage, scratch, span.block, plain, random)?;
        } else {
            write_part(file, storage, scratch, span.block, span.in_block, plain, random)?;
        }
        file.reached = file.reached.max(span.end());
    }
    Ok(())
}

/// The end of a file before it grows over a gap.
struct Before {
    len: SealedLen,
    at: SealedOff,
    /// The sealed bytes of the last block, if it is not full: it is sealed anew with zeros.
    last: [u8; STRIDE],
    last_len: usize,
}

impl Before {
    fn of_end<S: Storage + ?Sized>(storage: &S, plain: u64) -> Result<Before, SealError> {
        let at = block_sealed_off(Layout::Stream, BlockNo(plain / BLOCK_LEN));
        let mut before = Before { len: storage.len()?, at, last: [0; STRIDE], last_len: 0 };
        if !plain.is_multiple_of(BLOCK_LEN) {
            before.last_len = storage.read_at(&mut before.last, at)?;
        }
        Ok(before)
    }

    /// After a failed write (a full disk): the file is again what it was. Errors are not reported:
    /// the one that brought us here is.
    fn put_back<S: Storage + ?Sized>(&self, storage: &S) {
        let _ = storage.write_at(&self.last[..self.last_len], self.at);
        if storage.len().is_ok_and(|len| len > self.len) {
            let _ = storage.set_len(self.len);
        }
    }
}

/// Seals zeros from the plain length `plain` up to `new_len`, the rest of a last block that is not
/// full first: bytes that nobody sealed are damage.
fn fill_gap<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    plain: u64,
    new_len: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    for span in spans(plain, new_len - plain).most(BATCH) {
        let zeros = &ZEROS[..span.len];
        if span.in_block == 0 {
            write_blocks(file, storage, scratch, span.block, zeros, random)?;
        } else {
            write_part(file, storage, scratch, span.block, span.in_block, zeros, random)?;
        }
    }
    Ok(())
}

/// Seals one block into `stride`, which is 28 bytes longer than `plain`.
fn seal_stride(
    file: &mut SealedFile,
    block: BlockNo,
    plain: &[u8],
    stride: &mut [u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let nonce = fresh_nonce(random)?;
    let (head, tag) = stride.split_at_mut(NONCE + plain.len());
    let (nonce_out, data) = head.split_at_mut(NONCE);
    nonce_out.copy_from_slice(&nonce);
    tag.copy_from_slice(&file.cipher.seal_block(block, nonce, plain, data)?);
    Ok(())
}

/// Seals up to [`BATCH`] blocks, of which the last may be the short end of the file.
fn write_blocks<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    first: BlockNo,
    plain: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let out = scratch.out.room(plain.len() + plain.len().div_ceil(BLOCK) * OVERHEAD)?;
    for (index, (block, stride)) in plain.chunks(BLOCK).zip(out.chunks_mut(STRIDE)).enumerate() {
        seal_stride(file, BlockNo(first.0 + index as u64), block, stride, random)?;
    }
    Ok(storage.write_at(out, block_sealed_off(Layout::Stream, first))?)
}

/// Writes a part of a block. What the block held before is put back if the disk is full, so that
/// a failed append loses nothing that was there.
fn write_part<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    block: BlockNo,
    in_block: usize,
    bytes: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let at = block_sealed_off(Layout::Stream, block);
    let old = scratch.old.room(STRIDE)?;
    let stride = scratch.out.room(STRIDE)?;
    let got = storage.read_at(stride, at)?;
    old[..got].copy_from_slice(&stride[..got]);
    let mut outcome = ReadOutcome::default();
    let had_bytes =
        open_stride(file, storage, block, &mut stride[..got], OnDamage::Fail, &mut outcome)?;
    let page = scratch.page.room(BLOCK)?;
    let had = had_bytes.len();
    page[..had].copy_from_slice(had_bytes);
    let end = in_block + bytes.len();
    if had < in_block {
        page[had..in_block].fill(0);
    }
    page[in_block..end].copy_from_slice(bytes);
    let len = had.max(end);
    seal_stride(file, block, &page[..len], &mut stride[..len + OVERHEAD], random)?;
    if let Err(error) = storage.write_at(&stride[..len + OVERHEAD], at) {
        // The error that brought us here is the one to report.
        let _ = storage.write_at(&old[..got], at);
        if got < len + OVERHEAD {
            let _ = storage.set_len(SealedLen(at.0 + got as u64));
        }
        return Err(error.into());
    }
    Ok(())
}

pub(super) fn set_len<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    new_len: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    let plain = file.plain_len(storage)?.0;
    let target = sealed_len(Layout::Stream, PlainLen(new_len));
    if new_len > plain {
        let before = Before::of_end(storage, plain)?;
        return fill_gap(file, storage, scratch, plain, new_len, random)
            .inspect_err(|_| before.put_back(storage));
    }
    if new_len == plain {
        return Ok(storage.set_len(target)?);
    }
    let (block, in_block) = (BlockNo(new_len / BLOCK_LEN), (new_len % BLOCK_LEN) as usize);
    if in_block == 0 {
        return Ok(storage.set_len(target)?);
    }
    let mut keep = [0; BLOCK];
    let keep = &mut keep[..in_block];
    read(file, storage, scratch, keep, block.0 * BLOCK_LEN, OnDamage::Fail)?;
    // First the cut, then the block: a crash between the two leaves a shorter file, never a
    // block that does not open.
    storage.set_len(sealed_len(Layout::Stream, PlainLen(block.0 * BLOCK_LEN)))?;
    write_part(file, storage, scratch, block, 0, keep, random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::LibraryRandom;
    use crate::storage::fault::FaultStorage;
    use crate::storage::mem::MemStorage;
    use crate::suite::Suite;
    use crate::testing::new_file;
    use crate::units::PlainOff;

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
