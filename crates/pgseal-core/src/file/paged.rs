//! The paged layout: 8192-byte pages in groups of 256, each group behind its tag block
//! (`spec/sealed-file.md`, section 6).

use core::ops::Range;

use super::operation::{InLayout, Operation, Reading};
use super::spans::{Span, Spans, spans};
use super::{BATCH, BLOCK, Buffer, OnDamage, RETRIES, SealedFile, all_zero};
use crate::broken::{self, Order};
use crate::error::SealError;
use crate::geometry::{
    BLOCK_LEN, GROUP_PAGES, TAG_BLOCK_LEN, block_sealed_off, block_start, tag_block_off,
    tag_entry_off,
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
                let got = op.read_pages(span.block, page, reading)?;
                Ok(if got <= span.in_block { 0 } else { span.copy_from(&page[..got], target) })
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
        let is_last = self.scratch.until <= block_start(BlockNo(first.0 + 1)).0;
        match is_last && self.scratch.run.is_none() {
            true => self.read_one(first, pages, reading),
            false => self.read_several(first, pages, reading),
        }
    }

    /// Reads a page that is all that the operation wants, and opens it in place.
    fn read_one(
        &mut self,
        block: BlockNo,
        page: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        self.file.tags.expect(self.storage, &self.scratch.blocks, block);
        let before = self.before_read(block);
        let got = self.storage.read_at(page, block_sealed_off(Layout::Paged, block))?;
        if got > 0 {
            self.prepare_tag(block)?;
            self.open_page(block, None, &mut page[..got], before, reading)?;
        }
        Ok(got)
    }

    /// Reads pages of one group. Reads the sealed pages into the buffer `out` and opens them from
    /// there: then the input of the cipher comes from the processor's cache, and one read is enough
    /// for pages whose memory does not lie together.
    fn read_several(
        &mut self,
        first: BlockNo,
        pages: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError> {
        self.lend(
            |scratch| &mut scratch.out,
            |op, sealed| {
                let mut done = 0;
                while done < pages.len() {
                    let block = BlockNo(first.0 + (done / BLOCK) as u64);
                    let run = op.sealed_run(block, pages.len() - done, sealed)?;
                    let rest = &mut pages[done..];
                    let sealed = &mut sealed.room(run.len)?[run.range(block)];
                    let len = sealed.len().min(rest.len());
                    for (no, (sealed, page)) in
                        (block.0..).zip(sealed.chunks_mut(BLOCK).zip(rest[..len].chunks_mut(BLOCK)))
                    {
                        let block = BlockNo(no);
                        op.file.tags.ensure(op.storage, &op.scratch.blocks, block)?;
                        let before = op.scratch.seen.of((no - run.first.0) as usize);
                        op.open_page(block, Some(sealed), page, before, reading)?;
                    }
                    done += len;
                    if run.is_last && len == sealed.len() {
                        break;
                    }
                }
                Ok(done)
            },
        )
    }

    /// The sealed pages from `first` on, of which the caller wants `len` bytes now. Reads them, and
    /// with the same call those behind them that the operation is going to want, up to the end of
    /// the group and [`BATCH`] pages; and loads their tags.
    fn sealed_run(
        &mut self,
        first: BlockNo,
        len: usize,
        sealed: &mut Buffer,
    ) -> Result<Run, SealError> {
        if let Some(run) = self.scratch.run.filter(|run| run.has(first)) {
            return Ok(run);
        }
        let group_end = (first.0 / GROUP_PAGES + 1) * GROUP_PAGES;
        let until = self.scratch.until.div_ceil(BLOCK_LEN).min(group_end);
        let wanted = until.saturating_sub(first.0).min(BATCH as u64) as usize * BLOCK;
        let wanted = wanted.max(len.min(BATCH * BLOCK));
        self.before_reads(first, wanted.div_ceil(BLOCK));
        let room = sealed.room(wanted)?;
        let got = self.storage.read_at(room, block_sealed_off(Layout::Paged, first))?;
        if got > BLOCK {
            // One call reads the tags of all pages, unless they are cached.
            let (tags, blocks) = (&mut self.file.tags, &mut self.scratch.blocks);
            if !tags.has(self.storage, blocks, first.0 / GROUP_PAGES) {
                tags.load(self.storage, blocks, first)?;
            }
        } else if got > 0 {
            self.prepare_tag(first)?;
        }
        let run = Run { first, len: got, is_last: got < wanted };
        self.scratch.run = Some(run);
        Ok(run)
    }

    /// Loads the tag entry of a single page.
    fn prepare_tag(&mut self, block: BlockNo) -> Result<(), SealError> {
        self.file.tags.prepare(self.storage, &mut self.scratch.blocks, block)
    }

    /// Opens a page that was just read and whose tag entry is loaded: from `apart` into `page` of
    /// the same length, or in place; and compares its version; `before` is from before the read. If
    /// that fails, reads page and tag again, because a writer may have written one of them but not
    /// yet the other.
    fn open_page(
        &mut self,
        block: BlockNo,
        mut apart: Option<&mut [u8]>,
        page: &mut [u8],
        mut before: Seen,
        reading: &mut Reading,
    ) -> Result<(), SealError> {
        let mut is_older = false;
        for attempt in 1..=RETRIES {
            let entry = self.file.tags.entry(&self.scratch.blocks, block);
            let opened = self.file.try_open(block, &entry, apart.as_deref(), page);
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
            let sealed = apart.as_deref_mut().unwrap_or(page);
            let got = self.storage.read_at(sealed, block_sealed_off(Layout::Paged, block))?;
            sealed[got..].fill(0);
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
        self.lend(
            |scratch| &mut scratch.old,
            |op, old| {
                let old = old.room(BLOCK)?;
                let before = op.before_read(block);
                let got = op.storage.read_at(old, block_sealed_off(Layout::Paged, block))?;
                if got > 0 {
                    op.prepare_tag(block)?;
                    let mut reading = Reading::new(OnDamage::Fail);
                    let (old, page) = (&mut old[..got], &mut page[..got]);
                    op.open_page(block, Some(old), page, before, &mut reading)?;
                }
                Ok(got)
            },
        )
    }
}

/// Sealed pages that were read into the buffer `out` for one operation, and whose states before
/// that are in `seen`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: BlockNo,
    /// Bytes that were read.
    len: usize,
    /// Whether the file ends with them.
    is_last: bool,
}

impl Run {
    /// Whether it has this page, or says that the file ends before the page.
    fn has(&self, block: BlockNo) -> bool {
        let end = self.first.0 + self.len.div_ceil(BLOCK) as u64;
        (self.first.0..end).contains(&block.0) || (self.is_last && block.0 == end)
    }

    /// Where the pages from this one on lie in the buffer.
    fn range(&self, block: BlockNo) -> Range<usize> {
        ((block.0 - self.first.0) as usize * BLOCK).min(self.len)..self.len
    }
}

impl SealedFile {
    /// Opens a page with its tag entry: from `apart` into `page` of the same length, or in place.
    fn try_open(
        &mut self,
        block: BlockNo,
        entry: &[u8; ENTRY],
        apart: Option<&[u8]>,
        page: &mut [u8],
    ) -> Page {
        let sealed = apart.unwrap_or(page);
        if all_zero(entry) {
            if !all_zero(sealed) {
                return Page::Damaged;
            }
            if apart.is_some() {
                page.fill(0);
            }
            return Page::Zero;
        }
        // CTR cannot authenticate, so a written page that is all zeros counts as wiped. Fewer than
        // 16 bytes may be zeros by chance.
        let wiped = !self.header.suite.authenticates() && sealed.len() >= 16 && all_zero(sealed);
        let parts = Entry::of(self.header.suite, entry);
        let cipher = self.cipher_of(parts.age(self.header.key_number)).filter(|_| !wiped);
        let (nonce, tag) = (parts.nonce, &parts.tag());
        let opened = cipher.map(|cipher| match apart {
            Some(sealed) => cipher.open_block_between(block, nonce, (sealed, tag), page),
            None => cipher.open_block(block, nonce, tag, page),
        });
        match opened {
            Some(Ok(())) => return Page::Data,
            // The entry may mean a newer key that has the same short number.
            Some(Err(_)) => self.lacked_key |= parts.has_short_number(),
            None => {}
        }
        Page::Damaged
    }
}
