//! The rows of a tag block of WAL: 16 entries and a flush record in each sector.

use pgseal_crypto::{NonceBytes, TagBytes};

use super::{TAG_BLOCK, Wal};
use crate::cipher::Cipher;
use crate::error::SealError;
use crate::file::operation::Operation;
use crate::geometry::{
    FLUSH_RECORD_AT, GROUP_PAGES, ROW_PAGES, SECTOR_LEN, WAL_ENTRY_LEN, tag_block_off,
    wal_entry_off, wal_row_off,
};
use crate::storage::{Accelerator, Held, HeldEntry, Storage};
use crate::units::BlockNo;

const ENTRY: usize = WAL_ENTRY_LEN as usize;
const ROW: usize = SECTOR_LEN as usize;
const RECORD_AT: usize = FLUSH_RECORD_AT as usize;
const PAGES: usize = GROUP_PAGES as usize;
const ROWS: usize = TAG_BLOCK / ROW;

/// A note about the WAL of a cluster, authenticated with the key of the file: the WAL of a timeline
/// is on the disk up to a position. What a position counts is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRecord {
    /// The timeline.
    pub timeline: u32,
    /// The position.
    pub position: u64,
}

impl FlushRecord {
    /// The fields that are authenticated: timeline, zeros, position.
    fn fields(&self) -> [u8; 16] {
        let mut fields = [0; 16];
        fields[..4].copy_from_slice(&self.timeline.to_le_bytes());
        fields[8..].copy_from_slice(&self.position.to_le_bytes());
        fields
    }

    /// The fields of a row, its nonce and its tag.
    fn encode(
        &self,
        cipher: &mut Cipher,
        mut nonce: NonceBytes,
        row: &mut [u8],
    ) -> Result<(), SealError> {
        let fields = self.fields();
        let tag = cipher.record_mac(&mut nonce, &fields)?;
        let record = &mut row[RECORD_AT..];
        record.fill(0);
        record[..16].copy_from_slice(&fields);
        record[16..28].copy_from_slice(&nonce);
        record[28..44].copy_from_slice(&tag);
        Ok(())
    }

    /// The record of a row, if it has one that authenticates.
    fn decode(cipher: &mut Cipher, row: &[u8]) -> Result<Option<FlushRecord>, SealError> {
        let Some(record) = row.get(RECORD_AT..) else { return Ok(None) };
        let (Some((fields, rest)), true) =
            (record.split_first_chunk::<16>(), record.len() == ROW - RECORD_AT)
        else {
            return Ok(None);
        };
        let (mut timeline, mut position) = ([0; 4], [0; 8]);
        timeline.copy_from_slice(&fields[..4]);
        position.copy_from_slice(&fields[8..]);
        let found = FlushRecord {
            timeline: u32::from_le_bytes(timeline),
            position: u64::from_le_bytes(position),
        };
        let Some((nonce, rest)) = rest.split_first_chunk::<12>() else { return Ok(None) };
        let Some((tag, reserved)) = rest.split_first_chunk::<16>() else { return Ok(None) };
        // Reserved bytes that are not zeros belong to another version of the format.
        let is_known = *fields == found.fields() && reserved.iter().all(|byte| *byte == 0);
        let is_none = *tag == [0; 16] && *nonce == [0; 12];
        let fits = is_known && !is_none && cipher.record_fits(*nonce, tag, fields)?;
        Ok(fits.then_some(found))
    }
}

/// The entry of a page: nonce and tag, or zeros.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) [u8; ENTRY]);

impl Entry {
    pub(super) const NONE: Entry = Entry([0; ENTRY]);

    pub(super) fn new(nonce: NonceBytes, tag: TagBytes) -> Entry {
        let mut entry = Entry::NONE;
        entry.0[..12].copy_from_slice(&nonce);
        entry.0[12..].copy_from_slice(&tag);
        entry
    }

    /// Nonce and tag, unless the page has no entry.
    pub(super) fn parts(&self) -> Option<(NonceBytes, TagBytes)> {
        if self.0 == [0; ENTRY] {
            return None;
        }
        let (mut nonce, mut tag) = ([0; 12], [0; 16]);
        nonce.copy_from_slice(&self.0[..12]);
        tag.copy_from_slice(&self.0[12..]);
        Some((nonce, tag))
    }
}

/// Where the entry of a page is in its tag block.
fn entry_at(block: BlockNo) -> usize {
    let index = (block.0 % GROUP_PAGES) as usize;
    index / ROW_PAGES as usize * ROW + index % ROW_PAGES as usize * ENTRY
}

/// Which rows the scratch buffer `rows` holds as they are in the file, so that writes of one page
/// behind the other, and reads, need not read the same row again and again. They hold until a
/// process changes a row of the group, so only where changes are counted
/// ([`Accelerator::tag_changes`]).
#[derive(Clone, Copy, Debug)]
pub(in crate::file) struct HeldRows {
    /// The file among those that this process has opened.
    serial: u64,
    group: u64,
    first_row: usize,
    last_row: usize,
    /// The change counter of the group before the rows were read or after they were written.
    changes: u64,
}

/// The rows of a group with the entries of these pages.
fn row_range(first: BlockNo, last: BlockNo) -> (usize, usize) {
    let row = |block: BlockNo| (block.0 % GROUP_PAGES / ROW_PAGES) as usize;
    (row(first), row(last))
}

/// The rows that a change of pages of one group writes. Their bytes are in the scratch buffer
/// `rows`, at their place in the tag block.
pub(super) struct Rows {
    first: BlockNo,
    last: BlockNo,
    /// One for each page from `first` on.
    nonces: [NonceBytes; PAGES + ROWS],
    /// Whether the buffer has an entry that was not written yet.
    pub(super) has_new: bool,
    /// The page whose entry is kept outside of the file for now.
    pub(super) hold: Option<BlockNo>,
    /// That entry, once it is made.
    pub(super) held: Option<HeldEntry>,
    /// What the storage kept before.
    pub(super) kept: Held,
}

impl Rows {
    fn new(first: BlockNo, last: BlockNo) -> Rows {
        let nonces = [[0; 12]; PAGES + ROWS];
        Rows { first, last, nonces, has_new: false, hold: None, held: None, kept: Held::NotKept }
    }

    /// The bytes of the rows in the tag block.
    fn range(&self) -> core::ops::Range<usize> {
        let (first, last) = row_range(self.first, self.last);
        first * ROW..(last + 1) * ROW
    }

    /// The nonce for the new entry of a page.
    pub(super) fn nonce_of(&self, block: BlockNo) -> NonceBytes {
        self.nonces[(block.0 - self.first.0) as usize]
    }

    /// Puts entries of pages that were written into the tag block, but for the one to be held.
    pub(super) fn put_all<'a>(
        &mut self,
        tag_block: &mut [u8],
        entries: impl Iterator<Item = (BlockNo, &'a Entry)>,
    ) {
        for (block, entry) in entries {
            if self.hold == Some(block) {
                self.held = Some(HeldEntry { block, entry: entry.0 });
                continue;
            }
            let at = entry_at(block);
            tag_block[at..at + ENTRY].copy_from_slice(&entry.0);
            self.has_new = true;
        }
    }
}

impl<S: Accelerator + ?Sized> Operation<'_, S, Wal> {
    /// The change counter of the group of a page, if rows may be kept from one operation to the
    /// next.
    fn changes_of(&self, block: BlockNo) -> Option<u64> {
        let name = self.file.tags.name_of(block.0 / GROUP_PAGES);
        self.storage.remembers_tags().then(|| self.storage.tag_changes(name)).flatten()
    }

    /// Notes that the buffer `rows` holds these rows.
    fn hold_rows(&mut self, first: BlockNo, last: BlockNo, changes: Option<u64>) {
        let (first_row, last_row) = row_range(first, last);
        self.scratch.rows_held = changes.map(|changes| HeldRows {
            serial: self.file.tags.serial,
            group: first.0 / GROUP_PAGES,
            first_row,
            last_row,
            changes,
        });
    }

    /// Reads the rows with the entries of pages of one group into the buffer `rows`, unless they
    /// are there.
    pub(super) fn load_rows(&mut self, first: BlockNo, last: BlockNo) -> Result<(), SealError> {
        // Read the counter before the rows: a change during the read then makes them out of date.
        let changes = self.changes_of(first);
        let (first_row, last_row) = row_range(first, last);
        let held = self.scratch.rows_held.take();
        if let (Some(held), Some(changes)) = (held, changes)
            && held.serial == self.file.tags.serial
            && held.group == first.0 / GROUP_PAGES
            && held.first_row <= first_row
            && held.last_row >= last_row
            && held.changes == changes
        {
            self.scratch.rows_held = Some(held);
            return Ok(());
        }
        let (from, to) = (wal_row_off(first), wal_row_off(last).0 + SECTOR_LEN);
        let at = (from.0 - tag_block_off(first.0 / GROUP_PAGES).0) as usize;
        let rows = &mut self.scratch.rows.room(TAG_BLOCK)?[at..at + (to - from.0) as usize];
        let got = self.storage.read_at(rows, from)?;
        rows[got..].fill(0);
        self.hold_rows(first, last, changes);
        Ok(())
    }

    /// The entry of a page whose row is loaded.
    pub(super) fn loaded_entry(&self, block: BlockNo) -> Entry {
        let mut entry = Entry::NONE;
        let at = entry_at(block);
        if let Some(bytes) = self.scratch.rows.bytes(TAG_BLOCK).get(at..at + ENTRY) {
            entry.0.copy_from_slice(bytes);
        }
        entry
    }

    /// Reads the entry of a page on its own.
    pub(super) fn read_entry(&self, block: BlockNo) -> Result<Entry, SealError> {
        let mut entry = Entry::NONE;
        let got = self.storage.read_at(&mut entry.0, wal_entry_off(block))?;
        entry.0[got..].fill(0);
        Ok(entry)
    }

    /// Begins a change of the pages `first` to `last` of one group: loads their rows, or makes new
    /// ones, draws the nonces with one call, and puts the flush record into each row. PostgreSQL
    /// lets one process write WAL at a time, so nobody else changes these rows meanwhile.
    pub(super) fn begin_rows(
        &mut self,
        first: BlockNo,
        last: BlockNo,
        new_group: bool,
    ) -> Result<Rows, SealError> {
        if new_group {
            self.scratch.rows.room(TAG_BLOCK)?.fill(0);
        } else {
            self.load_rows(first, last)?;
        }
        // From here on the buffer differs from the file, until the rows are written.
        self.scratch.rows_held = None;
        let mut rows = Rows::new(first, last);
        let range = rows.range();
        let pages = (last.0 - first.0 + 1) as usize;
        let records = if self.file.flush_record.is_some() { range.len() / ROW } else { 0 };
        self.random.fill(rows.nonces[..pages + records].as_flattened_mut())?;
        self.file.drawn.note(self.file.header.key_number, &rows.nonces[..pages + records]);
        if let Some(record) = self.file.flush_record {
            let bytes = &mut self.scratch.rows.room(TAG_BLOCK)?[range];
            for (row, nonce) in bytes.chunks_mut(ROW).zip(&rows.nonces[pages..]) {
                record.encode(&mut self.file.cipher, *nonce, row)?;
            }
        }
        Ok(rows)
    }

    /// As [`Self::begin_rows`] for a write to one page whose entry is held: no row is written.
    pub(super) fn begin_without_rows(&mut self, block: BlockNo) -> Result<Rows, SealError> {
        let mut rows = Rows::new(block, block);
        self.random.fill(&mut rows.nonces[0])?;
        self.file.drawn.note(self.file.header.key_number, &rows.nonces[..1]);
        Ok(rows)
    }

    /// Writes the rows of a change.
    pub(super) fn write_rows(&mut self, rows: &Rows) -> Result<(), SealError> {
        let changes = self.changes_of(rows.first);
        let bytes = &self.scratch.rows.bytes(TAG_BLOCK)[rows.range()];
        let written = self.storage.write_tags(bytes, wal_row_off(rows.first));
        let counted = self.count_change(rows.first);
        written?;
        // Another process may have changed a row meanwhile, against the rules.
        let changes = changes.filter(|_| changes == counted).map(|changes| changes + 1);
        self.hold_rows(rows.first, rows.last, changes);
        Ok(())
    }

    /// Counts a change of the rows of the group of a page, for readers in other processes. Returns
    /// what the counter was before.
    pub(super) fn count_change(&mut self, block: BlockNo) -> Option<u64> {
        self.scratch.rows_held = None;
        self.storage.count_tag_change(self.file.tags.name_of(block.0 / GROUP_PAGES))
    }

    /// Clears the entries from the page `first` to the end of its group, whose pages were cut off.
    /// If `first` starts a group, its tag block was cut off as well.
    pub(super) fn clear_entries_from(&mut self, first: BlockNo) -> Result<(), SealError> {
        let index = first.0 % GROUP_PAGES;
        if index == 0 {
            return Ok(());
        }
        let last = BlockNo(first.0 - index + GROUP_PAGES - 1);
        self.load_rows(first, last)?;
        let tag_block = self.scratch.rows.room(TAG_BLOCK)?;
        let mut changed = false;
        for at in (first.0..=last.0).map(|block| entry_at(BlockNo(block))) {
            changed |= tag_block[at..at + ENTRY] != Entry::NONE.0;
            tag_block[at..at + ENTRY].copy_from_slice(&Entry::NONE.0);
        }
        if changed {
            let at = (index / ROW_PAGES) as usize * ROW;
            self.scratch.rows_held = None;
            self.storage.write_tags(&tag_block[at..], wal_row_off(first))?;
        }
        Ok(())
    }
}

/// See [`SealedFile::newest_flush_record`](crate::SealedFile::newest_flush_record).
pub(in crate::file) fn newest_flush_record<S: Storage + ?Sized>(
    cipher: &mut Cipher,
    storage: &S,
    timeline: Option<u32>,
) -> Result<Option<FlushRecord>, SealError> {
    let end = storage.len()?.0;
    let mut newest: Option<FlushRecord> = None;
    let mut tag_block = [0; TAG_BLOCK];
    for group in 0.. {
        let off = tag_block_off(group);
        if off.0 >= end {
            break;
        }
        let got = storage.read_at(&mut tag_block, off)?;
        for row in tag_block[..got].chunks(ROW) {
            let Some(found) = FlushRecord::decode(cipher, row)? else { continue };
            let is_wanted = timeline.is_none_or(|wanted| wanted == found.timeline);
            if is_wanted && newest.is_none_or(|newest| newest.position < found.position) {
                newest = Some(found);
            }
        }
    }
    Ok(newest)
}
