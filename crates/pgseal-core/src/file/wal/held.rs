//! The entry of the page that was written last, kept outside of the file while the page may still
//! change: PostgreSQL writes the last page of the WAL again for each commit. The entry is written
//! with the next page.

use super::rows::{Entry, Rows};
use super::{TAG_BLOCK, Wal};
use crate::error::SealError;
use crate::file::operation::Operation;
use crate::file::{BLOCK, all_zero};
use crate::geometry::{BLOCK_LEN, GROUP_PAGES, block_start};
use crate::storage::{Accelerator, Held, HeldEntry};
use crate::units::BlockNo;

impl<S: Accelerator + ?Sized> Operation<'_, S, Wal> {
    /// Begins a write of the pages `first` to `last` of one group. The entry of the last page is
    /// held if the write ends there (`is_end`) and the file does not; `after` is the plain length
    /// that the file will have.
    pub(super) fn begin_write(
        &mut self,
        first: BlockNo,
        last: BlockNo,
        new_group: bool,
        is_end: bool,
        after: u64,
    ) -> Result<Rows, SealError> {
        let kept = self.storage.held_entry(&self.file.header.file_id);
        let before = match kept {
            Held::NotKept => return self.begin_rows(first, last, new_group),
            Held::Unknown => self.missing_before(first)?,
            // A page that is written again gets a new entry.
            Held::Known(held) => held.filter(|held| !(first.0..=last.0).contains(&held.block.0)),
        };
        let is_beside =
            |held: &HeldEntry| held.block.0 + 1 == first.0 && !first.0.is_multiple_of(GROUP_PAGES);
        if let Some(held) = before.filter(|held| !is_beside(held)) {
            self.write_entry(&held)?;
        }
        let before = before.filter(is_beside);
        let hold = is_end && block_start(last).0 + BLOCK_LEN < after;
        let mut rows = match before {
            None if hold && first == last => self.begin_without_rows(first)?,
            None => self.begin_rows(first, last, new_group)?,
            Some(held) => {
                let mut rows = self.begin_rows(held.block, last, new_group)?;
                let target = self.scratch.rows.room(TAG_BLOCK)?;
                rows.put_all(target, [(held.block, &Entry(held.entry))].into_iter());
                rows
            }
        };
        rows.hold = hold.then_some(last);
        rows.kept = kept;
        Ok(rows)
    }

    /// Ends a write: keeps the entry that is held. After a failure nothing is known.
    pub(super) fn end_write(&mut self, rows: &Rows, is_done: bool) {
        let held = if is_done { Held::Known(rows.held) } else { Held::Unknown };
        // Of a file of which nothing is kept, nothing need be forgotten: what is kept is that of
        // another file.
        let is_nothing = matches!((rows.kept, rows.held), (Held::Unknown, None));
        if rows.kept != Held::NotKept && !is_nothing {
            self.storage.hold_entry(&self.file.header.file_id, held);
        }
    }

    /// Writes an entry that is held, before the file becomes longer or shorter.
    pub(super) fn settle(&mut self) -> Result<(), SealError> {
        let file_id = self.file.header.file_id;
        if let Held::Known(Some(held)) = self.storage.held_entry(&file_id) {
            self.write_entry(&held)?;
            self.storage.hold_entry(&file_id, Held::Known(None));
        }
        Ok(())
    }

    fn write_entry(&mut self, held: &HeldEntry) -> Result<(), SealError> {
        let mut rows = self.begin_rows(held.block, held.block, false)?;
        let target = self.scratch.rows.room(TAG_BLOCK)?;
        rows.put_all(target, [(held.block, &Entry(held.entry))].into_iter());
        self.write_rows(&rows)
    }

    /// The entry of the page before `first`, if that page has none that fits: the server that wrote
    /// the page ended before it wrote the next one. Recovery has read the page since.
    fn missing_before(&mut self, first: BlockNo) -> Result<Option<HeldEntry>, SealError> {
        let Some(block) = first.0.checked_sub(1).map(BlockNo) else { return Ok(None) };
        self.lend(
            |scratch| &mut scratch.page,
            |op, page| {
                let page = page.room(BLOCK)?;
                let plain = op.read_stored(block_start(block).0, page)?;
                if plain < BLOCK || all_zero(page) {
                    return Ok(None);
                }
                let entry = op.read_entry(block)?;
                if op.fits(block, &entry, page)? {
                    return Ok(None);
                }
                let mut nonce = [0; 12];
                op.random.fill(&mut nonce)?;
                op.file.drawn.note(op.file.header.key_number, &[nonce]);
                let tag = op.file.cipher.page_mac(block, &mut nonce, page)?;
                let entry = Entry::new(nonce, tag);
                Ok(Some(HeldEntry { block, entry: entry.0 }))
            },
        )
    }
}
