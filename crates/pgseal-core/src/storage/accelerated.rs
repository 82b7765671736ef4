//! A storage that accelerates and one that does not, for tests that compare both with a storage
//! that has the default methods of [`Accelerator`].

use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Accelerator, GroupName, Storage};
use crate::shared_tags::{SharedTags, TagSet};
use crate::units::{SealedLen, SealedOff};
use crate::versions::{Slot, Table};

/// A storage around another one that counts changes of tags and shares tags, as the processes of a
/// server do, so that tags are kept. Its `read_two_at` fills the second buffer first.
#[derive(Debug)]
pub struct Accelerated<S> {
    inner: S,
    /// Few counters, so that several groups share one.
    changes: [AtomicU64; 4],
    used: AtomicU64,
    versions: Option<Table>,
    tags: LentTags,
}

impl<S> Accelerated<S> {
    /// Wraps a storage.
    pub fn new(inner: S) -> Accelerated<S> {
        Accelerated {
            inner,
            changes: Default::default(),
            used: AtomicU64::new(0),
            versions: None,
            tags: LentTags::take(),
        }
    }

    /// Wraps a storage, and keeps versions of pages in a table of so many slots, a power of two,
    /// which is never freed.
    pub fn with_versions(inner: S, slots: usize) -> Accelerated<S> {
        let slots = Vec::leak((0..slots).map(|_| Slot::default()).collect());
        let epoch = Box::leak(Box::new(AtomicU32::new(0)));
        let versions = Table::new(slots, epoch, [0x5EA1, 0xC0DE, 0xF11E, 0xB10C].map(|key| !key));
        Accelerated { versions, ..Accelerated::new(inner) }
    }

    /// How often the accelerator was used.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn counter(&self, group: GroupName) -> &AtomicU64 {
        self.used.fetch_add(1, Ordering::Relaxed);
        &self.changes[(group.0 % 4) as usize]
    }
}

impl<S: Default> Default for Accelerated<S> {
    fn default() -> Accelerated<S> {
        Accelerated::new(S::default())
    }
}

/// A table with room for the tags of 2048 pages. Tables are never freed, so one that nobody uses
/// any more is lent to the next storage.
#[derive(Debug)]
struct LentTags(Option<SharedTags>);

static UNUSED: Mutex<Vec<SharedTags>> = Mutex::new(Vec::new());

fn unused() -> MutexGuard<'static, Vec<SharedTags>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LentTags {
    fn take() -> LentTags {
        let made = || {
            let sets = (0..32).map(|_| TagSet::new()).collect();
            SharedTags::new(Vec::leak(sets), Box::leak(Box::new(AtomicU32::new(0))))
        };
        let known = unused().pop();
        LentTags(known.or_else(made))
    }
}

impl Drop for LentTags {
    fn drop(&mut self) {
        if let Some(table) = self.0 {
            table.begin_anew();
            unused().push(table);
        }
    }
}

impl<S> Deref for Accelerated<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.inner
    }
}

impl<S: Storage> Storage for Accelerated<S> {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        self.inner.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.inner.write_at(buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        self.inner.len()
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

impl<S: Storage> Accelerator for Accelerated<S> {
    /// The second buffer is filled before the first.
    fn read_two_at(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        off: SealedOff,
    ) -> io::Result<usize> {
        self.used.fetch_add(1, Ordering::Relaxed);
        let behind = self.inner.read_at(second, SealedOff(off.0 + first.len() as u64))?;
        Ok(self.inner.read_at(first, off)? + behind)
    }

    fn write_tags(&self, entries: &[u8], off: SealedOff) -> io::Result<()> {
        self.used.fetch_add(1, Ordering::Relaxed);
        self.inner.write_at(entries, off)
    }

    fn tag_changes(&self, group: GroupName) -> Option<u64> {
        Some(self.counter(group).load(Ordering::Acquire))
    }

    fn count_tag_change(&self, group: GroupName) -> Option<u64> {
        Some(self.counter(group).fetch_add(1, Ordering::AcqRel))
    }

    fn shared_tags(&self) -> Option<&SharedTags> {
        self.tags.0.as_ref()
    }

    fn versions(&self) -> Option<&Table> {
        self.versions.as_ref()
    }
}

/// A storage around another one that lets no tag be cached.
#[derive(Debug, Default)]
pub struct Unaccelerated<S>(pub S);

impl<S> Deref for Unaccelerated<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: Storage> Storage for Unaccelerated<S> {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        self.0.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.0.write_at(buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        self.0.len()
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl<S: Storage> Accelerator for Unaccelerated<S> {
    fn remembers_tags(&self) -> bool {
        false
    }
}
