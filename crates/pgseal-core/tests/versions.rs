//! The table of the newest versions of pages: it notices older pages, and never takes a newer one
//! for an older one, whatever processes write, read, push each other out of a slot, and die.

#![allow(clippy::unwrap_used)]

mod common;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use common::{Handle, Numbers, pattern};
use pgseal_core::geometry::{BLOCK_LEN, block_sealed_off, tag_entry_off};
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::testing::keys;
use pgseal_core::versions::{Found, Pages, Slot, Table};
use pgseal_core::{BlockNo, Layout, OnDamage, PlainOff, SealError, Suite};

const BLOCK: usize = BLOCK_LEN as usize;
const ENTRY: usize = 32;

fn table(slots: usize) -> Table {
    let slots: Vec<Slot> = (0..slots).map(|_| Slot::default()).collect();
    let epoch = Box::leak(Box::new(AtomicU32::new(0)));
    Table::new(Vec::leak(slots), epoch, [1, 2, 3, 4].map(|key| key * 0x0123_4567_89AB_CDEF))
        .unwrap()
}

/// The tag entry of a version; version 0 is a page that was never written.
fn entry(version: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&version.to_le_bytes());
    entry
}

/// A page on the disk: two words that are written one after the other, like a page and its tag.
#[derive(Default)]
struct OnDisk {
    page: AtomicU64,
    tag: AtomicU64,
    /// PostgreSQL lets one process at a time write a page. Only some of the writers here take it.
    one_writer: Mutex<()>,
}

struct Model {
    table: Table,
    pages: Vec<OnDisk>,
    names: [Pages; 2],
    versions: AtomicU64,
    stop: AtomicBool,
    compared: AtomicU64,
    /// Held for writing while all writers are dead.
    alive: RwLock<()>,
}

/// Pages of each of the two files, which share a few slots.
const PAGES: u64 = 6;

impl Model {
    fn new() -> Model {
        Model {
            table: table(4),
            pages: (0..2 * PAGES).map(|_| OnDisk::default()).collect(),
            names: [Pages::of(&[3; 16], b"3"), Pages::of(&[7; 16], b"7")],
            versions: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            compared: AtomicU64::new(0),
            alive: RwLock::new(()),
        }
    }

    fn page(&self, number: u64) -> (&OnDisk, pgseal_core::versions::Page) {
        let names = self.names[(number / PAGES) as usize];
        (&self.pages[number as usize], names.page(BlockNo(number % PAGES)))
    }

    /// Writes a page; the writer may be killed at any moment, and may fail.
    fn write(&self, number: u64, numbers: &mut Numbers) {
        let (disk, page) = self.page(number);
        let _alone = (numbers.next(4) > 0).then(|| disk.one_writer.lock());
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        let begun = self.table.will_write(page);
        let dies = numbers.next(2000);
        let fails = numbers.next(50) == 0;
        if dies == 0 {
            return;
        }
        disk.page.store(version, Ordering::SeqCst);
        if numbers.next(8) == 0 {
            thread::yield_now();
        }
        if dies == 1 {
            return;
        }
        if !fails {
            disk.tag.store(version, Ordering::SeqCst);
        }
        if dies == 2 {
            return;
        }
        let written = (!fails).then(|| self.table.version(&entry(version)));
        self.table.written(page, begun, written);
    }

    /// Cuts a file off at a page and lengthens it again with zeros.
    fn cut(&self, number: u64) {
        let (file, first) = (number / PAGES, number % PAGES);
        let pages = || (first..PAGES).map(|block| &self.pages[(file * PAGES + block) as usize]);
        let _alone: Vec<_> = pages().map(|disk| disk.one_writer.lock()).collect();
        let cut = self.table.will_cut(self.names[file as usize], first..PAGES);
        for disk in pages() {
            disk.tag.store(0, Ordering::SeqCst);
            disk.page.store(0, Ordering::SeqCst);
        }
        self.table.was_cut(cut);
    }

    /// Reads a page. It is never older than what the table says.
    fn read(&self, number: u64, numbers: &mut Numbers) {
        let (disk, page) = self.page(number);
        let before = self.table.before_read(page);
        let read = disk.page.load(Ordering::SeqCst);
        if numbers.next(8) == 0 {
            thread::yield_now();
        }
        if disk.tag.load(Ordering::SeqCst) != read {
            // Such a page does not authenticate.
            return;
        }
        let found = self.table.compare(page, before, self.table.version(&entry(read)));
        assert_ne!(found, Found::Older, "page {number} read as version {read}");
        if found == Found::Newest {
            self.compared.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn work(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let _alive = self.alive.read().unwrap();
            let number = numbers.next(2 * PAGES);
            match numbers.next(32) {
                0..12 => self.write(number, &mut numbers),
                12 => self.cut(number),
                _ => self.read(number, &mut numbers),
            }
        }
    }

    /// Kills all, and recovers.
    fn crash(&self) {
        let _all_are_dead = self.alive.write().unwrap();
        self.table.all_writers_have_ended();
    }
}

/// Writers, readers, truncations, pages that push each other out, processes that die in the middle
/// of a write, and recoveries: there is never a false alarm, and in between pages are compared.
#[test]
fn there_is_no_false_alarm() {
    let model = Model::new();
    thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let model = &model;
            scope.spawn(move || {
                model.work(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            });
        }
        let end = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
            model.crash();
        }
        model.stop.store(true, Ordering::Relaxed);
    });
    let compared = model.compared.load(Ordering::Relaxed);
    assert!(compared > 1_000, "only {compared} pages were compared");
}

/// What is put back is noticed, also after other processes died, and after a recovery.
#[test]
fn an_older_version_is_noticed() {
    let table = table(8);
    let [one, other] = [[1; 16], [2; 16]].map(|id| Pages::of(&id, b"here"));
    let version = |number| table.version(&entry(number));
    let read = |pages: Pages, block, number| {
        let page = pages.page(BlockNo(block));
        table.compare(page, table.before_read(page), version(number))
    };
    let write = |pages: Pages, block, number| {
        let page = pages.page(BlockNo(block));
        table.written(page, table.will_write(page), Some(version(number)));
    };
    assert_eq!(read(one, 0, 5), Found::First);
    assert_eq!((read(one, 0, 5), read(one, 0, 4)), (Found::Newest, Found::Older));
    write(one, 0, 6);
    assert_eq!(
        (read(one, 0, 6), read(one, 0, 5), read(one, 0, 0)),
        (Found::Newest, Found::Older, Found::Older)
    );
    // A page of zeros is a version too.
    write(one, 1, 0);
    assert_eq!((read(one, 1, 0), read(one, 1, 5)), (Found::Newest, Found::Older));
    // Another page in the same slot.
    assert_eq!((read(one, 8, 9), read(one, 8, 8)), (Found::First, Found::Older));
    assert_eq!(read(one, 0, 5), Found::First, "the slot was of another page");
    // A read that began before the write may give the version before.
    let page = other.page(BlockNo(3));
    let before = table.before_read(page);
    write(other, 3, 7);
    assert_eq!(table.compare(page, before, version(6)), Found::Changed);
    assert_eq!(read(other, 3, 6), Found::Older);
    // A reader that began before a write never sets what it read.
    let page = other.page(BlockNo(4));
    let before = table.before_read(page);
    let begun = table.will_write(page);
    assert_eq!(table.compare(page, before, version(1)), Found::Unknown);
    assert_eq!(read(other, 4, 1), Found::Unknown, "while somebody writes");
    table.written(page, begun, None);
    assert_eq!(table.compare(page, before, version(1)), Found::Unknown);
    // A writer that is killed takes its slot out of use, until the recovery that follows.
    let _ = table.will_write(page);
    write(other, 4, 2);
    assert_eq!((read(other, 4, 2), read(other, 4, 1)), (Found::Unknown, Found::Unknown));
    table.all_writers_have_ended();
    assert_eq!((read(other, 4, 2), read(other, 4, 1)), (Found::First, Found::Older));
    assert_eq!(read(other, 3, 6), Found::Older, "a recovery forgets nothing else");
    // A writer of before the recovery that ends after it changes no count.
    let late = table.will_write(page);
    table.all_writers_have_ended();
    write(other, 4, 3);
    table.written(page, late, Some(version(2)));
    assert_eq!((read(other, 4, 3), read(other, 4, 2)), (Found::Newest, Found::Older));
    let begun = table.will_write(page);
    table.written(page, late, None);
    assert_eq!(read(other, 4, 3), Found::Unknown, "the other writer is still counted");
    table.written(page, begun, Some(version(4)));
    assert_eq!((read(other, 4, 4), read(other, 4, 3)), (Found::Newest, Found::Older));
    // Nothing is known of what was cut off, and a read from before the cut does not bring it back.
    let before = table.before_read(page);
    let cut = table.will_cut(other, 2..6);
    assert_eq!(read(other, 4, 4), Found::Unknown);
    table.was_cut(cut);
    assert_eq!(table.compare(page, before, version(4)), Found::Unknown);
    assert_eq!((read(other, 4, 0), read(other, 4, 4)), (Found::First, Found::Older));
}

/// Two writers of one page at once: nobody knows which of them was last.
#[test]
fn two_writers_leave_nothing_known() {
    let table = table(2);
    let page = Pages::of(&[9; 16], b"here").page(BlockNo(1));
    let version = |number| table.version(&entry(number));
    for first_ends_first in [true, false] {
        let (one, other) = (table.will_write(page), table.will_write(page));
        let mut ends = [(one, version(1)), (other, version(2))];
        if !first_ends_first {
            ends.reverse();
        }
        for (begun, version) in ends {
            table.written(page, begun, Some(version));
        }
        assert_eq!(table.compare(page, table.before_read(page), version(3)), Found::First);
    }
}

/// A writer that comes while another process gives the slot a new name is not overlooked.
#[test]
fn names_and_versions_belong_together() {
    let (table, rounds) = (table(1), 200_000_u64);
    let pages = [1, 2].map(|id| Pages::of(&[id; 16], b"here").page(BlockNo(0)));
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        for (page, own) in pages.into_iter().zip([100, 200]) {
            let (table, barrier) = (&table, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..rounds {
                    let before = table.before_read(page);
                    let found = table.compare(page, before, table.version(&entry(own)));
                    assert!(matches!(found, Found::Newest | Found::First | Found::Unknown));
                }
            });
        }
    });
}

type Memory = Accelerated<MemStorage>;

fn new_file(storage: &Memory) -> Handle {
    Handle::create(storage, Suite::Aes256Gcm, Layout::Paged, &keys())
}

fn saved(storage: &Memory, block: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut page, mut tag) = (vec![0; BLOCK], vec![0; ENTRY]);
    storage.read_at(&mut page, block_sealed_off(Layout::Paged, BlockNo(block))).unwrap();
    storage.read_at(&mut tag, tag_entry_off(BlockNo(block))).unwrap();
    (page, tag)
}

/// As somebody does who can write to the storage.
fn put_back(storage: &Memory, block: u64, (page, tag): &(Vec<u8>, Vec<u8>)) {
    storage.write_at(page, block_sealed_off(Layout::Paged, BlockNo(block))).unwrap();
    storage.write_at(tag, tag_entry_off(BlockNo(block))).unwrap();
}

#[test]
fn older_pages_of_a_file_are_damage() {
    let storage = Accelerated::with_versions(MemStorage::default(), 1024);
    let mut file = new_file(&storage);
    file.write(&storage, &pattern(600 * BLOCK, 1), 0).unwrap();
    // A second handle, as in another process, which has cached every tag.
    let mut other = Handle::open(&storage, &keys());
    other.all(&storage).unwrap();
    for block in [0, 3, 255, 256, 599] {
        let (old, zeros) = (saved(&storage, block), (vec![0; BLOCK], vec![0; ENTRY]));
        file.write(&storage, &pattern(BLOCK, 2), block * BLOCK_LEN).unwrap();
        let new = saved(&storage, block);
        for (changed, what) in [(&old, "older"), (&zeros, "zeros")] {
            put_back(&storage, block, changed);
            for handle in [&mut file, &mut other] {
                for len in [BLOCK, 100, 2 * BLOCK] {
                    let read = handle.read(&storage, block * BLOCK_LEN, len);
                    let is_found =
                        matches!(&read, Err(SealError::BlockOlder(found)) if found.0 == block);
                    assert!(is_found, "{what} block {block}: {:?}", read.map(|read| read.len()));
                }
            }
            let part = file.write(&storage, b"part", block * BLOCK_LEN + 10);
            assert!(matches!(part, Err(SealError::BlockOlder(_))), "{part:?}");
        }
        let mut page = [1; BLOCK];
        let outcome = file
            .file
            .read_at(
                &storage,
                &mut file.scratch,
                &mut page,
                PlainOff(block * BLOCK_LEN),
                OnDamage::ZeroPage,
            )
            .unwrap();
        assert_eq!((outcome.older_blocks, outcome.damaged_blocks), (1, 1));
        assert!(page == [0; BLOCK]);
        put_back(&storage, block, &new);
        assert!(other.read(&storage, block * BLOCK_LEN, BLOCK).unwrap() == pattern(BLOCK, 2));
    }
}

/// Pages that are cut off and come again as zeros, or are written anew, are no older versions.
#[test]
fn a_cut_forgets_versions() {
    let storage = Accelerated::with_versions(MemStorage::default(), 1024);
    let mut file = new_file(&storage);
    let mut other = Handle::open(&storage, &keys());
    for (round, (cut, grown)) in
        [(3, 300), (0, 300), (256, 257), (255, 256), (299, 300)].into_iter().enumerate()
    {
        file.write(&storage, &pattern(300 * BLOCK, round as u32 + 1), 0).unwrap();
        other.all(&storage).unwrap();
        let old = saved(&storage, 299);
        let (cut, grown) = (cut * BLOCK_LEN, grown * BLOCK_LEN);
        file.set_len(&storage, cut).unwrap();
        if round % 2 == 0 {
            file.set_len(&storage, grown).unwrap();
        } else {
            other.write(&storage, &vec![0; (grown - cut) as usize], cut).unwrap();
        }
        let all = other.all(&storage).unwrap();
        assert!(all[cut as usize..].iter().all(|byte| *byte == 0), "round {round}");
        assert!(file.all(&storage).unwrap() == all);
        if grown == 300 * BLOCK_LEN {
            put_back(&storage, 299, &old);
            let read = file.read(&storage, 299 * BLOCK_LEN, BLOCK);
            assert!(matches!(read, Err(SealError::BlockOlder(_))), "round {round}");
        }
        file.set_len(&storage, 0).unwrap();
    }
}

/// Whatever the entry holds of a nonce.
#[test]
fn an_older_page_is_noticed_in_each_suite_that_authenticates() {
    let suites = pgseal_core::testing::suites().filter(|suite| suite.authenticates());
    for suite in suites {
        let storage = Accelerated::with_versions(MemStorage::default(), 64);
        let mut file = Handle::create(&storage, suite, Layout::Paged, &keys());
        file.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
        let old = saved(&storage, 2);
        file.write(&storage, &pattern(BLOCK, 2), 2 * BLOCK_LEN).unwrap();
        put_back(&storage, 2, &old);
        let read = Handle::open(&storage, &keys()).read(&storage, 2 * BLOCK_LEN, BLOCK);
        assert!(matches!(read, Err(SealError::BlockOlder(BlockNo(2)))), "{suite}: {read:?}");
    }
}

/// Without a table, and for suites that do not authenticate, everything is as before.
#[test]
fn nothing_is_compared_without_a_table() {
    for (storage, suite) in [
        (Accelerated::new(MemStorage::default()), Suite::Aes256Gcm),
        (Accelerated::with_versions(MemStorage::default(), 64), Suite::Aes256Ctr),
    ] {
        let mut file = Handle::create(&storage, suite, Layout::Paged, &keys());
        file.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
        let old = saved(&storage, 2);
        file.write(&storage, &pattern(BLOCK, 2), 2 * BLOCK_LEN).unwrap();
        put_back(&storage, 2, &old);
        let read = Handle::open(&storage, &keys()).read(&storage, 2 * BLOCK_LEN, BLOCK).unwrap();
        assert!(read == pattern(4 * BLOCK, 1)[2 * BLOCK..3 * BLOCK]);
        assert_eq!(storage.versions().is_some(), suite == Suite::Aes256Ctr);
    }
}
