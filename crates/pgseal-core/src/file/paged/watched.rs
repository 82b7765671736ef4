//! What an operation tells and asks of the versions of pages that the processes of a server share
//! ([`crate::versions`]).

use core::ops::Range;

use super::{BATCH, ENTRY, Paged};
use crate::file::operation::Operation;
use crate::storage::Accelerator;
use crate::units::BlockNo;
use crate::versions::{Cut, Found, Pages, Seen, Table};

/// Pages that are being written.
#[must_use]
pub(super) struct Begun<'a> {
    table: Option<(&'a Table, Pages)>,
    first: BlockNo,
    pages: usize,
    seen: [Seen; BATCH],
}

impl Begun<'_> {
    /// The pages were written, with these tag entries.
    pub(super) fn written(self, entries: &[u8]) {
        let Some((table, pages)) = self.table else { return };
        let entries = entries.as_chunks::<ENTRY>().0;
        for ((entry, seen), block) in entries.iter().zip(self.seen).zip(self.first.0..) {
            table.written(pages.page(BlockNo(block)), seen, Some(table.version(entry)));
        }
    }

    /// What the pages are now is not known.
    pub(super) fn failed(self) {
        let Some((table, pages)) = self.table else { return };
        for (seen, block) in self.seen.into_iter().zip(self.first.0..).take(self.pages) {
            table.written(pages.page(BlockNo(block)), seen, None);
        }
    }
}

impl<'a, S: Accelerator + ?Sized> Operation<'a, S, Paged> {
    /// The table that has the versions of this file, and the names of its pages there.
    #[inline]
    fn table(storage: &'a S, pages: Option<Pages>) -> Option<(&'a Table, Pages)> {
        Some((storage.versions()?, pages?))
    }

    /// To be called before a page is read, whose version is compared afterwards.
    #[inline]
    pub(super) fn before_read(&self, block: BlockNo) -> Seen {
        let table = Self::table(self.storage, self.file.pages);
        table.map(|(table, pages)| table.before_read(pages.page(block))).unwrap_or_default()
    }

    /// As [`Self::before_read`], for pages of one group, into [`SeenPages`].
    #[inline]
    pub(super) fn before_reads(&mut self, first: BlockNo, count: usize) {
        let Some((table, pages)) = Self::table(self.storage, self.file.pages) else { return };
        self.scratch.seen.before_reads(table, pages, first, count);
    }

    /// Compares the version of a page that has authenticated with this entry.
    #[inline]
    pub(super) fn compare(&self, block: BlockNo, before: Seen, entry: &[u8; ENTRY]) -> Found {
        let Some((table, pages)) = Self::table(self.storage, self.file.pages) else {
            return Found::Unknown;
        };
        table.compare(pages.page(block), before, table.version(entry))
    }

    /// To be called before at most [`BATCH`] pages or their tags are written.
    pub(super) fn will_write(
        storage: &'a S,
        names: Option<Pages>,
        first: BlockNo,
        pages: usize,
    ) -> Begun<'a> {
        let table = Self::table(storage, names);
        let mut seen = [Seen::default(); BATCH];
        if let Some((table, names)) = table {
            for (seen, block) in seen.iter_mut().zip(first.0..).take(pages) {
                *seen = table.will_write(names.page(BlockNo(block)));
            }
        }
        Begun { table, first, pages, seen }
    }

    /// To be called before these pages are cut off.
    pub(super) fn will_cut(&self, blocks: Range<u64>) -> Option<Cut> {
        let (table, pages) = Self::table(self.storage, self.file.pages)?;
        Some(table.will_cut(pages, blocks))
    }

    /// To be called when pages were cut off.
    pub(super) fn was_cut(&self, cut: Option<Cut>) {
        if let Some(cut) = cut
            && let Some((table, _)) = Self::table(self.storage, self.file.pages)
        {
            table.was_cut(cut);
        }
    }
}
