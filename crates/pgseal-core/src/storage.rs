//! Where sealed bytes lie: six operations, so that everything above can run on a file descriptor
//! as well as on memory that forgets, tears and fails.

use std::io;

use crate::units::{SealedLen, SealedOff};

#[cfg(any(test, feature = "testing"))]
pub mod crash;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod mem;

/// The name of a group of pages among all groups of all files: random for each file, consecutive for
/// the groups of one. Two groups may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupName(pub u64);

/// A random-access file of sealed bytes.
///
/// Methods take `&self`: several sealed files may share one storage, as several processes share
/// one file.
// `len` asks the kernel and can fail: an `is_empty` beside it would only hide that.
#[allow(clippy::len_without_is_empty)]
pub trait Storage {
    /// Reads until `buf` is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], sealed_off: SealedOff) -> io::Result<usize>;

    /// Like [`Storage::read_at`] into two buffers one behind the other, in one call if possible.
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

    /// Writes all of `buf`, lengthening the file if need be; after an error any part of it may
    /// have been written.
    fn write_at(&self, buf: &[u8], sealed_off: SealedOff) -> io::Result<()>;

    /// Writes tag entries, 32 bytes each and all of one tag block, of pages that were just
    /// written. As [`Storage::write_at`], but a storage may have a shorter way to a tag block that
    /// it is asked for again and again.
    fn write_tags(&self, entries: &[u8], sealed_off: SealedOff) -> io::Result<()> {
        self.write_at(entries, sealed_off)
    }

    /// How often the tags of this group of pages were changed by any of the processes that count
    /// together, this one included; also counts other groups whose names fall on the same counter.
    /// `None`: nobody counts, and what is remembered of tags is only good for the moment.
    fn tag_changes(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// Counts one more change, after it was written. Returns what [`Storage::tag_changes`] was.
    fn count_tag_change(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// The length of the file.
    fn len(&self) -> io::Result<SealedLen>;

    /// Cuts the file, or lengthens it with a hole of zeros.
    fn set_len(&self, sealed_len: SealedLen) -> io::Result<()>;

    /// Makes everything written so far survive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Called before a block that did not authenticate is read again, because a writer may have
    /// been between the block and its tag: waits a little longer each time.
    fn pause(&self, _attempt: u32) {}
}
