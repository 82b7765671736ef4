//! The paged layout: 8192-byte pages in groups of 256 behind a tag block each
//! (`spec/sealed-file.md`, section 6).

use super::spans::spans;
use super::{BATCH, BLOCK, Buffer, OnDamage, RETRIES, ReadOutcome, Scratch, SealedFile, all_zero};
use crate::cipher::{NonceBytes, TagBytes};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, GROUP_PAGES, TAG_BLOCK_LEN, TAG_ENTRY_LEN, block_sealed_off, tag_block_off,
    tag_entry_off,
};
use crate::random::Random;
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::BlockNo;

mod length;
mod mend;
mod recent;
mod tags;

pub(super) use length::set_len;
pub(super) use recent::RecentTags;
pub(super) use tags::TagCache;

use length::fill_gap;
use mend::{Before, drop_unfinished};

const TAG_BLOCK: usize = TAG_BLOCK_LEN as usize;
const ENTRY: usize = TAG_ENTRY_LEN as usize;
/// The last four bytes of the entry of a page that was written.
const WRITTEN: [u8; 4] = 1_u32.to_le_bytes();

/// What a page turned out to be.
enum Page {
    Data,
    Zero,
    Damaged,
}

pub(super) fn read<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    buf: &mut [u8],
    plain_off: u64,
    on_damage: OnDamage,
) -> Result<ReadOutcome, SealError> {
    let mut outcome = ReadOutcome::default();
    for span in spans(plain_off, buf.len() as u64).in_groups() {
        let (block, target) = (span.block, &mut buf[span.range()]);
        let got = if span.is_whole() {
            if span.blocks() == 1 {
                file.tags.expect(block, &scratch.recent);
            }
            let got = storage.read_at(target, block_sealed_off(Layout::Paged, block))?;
            let fresh = !file.header.suite.authenticates();
            if got > BLOCK {
                // One call for the tags of all of them, if any.
                if fresh || !file.tags.has(storage, block.0 / GROUP_PAGES) {
                    file.tags.load(storage, block)?;
                }
            } else {
                file.tags.prepare(storage, block, fresh, &mut scratch.recent)?;
            }
            for (index, page) in target[..got].chunks_mut(BLOCK).enumerate() {
                let block = BlockNo(block.0 + index as u64);
                file.tags.ensure(storage, block)?;
                open_page(file, storage, block, page, on_damage, &mut outcome)?;
            }
            got
        } else {
            let page = scratch.page.room(BLOCK)?;
            let got = storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
            if got <= span.in_block {
                break;
            }
            let fresh = !file.header.suite.authenticates();
            file.tags.prepare(storage, block, fresh, &mut scratch.recent)?;
            open_page(file, storage, block, &mut page[..got], on_damage, &mut outcome)?;
            let take = (got - span.in_block).min(span.len);
            target[..take].copy_from_slice(&page[span.in_block..span.in_block + take]);
            take
        };
        outcome.len += got;
        if got < span.len {
            break;
        }
    }
    Ok(outcome)
}

/// Opens a page that was just read and whose tag is at hand, in place; reads page and tag again
/// where a writer may have been between the two.
fn open_page<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    block: BlockNo,
    page: &mut [u8],
    on_damage: OnDamage,
    outcome: &mut ReadOutcome,
) -> Result<(), SealError> {
    for attempt in 1..=RETRIES {
        match try_open(file, block, page) {
            Page::Data => return Ok(()),
            Page::Zero => {
                outcome.zero_blocks += 1;
                return Ok(());
            }
            Page::Damaged => {}
        }
        if attempt > 1 {
            storage.pause(attempt - 1);
        }
        file.tags.load(storage, block)?;
        let got = storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
        page[got..].fill(0);
    }
    outcome.note_damage(block, page, on_damage)
}

fn try_open(file: &mut SealedFile, block: BlockNo, page: &mut [u8]) -> Page {
    let entry = file.tags.entry(block);
    if all_zero(&entry) {
        return if all_zero(page) { Page::Zero } else { Page::Damaged };
    }
    // CTR has no tag that would tell a wiped page; a few bytes may be zeros by chance.
    let wiped = !file.header.suite.authenticates() && page.len() >= 16 && all_zero(page);
    let Some((nonce, tag)) = decode_entry(&entry).filter(|_| !wiped) else { return Page::Damaged };
    match file.cipher.open_block(block, nonce, &tag, page) {
        Ok(()) => Page::Data,
        Err(_) => Page::Damaged,
    }
}

/// Nonce and tag of a page that was written.
fn decode_entry(entry: &[u8; ENTRY]) -> Option<(NonceBytes, TagBytes)> {
    let (mut nonce, mut tag) = ([0; 12], [0; 16]);
    nonce.copy_from_slice(&entry[..12]);
    tag.copy_from_slice(&entry[12..28]);
    (entry[28..] == WRITTEN).then_some((nonce, tag))
}

fn encode_entry(nonce: NonceBytes, tag: TagBytes, entry: &mut [u8]) {
    entry[..12].copy_from_slice(&nonce);
    entry[12..28].copy_from_slice(&tag);
    entry[28..32].copy_from_slice(&WRITTEN);
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
        fill_gap(file, storage, scratch, plain_off, random)?;
    }
    for span in spans(plain_off, buf.len() as u64).in_groups().most(BATCH) {
        let plain = &buf[span.range()];
        if span.is_whole() {
            if let Err(error) = write_pages(file, storage, scratch, span.block, plain, random) {
                drop_unfinished(storage, span.off(), plain.len() as u64);
                return Err(error);
            }
        } else {
            write_part(file, storage, scratch, span.block, span.in_block, plain, random)?;
        }
        file.reached = file.reached.max(span.end());
    }
    Ok(())
}

/// Seals and writes pages of one group, then their tags, and counts the change.
fn write_pages<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    first: BlockNo,
    plain: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let result = seal_pages(file, storage, scratch, first, plain, random);
    file.tags.count_change(storage, first);
    result
}

fn seal_pages<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    first: BlockNo,
    plain: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let pages = plain.len().div_ceil(BLOCK);
    let start = first.0 * BLOCK_LEN;
    let zeros = all_zero(plain);
    // Both questions are only asked where the answer can be yes, and only behind what is known of
    // the file: a write into the middle asks nothing.
    let appends = (zeros || first.0.is_multiple_of(GROUP_PAGES))
        && start >= file.reached
        && file.plain_len(storage)?.0 <= start;
    // The first page of a group brings the whole tag block, so that no later tag of the group has
    // to find room on a full disk.
    let new_group = appends && first.0.is_multiple_of(GROUP_PAGES);
    if appends && zeros {
        return append_zeros(file, storage, scratch, first, plain, new_group);
    }
    let out = scratch.out.room(TAG_BLOCK + BATCH * BLOCK)?;
    let (tags, sealed) = out.split_at_mut(TAG_BLOCK);
    let at = if new_group { 0 } else { (first.0 % GROUP_PAGES) as usize * ENTRY };
    if new_group {
        tags.fill(0);
    }
    let entries = &mut tags[at..at + pages * ENTRY];
    let mut nonces = [[0; 12]; BATCH];
    // One draw for all: it may be a system call.
    random.fill(nonces[..pages].as_flattened_mut())?;
    for (index, (((page, sealed), entry), nonce)) in plain
        .chunks(BLOCK)
        .zip(sealed.chunks_mut(BLOCK))
        .zip(entries.chunks_mut(ENTRY))
        .zip(nonces)
        .enumerate()
    {
        let block = BlockNo(first.0 + index as u64);
        let tag = file.cipher.seal_block(block, nonce, page, &mut sealed[..page.len()])?;
        encode_entry(nonce, tag, entry);
    }
    let written = if new_group {
        let group = tag_block_off(first.0 / GROUP_PAGES);
        storage.write_at(&out[..TAG_BLOCK + plain.len()], group)
    } else {
        storage
            .write_at(&sealed[..plain.len()], block_sealed_off(Layout::Paged, first))
            .and_then(|()| storage.write_tags(entries, tag_entry_off(first)))
    };
    if let Err(error) = written {
        file.tags.clear();
        return Err(error.into());
    }
    file.tags.store(first, &out[at..at + pages * ENTRY]);
    Ok(())
}

/// Appends pages of zeros as they are, without tags: PostgreSQL lengthens a relation this way and
/// writes the pages when they have contents. They read as zeros, and after a power cut there is no
/// page without its tag.
fn append_zeros<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    first: BlockNo,
    zeros: &[u8],
    new_group: bool,
) -> Result<(), SealError> {
    let written = if new_group {
        let out = scratch.out.room(TAG_BLOCK + zeros.len())?;
        out.fill(0);
        storage.write_at(out, tag_block_off(first.0 / GROUP_PAGES))
    } else {
        storage.write_at(zeros, block_sealed_off(Layout::Paged, first))
    };
    if let Err(error) = written {
        drop_unfinished(storage, first.0 * BLOCK_LEN, zeros.len() as u64);
        return Err(error.into());
    }
    let blank = &[0; BATCH * ENTRY][..zeros.len().div_ceil(BLOCK) * ENTRY];
    if !new_group {
        mend::clear_tags_of(file, storage, first, blank)?;
    }
    file.note_zeros(first, blank);
    Ok(())
}

/// Writes a part of a page: reads the page, changes it, seals it anew.
fn write_part<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    block: BlockNo,
    in_block: usize,
    bytes: &[u8],
    random: &dyn Random,
) -> Result<(), SealError> {
    let mut page = core::mem::take(&mut scratch.page);
    let result = (|| {
        let whole = page.room(BLOCK)?;
        let had = read_page(file, storage, &mut scratch.old, &mut scratch.recent, block, whole)?;
        let entry = file.tags.entry(block);
        let end = in_block + bytes.len();
        if had < in_block {
            whole[had..in_block].fill(0);
        }
        whole[in_block..end].copy_from_slice(bytes);
        write_pages(file, storage, scratch, block, &whole[..had.max(end)], random).inspect_err(
            |_| {
                let before = Before { block, sealed: scratch.old.bytes(had), entry };
                before.put_back(&mut file.tags, storage);
            },
        )
    })();
    scratch.page = page;
    result
}

/// Reads what there is of a page, and keeps its sealed bytes in `old`; damage is an error.
fn read_page<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    old: &mut Buffer,
    recent: &mut RecentTags,
    block: BlockNo,
    page: &mut [u8],
) -> Result<usize, SealError> {
    let got = storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
    old.room(BLOCK)?[..got].copy_from_slice(&page[..got]);
    if got > 0 {
        let mut outcome = ReadOutcome::default();
        file.tags.prepare(storage, block, !file.header.suite.authenticates(), recent)?;
        open_page(file, storage, block, &mut page[..got], OnDamage::Fail, &mut outcome)?;
    }
    Ok(got)
}
