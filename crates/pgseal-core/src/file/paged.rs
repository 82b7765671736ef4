//! The paged layout: 8192-byte pages in groups of 256, each group behind its tag block
//! (`spec/sealed-file.md`, section 6).

use super::operation::{InLayout, Operation, Reading};
use super::spans::{Span, Spans, spans};
use super::{BATCH, BLOCK, OnDamage, RETRIES, SealedFile, all_zero};
use crate::broken::{self, Order};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, GROUP_PAGES, TAG_BLOCK_LEN, block_sealed_off, tag_block_off, tag_entry_off,
};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::BlockNo;
use crate::usage;
use crate::versions::{Found, Seen};

mod blocks;
mod entry;
mod length;
mod mend;
mod tags;
mod watched;

pub(super) use blocks::TagBlocks;
pub(super) use entry::{ENTRY, Entry};
pub(super) use tags::TagCache;

const TAG_BLOCK: usize = TAG_BLOCK_LEN as usize;

/// The paged layout.
pub(super) struct Paged;

/// The result of opening a page.
enum Page {
    Data,
    Zero,
    Damaged,
}

impl<S: Accelerator + ?Sized> InLayout for Operation<'_, S, Paged> {
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
                let page = page.room(BLOCK)?;
                let before = op.before_read(span.block);
                let got = op.storage.read_at(page, block_sealed_off(Layout::Paged, span.block))?;
                if got <= span.in_block {
                    return Ok(0);
                }
                op.prepare_tag(span.block)?;
                op.open_page(span.block, &mut page[..got], before, reading)?;
                Ok(span.copy_from(&page[..got], target))
            },
        )
    }

    fn write(&mut self, bytes: &[u8], plain_off: u64) -> Result<(), SealError> {
        if plain_off > self.file.reached {
            self.fill_gap(plain_off)?;
        }
        for span in spans(plain_off, bytes.len() as u64).in_groups().most(BATCH) {
            let plain = &bytes[span.range()];
            if span.is_whole() {
                let kept = self.kept_of(span)?;
                self.write_pages(span.block, plain)
                    .inspect_err(|_| self.drop_unfinished(span, kept))?;
            } else {
                self.write_part(span.block, span.in_block, plain)?;
            }
            self.file.has_reached(span.end());
        }
        Ok(())
    }

    fn set_len(&mut self, new_len: u64) -> Result<(), SealError> {
        let plain = self.plain_len()?;
        if new_len > plain { self.lengthen(plain, new_len) } else { self.cut(plain, new_len) }
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Paged> {
    /// Reads whole pages of one group; returns the bytes read.
    fn read_pages(
        &mut self,
        first: BlockNo,
        pages: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        if pages.len() == BLOCK {
            self.file.tags.expect(self.storage, &self.scratch.blocks, first);
        }
        self.before_reads(first, pages.len().div_ceil(BLOCK));
        let got = self.storage.read_at(pages, block_sealed_off(Layout::Paged, first))?;
        if got > BLOCK {
            // One call reads the tags of all pages, unless they are cached.
            let (tags, blocks) = (&mut self.file.tags, &mut self.scratch.blocks);
            if !tags.has(self.storage, blocks, first.0 / GROUP_PAGES) {
                tags.load(self.storage, blocks, first)?;
            }
        } else {
            self.prepare_tag(first)?;
        }
        for (index, page) in pages[..got].chunks_mut(BLOCK).enumerate() {
            let block = BlockNo(first.0 + index as u64);
            self.file.tags.ensure(self.storage, &self.scratch.blocks, block)?;
            let before = self.scratch.seen.of(index);
            self.open_page(block, page, before, reading)?;
        }
        Ok(got)
    }

    /// Loads the tag entry of a single page.
    fn prepare_tag(&mut self, block: BlockNo) -> Result<(), SealError> {
        self.file.tags.prepare(self.storage, &mut self.scratch.blocks, block)
    }

    /// Opens in place a page that was just read and whose tag entry is loaded, and compares its
    /// version; `before` is from before the read. If that fails, reads page and tag again, because
    /// a writer may have written one of them but not yet the other.
    fn open_page(
        &mut self,
        block: BlockNo,
        page: &mut [u8],
        mut before: Seen,
        reading: &mut Reading,
    ) -> Result<(), SealError> {
        let mut is_older = false;
        for attempt in 1..=RETRIES {
            let entry = self.file.tags.entry(&self.scratch.blocks, block);
            let opened = self.file.try_open(block, &entry, page);
            let found = match opened {
                Page::Data | Page::Zero => self.compare(block, before, &entry),
                Page::Damaged => Found::Unknown,
            };
            is_older = found == Found::Older;
            match opened {
                Page::Damaged => {}
                // Other processes write the page again and again: it is as good as any.
                _ if found == Found::Changed && attempt < RETRIES => {}
                _ if is_older => {}
                Page::Data => return Ok(()),
                Page::Zero => {
                    reading.outcome.zero_blocks += 1;
                    return Ok(());
                }
            }
            if attempt > 1 {
                self.storage.pause(attempt - 1);
            }
            before = self.before_read(block);
            // Nobody else is to try the same entry, if a process died before it changed it.
            self.file.tags.forget(self.storage, block.0..block.0 + 1);
            self.file.tags.load(self.storage, &mut self.scratch.blocks, block)?;
            let got = self.storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
            page[got..].fill(0);
        }
        if is_older { reading.note_older(block, page) } else { reading.note_damage(block, page) }
    }

    /// Seals and writes pages of one group, then their tags, and counts the change.
    fn write_pages(&mut self, first: BlockNo, plain: &[u8]) -> Result<(), SealError> {
        let result = self.seal_pages(first, plain);
        if result.is_err() {
            let end = first.0 + plain.len().div_ceil(BLOCK) as u64;
            self.file.tags.forget(self.storage, first.0..end);
        }
        self.file.tags.count_change(self.storage, &mut self.scratch.blocks, first);
        result
    }

    fn seal_pages(&mut self, first: BlockNo, plain: &[u8]) -> Result<(), SealError> {
        let pages = plain.len().div_ceil(BLOCK);
        let start = first.0 * BLOCK_LEN;
        let zeros = all_zero(plain);
        // Whether the write appends matters only for zeros and for the first page of a group. The
        // storage is asked for the length only if the write starts behind the cached length: a
        // write into the middle of the file costs no call.
        let appends = (zeros || first.0.is_multiple_of(GROUP_PAGES))
            && start >= self.file.reached
            && self.plain_len()? <= start;
        // An appended first page of a group is written together with the whole tag block, so that
        // no later tag of the group needs new room on a full disk.
        let new_group = appends && first.0.is_multiple_of(GROUP_PAGES);
        if appends && zeros {
            return self.append_zeros(first, plain, new_group);
        }
        let out = self.scratch.out.room(TAG_BLOCK + BATCH * BLOCK)?;
        let (tags, sealed) = out.split_at_mut(TAG_BLOCK);
        let at = if new_group { 0 } else { (first.0 % GROUP_PAGES) as usize * ENTRY };
        if new_group {
            tags.fill(0);
        }
        let entries = &mut tags[at..at + pages * ENTRY];
        let suite = self.file.header.suite;
        let mut nonces = [0; BATCH * entry::MAX_NONCE];
        let nonces = &mut nonces[..pages * suite.nonce_len()];
        // Draw all nonces with one call: it may be a system call.
        self.random.fill(nonces)?;
        if usage::is_counted(suite, Layout::Paged) {
            self.file.drawn.note(self.file.header.sealing_number(), nonces.as_chunks().0);
        }
        for (index, (((page, sealed), entry), nonce)) in plain
            .chunks(BLOCK)
            .zip(sealed.chunks_mut(BLOCK))
            .zip(entries.chunks_mut(ENTRY))
            .zip(nonces.chunks_mut(suite.nonce_len()))
            .enumerate()
        {
            let block = BlockNo(first.0 + index as u64);
            let sealed = &mut sealed[..page.len()];
            let (cipher, key_number) = self.file.sealing();
            let tag = cipher.seal_block(block, nonce, page, sealed)?;
            entry::encode(nonce, &tag, key_number, entry);
        }
        let begun = Self::will_write(self.storage, self.file.pages, first, pages);
        let written = if new_group {
            let group = tag_block_off(first.0 / GROUP_PAGES);
            self.storage.write_at(&out[..TAG_BLOCK + plain.len()], group)
        } else if broken::is(Order::TagBeforePage) {
            let page_off = block_sealed_off(Layout::Paged, first);
            self.storage
                .write_tags(entries, tag_entry_off(first))
                .and_then(|()| self.storage.write_at(&sealed[..plain.len()], page_off))
        } else {
            self.storage
                .write_at(&sealed[..plain.len()], block_sealed_off(Layout::Paged, first))
                .and_then(|()| self.storage.write_tags(entries, tag_entry_off(first)))
        };
        if let Err(error) = written {
            begun.failed();
            self.file.tags.clear(&mut self.scratch.blocks);
            return Err(error.into());
        }
        let entries = &out[at..at + pages * ENTRY];
        begun.written(entries);
        if new_group {
            self.file.tags.forget(self.storage, first.0..first.0 + GROUP_PAGES);
        }
        self.file.tags.store(self.storage, &mut self.scratch.blocks, first, entries);
        Ok(())
    }

    /// Appends pages of zeros unsealed and without tags: PostgreSQL lengthens a relation this way
    /// and writes the pages when they have contents. Such pages read as zeros, and a power cut
    /// cannot separate them from their tags, as they have none.
    fn append_zeros(
        &mut self,
        first: BlockNo,
        zeros: &[u8],
        new_group: bool,
    ) -> Result<(), SealError> {
        let pages = zeros.len().div_ceil(BLOCK);
        let begun = Self::will_write(self.storage, self.file.pages, first, pages);
        let written = if new_group {
            let out = self.scratch.out.room(TAG_BLOCK + zeros.len())?;
            out.fill(0);
            self.storage.write_at(out, tag_block_off(first.0 / GROUP_PAGES))
        } else {
            self.storage.write_at(zeros, block_sealed_off(Layout::Paged, first))
        };
        if let Err(error) = written {
            let span = Span { block: first, in_block: 0, at: 0, len: zeros.len() };
            self.drop_unfinished(span, span.off());
            begun.failed();
            return Err(error.into());
        }
        let blank = &[0; BATCH * ENTRY][..pages * ENTRY];
        if !new_group && let Err(error) = self.ensure_no_tags_of(first, blank) {
            begun.failed();
            return Err(error);
        }
        begun.written(blank);
        if new_group {
            self.file.tags.forget(self.storage, first.0..first.0 + GROUP_PAGES);
        }
        self.file.tags.store(self.storage, &mut self.scratch.blocks, first, blank);
        self.file.zeros_appended += pages as u64;
        Ok(())
    }

    /// Writes a part of a page: reads the page, changes it, seals it anew.
    fn write_part(
        &mut self,
        block: BlockNo,
        in_block: usize,
        bytes: &[u8],
    ) -> Result<(), SealError> {
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let page = page.room(BLOCK)?;
                let had = op.read_page(block, page)?;
                let entry = op.file.tags.entry(&op.scratch.blocks, block);
                let end = in_block + bytes.len();
                if had < in_block {
                    page[had..in_block].fill(0);
                }
                page[in_block..end].copy_from_slice(bytes);
                op.write_pages(block, &page[..had.max(end)])
                    .inspect_err(|_| op.put_back_page(block, had, &entry))
            },
        )
    }

    /// Reads and opens a page, or as much of it as the file has, and keeps its sealed bytes in the
    /// buffer `old`. Returns the bytes read; damage is an error.
    fn read_page(&mut self, block: BlockNo, page: &mut [u8]) -> Result<usize, SealError> {
        let before = self.before_read(block);
        let got = self.storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
        self.scratch.old.room(BLOCK)?[..got].copy_from_slice(&page[..got]);
        if got > 0 {
            self.prepare_tag(block)?;
            let mut reading = Reading::new(OnDamage::Fail);
            self.open_page(block, &mut page[..got], before, &mut reading)?;
        }
        Ok(got)
    }
}

impl SealedFile {
    /// Opens a page in place with its tag entry.
    fn try_open(&mut self, block: BlockNo, entry: &[u8; ENTRY], page: &mut [u8]) -> Page {
        if all_zero(entry) {
            return if all_zero(page) { Page::Zero } else { Page::Damaged };
        }
        // CTR cannot authenticate, so a written page that is all zeros counts as wiped. Fewer than
        // 16 bytes may be zeros by chance.
        let wiped = !self.header.suite.authenticates() && page.len() >= 16 && all_zero(page);
        let parts = Entry::of(self.header.suite, entry);
        let cipher = self.cipher_of(parts.age(self.header.key_number)).filter(|_| !wiped);
        match cipher.map(|cipher| cipher.open_block(block, parts.nonce, &parts.tag(), page)) {
            Some(Ok(())) => return Page::Data,
            // The entry may mean a newer key that has the same short number.
            Some(Err(_)) => self.lacked_key |= parts.has_short_number(),
            None => {}
        }
        Page::Damaged
    }
}
