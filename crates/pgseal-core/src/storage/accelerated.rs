//! A storage with an accelerator, for tests that compare it with the same storage without one.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use super::{Accelerator, GroupName, Storage};
use crate::units::{SealedLen, SealedOff};

/// A storage around another one that counts changes of tags, as the processes of a server do, so that
/// tags are remembered; and that reads two buffers in an order of its own.
#[derive(Debug, Default)]
pub struct Accelerated<S> {
    inner: S,
    /// Few counters, so that groups share them.
    changes: [AtomicU64; 4],
    used: AtomicU64,
}

impl<S> Accelerated<S> {
    /// Wraps a storage.
    pub fn new(inner: S) -> Accelerated<S> {
        Accelerated { inner, changes: Default::default(), used: AtomicU64::new(0) }
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
}
