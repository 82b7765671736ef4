//! A header whose file key is wrapped anew while others have the file open
//! (`spec/key-hierarchy.md`, section 11).

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Handle, pattern};
use pgseal_core::geometry::HEAD_LEN;
use pgseal_core::header::{self, Kind};
use pgseal_core::random::{LibraryRandom, Random};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::testing::keys;
use pgseal_core::{
    DataKey, Fingerprint, Generation, KeySet, Layout, SealedFile, SealedLen, SealedOff, Suite,
};

const HEAD: usize = HEAD_LEN as usize;

fn with_next(keys: KeySet) -> KeySet {
    let key = DataKey::init_with(|bytes| LibraryRandom::new().fill(bytes)).unwrap();
    assert!(keys.adopt(Generation(keys.active().0 + 1), key, keys.suites()));
    keys
}

fn rewrapped(storage: &MemStorage, keys: &KeySet) -> [u8; HEAD] {
    let head: [u8; HEAD] = *storage.bytes().first_chunk().unwrap();
    let Ok(Kind::Sealed(header)) = header::classify(&head) else { panic!("not sealed") };
    header::rewrap(&head, &header, keys, &LibraryRandom::new()).unwrap()
}

#[test]
fn a_renewed_file_has_its_content_and_its_fingerprint() {
    for (suite, layout) in common::combinations() {
        let (keys, storage) = (with_next(keys()), MemStorage::default());
        let mut open = Handle::create(&storage, suite, layout, &keys);
        open.write(&storage, &pattern(20_000, 1), 0).unwrap();
        let before = Fingerprint::of(&storage).unwrap();
        let head = rewrapped(&storage, &keys);
        storage.bytes()[..HEAD].copy_from_slice(&head);
        assert_eq!(Fingerprint::of(&storage).unwrap(), before, "{suite} {layout}");
        // A process that opened the file before writes on, and a new one reads that.
        open.write(&storage, &pattern(100, 7), 20_000).unwrap();
        let mut again = Handle::open(&storage, &keys);
        let wanted = [pattern(20_000, 1), pattern(100, 7)].concat();
        assert_eq!(again.read(&storage, 0, 20_100).unwrap(), wanted, "{suite} {layout}");
        // Whoever has only the older data key does not open it any more.
        assert!(SealedFile::open(&storage, &pgseal_core::testing::keys()).is_err());
    }
}

/// What else is in the head still counts.
#[test]
fn a_changed_head_has_another_fingerprint() {
    let (keys, storage) = (keys(), MemStorage::default());
    let _file = Handle::create(&storage, Suite::Aes256Gcm, Layout::Paged, &keys);
    let before = Fingerprint::of(&storage).unwrap();
    for at in [0, 10, 16, 40, 64, 300, 419] {
        let changed = MemStorage::with(storage.bytes().clone());
        changed.bytes()[at] ^= 1;
        assert_ne!(Fingerprint::of(&changed).unwrap(), before, "byte {at}");
    }
}

/// A file whose head is half old and half new in the first reads.
struct Torn {
    file: MemStorage,
    old: [u8; HEAD],
    reads: AtomicUsize,
    torn_reads: usize,
}

impl Storage for Torn {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        let got = self.file.read_at(buf, off)?;
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        if off.0 == 0 && read < self.torn_reads {
            // Each time the writer has come further.
            let at = (420 + 8 * read).min(got);
            buf[at..got].copy_from_slice(&self.old[at..got]);
        }
        Ok(got)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.file.write_at(buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        self.file.len()
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Accelerator for Torn {}

#[test]
fn a_reader_that_meets_a_half_written_head_reads_it_again() {
    let (keys, file) = (with_next(keys()), MemStorage::default());
    Handle::create(&file, Suite::Aes256Gcm, Layout::Paged, &keys)
        .write(&file, &pattern(100, 1), 0)
        .unwrap();
    let old = *file.bytes().first_chunk().unwrap();
    let head = rewrapped(&file, &keys);
    file.bytes()[..HEAD].copy_from_slice(&head);
    let torn = Torn { file, old, reads: AtomicUsize::new(0), torn_reads: 4 };
    let mut again = Handle::open(&torn, &keys);
    assert_eq!(again.read(&torn, 0, 100).unwrap(), pattern(100, 1));
    assert!(torn.reads.load(Ordering::Relaxed) > 4);
    // A head that stays damaged is reported at once.
    let reads = torn.reads.load(Ordering::Relaxed);
    torn.file.bytes()[450] ^= 1;
    assert!(SealedFile::open(&torn, &keys).is_err());
    assert_eq!(torn.reads.load(Ordering::Relaxed), reads + 2);
}
