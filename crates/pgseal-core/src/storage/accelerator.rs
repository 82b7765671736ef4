//! Faster methods that a storage may have, and counters that it may share with other processes.

use std::io;

use super::Storage;
use crate::geometry::WAL_ENTRY_LEN;
use crate::shared_tags::SharedTags;
use crate::units::{BlockNo, SealedOff};
use crate::versions::Table;

/// The name of a group of pages among all groups of all files: random for the first group of a
/// file, consecutive for the groups of one file. Two groups may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupName(pub u64);

/// The entry of a WAL page that is not in the file yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldEntry {
    /// The page.
    pub block: BlockNo,
    /// Nonce and tag, as in the file.
    pub entry: [u8; WAL_ENTRY_LEN as usize],
}

/// What [`Accelerator::held_entry`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The storage keeps no entries: each write brings its own into the file.
    NotKept,
    /// The storage keeps entries, and none of this file: nothing was written since it began to.
    Unknown,
    /// The page that was written last, if its entry is not in the file.
    Known(Option<HeldEntry>),
}

/// Methods with which a storage can make reading and writing of a sealed file faster.
///
/// The default methods are correct for every storage: with `impl Accelerator for MyStorage {}` only
/// the tags that were read last are cached. A storage overrides the methods that it can do faster,
/// or for which it shares state with other processes that have the file open. A storage can also
/// turn caching of tags off ([`remembers_tags`](Accelerator::remembers_tags)).
pub trait Accelerator: Storage {
    /// Like [`Storage::read_at`] into `first` and then on into `second`, in one call if possible.
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

    /// Writes tag entries of pages that were just written: 32 bytes each, all in one tag block.
    /// Like [`Storage::write_at`], but a storage may have a faster way to write the same tag block
    /// again and again.
    #[inline]
    fn write_tags(&self, entries: &[u8], sealed_off: SealedOff) -> io::Result<()> {
        self.write_at(entries, sealed_off)
    }

    /// Whether tags that were read may be cached from one operation to the next. If not, each
    /// operation reads the tags that it needs from the storage.
    #[inline]
    fn remembers_tags(&self) -> bool {
        true
    }

    /// How often the tags of this group of pages were changed by any of the processes that share
    /// the counters, this one included. Groups whose names fall on the same counter are counted
    /// together. `None`: changes are not counted, and cached tags may be out of date at any time.
    #[inline]
    fn tag_changes(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// Counts one change, after it was written. Returns what [`Accelerator::tag_changes`] was
    /// before.
    #[inline]
    fn count_tag_change(&self, _group: GroupName) -> Option<u64> {
        None
    }

    /// Where all processes that write the file keep tags that were read for single pages. `None`:
    /// nowhere, and each of them is read anew. Changes must be counted then, too
    /// ([`Accelerator::tag_changes`]).
    #[inline]
    fn shared_tags(&self) -> Option<&SharedTags> {
        None
    }

    /// What is known of the entry of the page that was written last in a WAL file with this id. If
    /// a storage keeps such entries, for all processes that write the file, a page that is written
    /// again and again needs no new entry in the file each time (`spec/sealed-file.md`, section
    /// 8.3).
    #[inline]
    fn held_entry(&self, _file_id: &[u8; 16]) -> Held {
        Held::NotKept
    }

    /// Keeps what is known now, in the place of what was kept before.
    #[inline]
    fn hold_entry(&self, _file_id: &[u8; 16], _held: Held) {}

    /// Where the newest version of each page is kept, for all processes that write the file.
    /// `None`: nowhere, and an older page with its older tag is not noticed.
    #[inline]
    fn versions(&self) -> Option<&Table> {
        None
    }

    /// Called before a retry of a block that did not authenticate, because a writer may have
    /// written the block but not yet its tag: waits for that writer, a little longer each time. The
    /// default does not wait. The paged layout makes its first retry without this call.
    #[inline]
    fn pause(&self, _attempt: u32) {}
}
