//! The stream layout: blocks of up to 8192 bytes, each behind its nonce and before its tag
//! (`spec/sealed-file.md`, section 7).

use super::{
    BATCH, BLOCK, OnDamage, RETRIES, ReadOutcome, Scratch, SealedFile, all_zero, fresh_nonce, grow,
};
use crate::error::SealError;
use crate::geometry::{BLOCK_LEN, STREAM_OVERHEAD, STREAM_STRIDE, block_sealed_off, sealed_len};
use crate::random::Random;
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen};

const STRIDE: usize = STREAM_STRIDE as usize;
const OVERHEAD: usize = STREAM_OVERHEAD as usize;
const NONCE: usize = 12;
const TAG: usize = 16;

pub(super) fn read<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &mut [u8],
    plain_off: u64,
    on_damage: OnDamage,
) -> Result<ReadOutcome, SealError> {
    let mut outcome = ReadOutcome::default();
    while outcome.len < buf.len() {
        let pos = plain_off + outcome.len as u64;
        let first = BlockNo(pos / BLOCK_LEN);
        let in_block = (pos % BLOCK_LEN) as usize;
        let blocks = (in_block + buf.len() - outcome.len).div_ceil(BLOCK).min(BATCH);
        let sealed = grow(&mut scratch.out, blocks * STRIDE);
        let got = storage.read_at(sealed, block_sealed_off(Layout::Stream, first))?;
        let mut skip = in_block;
        for (index, stride) in sealed[..got].chunks_mut(STRIDE).enumerate() {
            let block = BlockNo(first.0 + index as u64);
            let plain = open_stride(file, storage, block, stride, on_damage, &mut outcome)?;
            let Some(bytes) = plain.get(skip..).filter(|bytes| !bytes.is_empty()) else {
                return Ok(outcome);
            };
            let rest = &mut buf[outcome.len..];
            let take = bytes.len().min(rest.len());
            rest[..take].copy_from_slice(&bytes[..take]);
            outcome.len += take;
            skip = 0;
        }
        if got < blocks * STRIDE {
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
        if all_zero(stride) {
            outcome.zero_blocks += 1;
            return Ok(&stride[NONCE..end]);
        }
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
    if plain_off > file.reached {
        let plain = file.plain_len(storage)?.0;
        file.reached = plain;
        if plain < plain_off && plain / BLOCK_LEN < plain_off / BLOCK_LEN {
            lengthen_last_block(file, storage, scratch, plain, plain_off, random)?;
        }
    }
    let mut done = 0;
    while done < buf.len() {
        let pos = plain_off + done as u64;
        let block = BlockNo(pos / BLOCK_LEN);
        let in_block = (pos % BLOCK_LEN) as usize;
        let rest = &buf[done..];
        let step = if in_block == 0 && rest.len() >= BLOCK {
            let blocks = (rest.len() / BLOCK).min(BATCH);
            write_whole(file, storage, scratch, block, &rest[..blocks * BLOCK], random)?;
            blocks * BLOCK
        } else {
            let step = (BLOCK - in_block).min(rest.len());
            write_part(file, storage, scratch, block, in_block, &rest[..step], random)?;
            step
        };
        done += step;
        file.reached = file.reached.max(pos + step as u64);
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

fn write_whole<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    first: BlockNo,
    plain: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let out = grow(&mut scratch.out, plain.len() / BLOCK * STRIDE);
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
    let old = grow(&mut scratch.old, STRIDE);
    let stride = grow(&mut scratch.out, STRIDE);
    let got = storage.read_at(stride, at)?;
    old[..got].copy_from_slice(&stride[..got]);
    let mut outcome = ReadOutcome::default();
    let had_bytes =
        open_stride(file, storage, block, &mut stride[..got], OnDamage::Fail, &mut outcome)?;
    let page = grow(&mut scratch.page, BLOCK);
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
            let _ = storage.set_len(crate::units::SealedLen(at.0 + got as u64));
        }
        return Err(error.into());
    }
    Ok(())
}

fn lengthen_last_block<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    plain: u64,
    new_len: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    let in_block = (plain % BLOCK_LEN) as usize;
    if in_block == 0 {
        return Ok(());
    }
    let block = BlockNo(plain / BLOCK_LEN);
    let end = (new_len - block.0 * BLOCK_LEN).min(BLOCK_LEN) as usize;
    let zeros = [0; BLOCK];
    write_part(file, storage, scratch, block, in_block, &zeros[in_block..end], random)
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
    if new_len >= plain {
        lengthen_last_block(file, storage, scratch, plain, new_len, random)?;
        return Ok(storage.set_len(target)?);
    }
    let (block, in_block) = (BlockNo(new_len / BLOCK_LEN), (new_len % BLOCK_LEN) as usize);
    if in_block == 0 {
        return Ok(storage.set_len(target)?);
    }
    let mut keep = vec![0; in_block];
    read(file, storage, scratch, &mut keep, block.0 * BLOCK_LEN, OnDamage::Fail)?;
    // First the cut, then the block: a crash between the two leaves a shorter file, never a
    // block that does not open.
    storage.set_len(sealed_len(Layout::Stream, PlainLen(block.0 * BLOCK_LEN)))?;
    write_part(file, storage, scratch, block, 0, &keep, random)
}
