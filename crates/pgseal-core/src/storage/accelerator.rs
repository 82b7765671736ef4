//! Short ways of a storage, and what it knows of other processes.

use std::io;

use super::Storage;
use crate::units::SealedOff;

/// The name of a group of pages among all groups of all files: random for each file, consecutive for
/// the groups of one. Two groups may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupName(pub u64);

/// What a storage can do to make reading and writing of a sealed file faster.
///
/// The file has the same bytes, and reads the same, with each method as it is here: `impl Accelerator
/// for MyStorage {}` accelerates nothing. A storage replaces the methods for which it knows a shorter
/// way, or something of other processes that have the file open.
pub trait Accelerator: Storage {
    /// Like [`Storage::read_at`] into two buffers one behind the other, in one call if possible.
    #[inline]
    fn read_two_at(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        sealed_off: SealedOff,
    ) -> io::Result<usize> {
        let got = self.read_at(first, sealed_off)?;
        if got < first.len() {
            return Ok(got);
        }
        Ok(got + self.read_at(second, SealedOff(sealed_off.0 + got as u64))?)
    }

    /// Writes tag entries, 32 bytes each and all of one tag block, of pages that were just
    /// written. As [`Storage::write_at`], but a storage may have a shorter way to a tag block that
    /// is written to again and again.
    #[inline]
    fn write_tags(&self, entries: &[u8], sealed_off: SealedOff) -> io::Result<()> {
        self.write_at(entries, sealed_off)
    }

    /// How often the tags of this group of pages were changed by any of the processes that count
    /// together, this one included; also counts other groups whose names fall on the same counter.
    /// `None`: changes are not counted, and what is remembered of tags may be out of date at once.
    #[inline]
    fn tag_changes(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// Counts one more change, after it was written. Returns what [`Accelerator::tag_changes`] was.
    #[inline]
    fn count_tag_change(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// Called before each retry of a block that did not authenticate, because a writer may have been
    /// between the block and its tag: waits for that writer, a little longer each time. Without the
    /// wait, the retries follow each other at once.
    #[inline]
    fn pause(&self, _attempt: u32) {}
}
