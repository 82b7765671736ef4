//! Helpers for the tests of the sealed file.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic, clippy::len_without_is_empty)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use pgseal_core::random::LibraryRandom;
use pgseal_core::shared_tags::SharedTags;
use pgseal_core::storage::{Accelerator, GroupName, Storage};
use pgseal_core::{
    Form, Generation, KeySet, Layout, OnDamage, Opened, PlainLen, PlainOff, ReadOutcome, Scratch,
    SealError, SealedFile, SealedLen, SealedOff, Suite, testing,
};

/// Every suite in every layout that carries it.
pub fn combinations() -> impl Iterator<Item = (Suite, Layout)> {
    testing::suites().flat_map(|suite| {
        Layout::ALL.into_iter().filter(move |l| l.carries(suite)).map(move |l| (suite, l))
    })
}

/// An open file, and the buffers and random source that its operations need.
pub struct Handle {
    pub file: SealedFile,
    pub scratch: Scratch,
    pub random: LibraryRandom,
}

impl Handle {
    pub fn create<S: Accelerator>(
        storage: &S,
        suite: Suite,
        layout: Layout,
        keys: &KeySet,
    ) -> Handle {
        Handle::create_as(storage, &Form::anywhere(suite, layout), keys)
    }

    pub fn create_as<S: Accelerator>(storage: &S, form: &Form, keys: &KeySet) -> Handle {
        let random = LibraryRandom::new();
        let file = SealedFile::create(storage, form, keys, Generation(1), &random).unwrap();
        Handle { file, scratch: Scratch::new(), random }
    }

    /// Opens a file that must be sealed.
    pub fn open<S: Accelerator>(storage: &S, keys: &KeySet) -> Handle {
        match SealedFile::open(storage, keys).unwrap() {
            Opened::Sealed(file) => {
                Handle { file: *file, scratch: Scratch::new(), random: LibraryRandom::new() }
            }
            other => panic!("not sealed: {other:?}"),
        }
    }

    pub fn write<S: Accelerator>(
        &mut self,
        s: &S,
        bytes: &[u8],
        off: u64,
    ) -> Result<(), SealError> {
        self.file.write_at(s, &mut self.scratch, bytes, PlainOff(off), &self.random)
    }

    pub fn set_len<S: Accelerator>(&mut self, storage: &S, len: u64) -> Result<(), SealError> {
        self.file.set_len(storage, &mut self.scratch, PlainLen(len), &self.random)
    }

    pub fn read_into<S: Accelerator>(
        &mut self,
        storage: &S,
        buf: &mut [u8],
        off: u64,
    ) -> Result<ReadOutcome, SealError> {
        self.file.read_at(storage, &mut self.scratch, buf, PlainOff(off), OnDamage::Fail)
    }

    pub fn read<S: Accelerator>(
        &mut self,
        s: &S,
        off: u64,
        len: usize,
    ) -> Result<Vec<u8>, SealError> {
        let mut buf = vec![0xEE; len];
        let got = self.read_into(s, &mut buf, off)?.len;
        buf.truncate(got);
        Ok(buf)
    }

    pub fn len<S: Accelerator>(&self, storage: &S) -> u64 {
        self.file.plain_len(storage).unwrap().0
    }

    /// The whole file.
    pub fn all<S: Accelerator>(&mut self, storage: &S) -> Result<Vec<u8>, SealError> {
        let len = self.len(storage) as usize;
        self.read(storage, 0, len)
    }
}

/// A pattern without zero bytes, different for each seed.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 9) as u8 | 1
        })
        .collect()
}

/// A small generator of random numbers, the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

/// Memory that counts reads; and changes of tags, if the memory in it does.
#[derive(Default)]
pub struct Counted<S> {
    pub memory: S,
    pub reads: AtomicU64,
}

impl<S: Storage> Storage for Counted<S> {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.memory.write_at(buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        self.memory.len()
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.memory.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.memory.sync()
    }
}

impl<S: Accelerator> Accelerator for Counted<S> {
    fn tag_changes(&self, group: GroupName) -> Option<u64> {
        self.memory.tag_changes(group)
    }

    fn count_tag_change(&self, group: GroupName) -> Option<u64> {
        self.memory.count_tag_change(group)
    }

    fn shared_tags(&self) -> Option<&SharedTags> {
        self.memory.shared_tags()
    }
}
