//! The WAL layout beyond what it shares with the others: pages that must open, and flush records
//! (`spec/sealed-file.md`, section 8.3).

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::cell::{Cell, RefCell};
use std::io;

use common::{Handle, pattern};
use pgseal_core::geometry::{
    BLOCK_LEN, FLUSH_RECORD_AT, block_sealed_off, sealed_len, tag_block_off, wal_entry_off,
    wal_row_off,
};
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::testing::keys;
use pgseal_core::verify::{BlockState, verify_block, verify_file};
use pgseal_core::{
    BlockNo, FlushRecord, KeySet, Layout, OnDamage, PlainLen, PlainOff, SealError, SealedLen,
    SealedOff, Suite, testing,
};
use proptest::prelude::*;

const BLOCK: usize = BLOCK_LEN as usize;
const ALL: PlainOff = PlainOff(u64::MAX);

fn suites() -> impl Iterator<Item = Suite> {
    testing::suites().filter(|suite| Layout::Wal.carries(*suite))
}

fn create<S: Accelerator>(storage: &S, suite: Suite, keys: &KeySet) -> Handle {
    let mut handle = Handle::create(storage, suite, Layout::Wal, keys);
    handle.file.set_must_open(ALL);
    handle
}

fn page_at(block: u64) -> usize {
    block_sealed_off(Layout::Wal, BlockNo(block)).0 as usize
}

#[derive(Clone, Debug)]
enum Op {
    /// A write that begins somewhere in the file, at most at its end.
    Write {
        at: u32,
        len: usize,
    },
    Append(usize),
    /// Lengthens the last page, but not beyond.
    Lengthen(usize),
    Cut(u32),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let length = || {
        prop_oneof![
            1_usize..40,
            500_usize..530,
            Just(BLOCK),
            Just(BLOCK),
            Just(3 * BLOCK),
            8180_usize..8200,
            Just(40 * BLOCK + 7),
            Just(256 * BLOCK)
        ]
    };
    prop_oneof![
        3 => (any::<u32>(), length()).prop_map(|(at, len)| Op::Write { at, len }),
        3 => length().prop_map(Op::Append),
        1 => (0_usize..600).prop_map(Op::Lengthen),
        1 => any::<u32>().prop_map(Op::Cut),
        1 => Just(Op::Reopen),
    ]
}

/// A place below `len`: often near the edge of a page.
fn place(at: u32, len: usize) -> usize {
    let at = at as usize;
    if at.is_multiple_of(2) { at / 2 % (len + 1) } else { at / 2 % (len / BLOCK + 1) * BLOCK }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Each page opens under its entry, whatever part of it was written last.
    #[test]
    fn what_was_written_opens(ops in proptest::collection::vec(op(), 1..16)) {
        for suite in suites() {
            let (keys, storage) = (keys(), Accelerated::new(MemStorage::default()));
            let mut handle = create(&storage, suite, &keys);
            let mut model: Vec<u8> = Vec::new();
            for (number, op) in ops.iter().enumerate() {
                let (at, len) = match *op {
                    Op::Write { at, len } => (place(at, model.len()), len),
                    Op::Append(len) => (model.len(), len),
                    Op::Lengthen(by) => {
                        let end = model.len().next_multiple_of(BLOCK);
                        let to = (model.len() + by).min(end);
                        handle.set_len(&storage, to as u64).unwrap();
                        model.resize(to, 0);
                        continue;
                    }
                    Op::Cut(at) => {
                        model.truncate(place(at, model.len()));
                        handle.set_len(&storage, model.len() as u64).unwrap();
                        continue;
                    }
                    Op::Reopen => {
                        handle = Handle::open(&storage, &keys);
                        handle.file.set_must_open(ALL);
                        continue;
                    }
                };
                if at + len > 600 * BLOCK {
                    continue;
                }
                let bytes = pattern(len, number as u32 + 1);
                handle.write(&storage, &bytes, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
                let part = handle.read(&storage, at as u64, len.min(3000)).unwrap();
                prop_assert!(part == bytes[..part.len()] && part.len() == len.min(3000));
            }
            prop_assert!(handle.all(&storage).unwrap() == model);
            let (file, scratch) = (&mut handle.file, &mut handle.scratch);
            let report = verify_file(file, &*storage, scratch, &mut |_| {}).unwrap();
            prop_assert_eq!(report.data_blocks, model.len().div_ceil(BLOCK) as u64);
            prop_assert!(report.authenticated);
        }
    }
}

#[test]
fn a_page_that_must_open_is_damage_for_every_reader() {
    let keys = keys();
    for suite in suites() {
        let storage = MemStorage::default();
        let mut handle = create(&storage, suite, &keys);
        handle.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
        storage.bytes()[page_at(1) + 700] ^= 1;
        for on_damage in [OnDamage::Fail, OnDamage::InvalidPage, OnDamage::ZeroPage] {
            for (off, len) in [(0, 4 * BLOCK), (BLOCK as u64, BLOCK), (2 * 8192 - 5, 10)] {
                let mut buf = vec![0; len];
                let (file, scratch) = (&mut handle.file, &mut handle.scratch);
                let read = file.read_at(&storage, scratch, &mut buf, PlainOff(off), on_damage);
                assert!(matches!(read, Err(SealError::BlockDamaged(BlockNo(1)))), "{read:?}");
            }
        }
        // Only pages that end at or before the offset must open.
        handle.file.set_must_open(PlainOff(2 * BLOCK_LEN - 1));
        assert_eq!(handle.all(&storage).unwrap().len(), 4 * BLOCK);
        handle.file.set_must_open(PlainOff(2 * BLOCK_LEN));
        assert!(handle.all(&storage).is_err());
        assert_eq!(handle.read(&storage, 2 * BLOCK_LEN, BLOCK).unwrap().len(), BLOCK);
    }
}

/// A new entry for a page that was changed behind pgseal's back would make the change authentic.
#[test]
fn a_write_of_a_part_gives_a_changed_page_no_new_entry() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut handle = create(&storage, Suite::Aes256Xts, &keys);
    handle.write(&storage, &pattern(2 * BLOCK, 1), 0).unwrap();
    storage.bytes()[page_at(1) + 700] ^= 1;
    let before = storage.bytes().clone();
    for (off, len) in [(BLOCK_LEN + 5000, 20), (BLOCK_LEN, 512), (BLOCK_LEN - 10, 20)] {
        let result = handle.write(&storage, &pattern(len, 2), off);
        assert!(matches!(result, Err(SealError::BlockDamaged(BlockNo(1)))), "{result:?}");
        let page = page_at(1)..page_at(2);
        assert!(storage.bytes()[page.clone()] == before[page], "{off}");
    }
    assert!(handle.set_len(&storage, BLOCK_LEN + 100).is_err());
    assert!(handle.read(&storage, BLOCK_LEN, BLOCK).is_err());
    // A write of the whole page needs nothing of the old one.
    handle.write(&storage, &pattern(BLOCK, 3), BLOCK_LEN).unwrap();
    assert!(handle.read(&storage, BLOCK_LEN, BLOCK).unwrap() == pattern(BLOCK, 3));
}

/// Memory in which a row arrives only when a reader has waited some times.
struct LateRow {
    memory: MemStorage,
    row: RefCell<(SealedOff, Vec<u8>)>,
    arrives_at: u32,
    pauses: Cell<u32>,
}

impl Storage for LateRow {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
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

impl Accelerator for LateRow {
    fn pause(&self, attempt: u32) {
        self.pauses.set(attempt);
        if attempt == self.arrives_at {
            let row = self.row.borrow();
            self.memory.write_at(&row.1, row.0).unwrap();
        }
    }
}

#[test]
fn a_page_is_read_again_until_its_entry_is_there() {
    let keys = keys();
    for (arrives_at, opens) in [(1, true), (4, true), (9, false)] {
        for len in [BLOCK, 1000] {
            let storage = LateRow {
                memory: MemStorage::default(),
                row: RefCell::new((SealedOff(0), Vec::new())),
                arrives_at,
                pauses: Cell::new(0),
            };
            let mut writer = create(&storage, Suite::Aes256Xts, &keys);
            writer.write(&storage, &pattern(BLOCK + 1000, 1), 0).unwrap();
            let row = wal_row_off(BlockNo(0));
            let mut old = vec![0; 512];
            storage.read_at(&mut old, row).unwrap();
            let mut reader = Handle::open(&storage, &keys);
            reader.file.set_must_open(ALL);
            // The last page grows if `len` is a whole page.
            writer.write(&storage, &pattern(len, 2), BLOCK_LEN).unwrap();
            let mut new = vec![0; 512];
            storage.read_at(&mut new, row).unwrap();
            *storage.row.borrow_mut() = (row, new);
            storage.write_at(&old, row).unwrap();
            let read = reader.read(&storage, BLOCK_LEN, len);
            assert_eq!(read.is_ok(), opens, "{arrives_at} {len}");
            assert_eq!(storage.pauses.get(), arrives_at.min(4));
            assert!(read.is_err() || read.unwrap() == pattern(len, 2));
        }
    }
}

#[test]
fn zeros_are_stored_as_they_are_and_have_no_entry() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut handle = create(&storage, Suite::Aes256Xts, &keys);
    handle.write(&storage, &vec![0; 300 * BLOCK], 0).unwrap();
    let len = sealed_len(Layout::Wal, PlainLen(300 * BLOCK_LEN)).0 as usize;
    assert_eq!(storage.bytes().len(), len);
    assert!(storage.bytes()[8192..].iter().all(|byte| *byte == 0));
    assert!(matches!(handle.all(&storage), Err(SealError::BlockDamaged(BlockNo(0)))));
    handle.file.set_must_open(PlainOff(0));
    assert!(handle.all(&storage).unwrap() == vec![0; 300 * BLOCK]);
    // Zeros that overwrite are sealed.
    handle.file.set_must_open(ALL);
    handle.write(&storage, &[0; BLOCK], 260 * BLOCK_LEN).unwrap();
    assert_eq!(handle.read(&storage, 260 * BLOCK_LEN, BLOCK).unwrap(), [0; BLOCK]);
    assert!(storage.bytes()[page_at(260)..page_at(261)] != [0; BLOCK]);
}

/// Two writers in turn, as the processes of a server: no entry and no record gets lost.
#[test]
fn a_row_keeps_what_others_wrote_into_it() {
    let (keys, storage) = (keys(), Accelerated::new(MemStorage::default()));
    let mut one = create(&storage, Suite::Aes256Xts, &keys);
    one.write(&storage, &vec![0; 64 * BLOCK], 0).unwrap();
    let mut two = Handle::open(&storage, &keys);
    two.file.set_must_open(ALL);
    let mut model = vec![0; 40 * BLOCK];
    for page in 0..40_u64 {
        let writer = if page % 3 == 0 { &mut two } else { &mut one };
        let record = FlushRecord { timeline: 1, position: page };
        writer.file.set_flush_record(Some(record).filter(|_| page % 4 < 2));
        let bytes = pattern(BLOCK, page as u32 + 1);
        writer.write(&storage, &bytes, page * BLOCK_LEN).unwrap();
        model[page as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        let newest = one.file.newest_flush_record(&storage, Some(1)).unwrap();
        assert_eq!(newest.unwrap().position, if page % 4 < 2 { page } else { page - page % 4 + 1 });
    }
    for reader in [&mut one, &mut two] {
        assert!(reader.read(&storage, 0, 40 * BLOCK).unwrap() == model);
    }
}

#[test]
fn only_authentic_flush_records_count() {
    let keys = keys();
    let make = |suite, records: &[(u64, u32, u64)]| {
        let storage = MemStorage::default();
        let mut handle = create(&storage, suite, &keys);
        handle.write(&storage, &vec![0; 300 * BLOCK], 0).unwrap();
        assert_eq!(handle.file.newest_flush_record(&storage, None).unwrap(), None);
        for (page, timeline, position) in records {
            let record = FlushRecord { timeline: *timeline, position: *position };
            handle.file.set_flush_record(Some(record));
            handle.write(&storage, &pattern(BLOCK, 1), page * BLOCK_LEN).unwrap();
        }
        (storage, handle)
    };
    for suite in suites() {
        let newest = (1 << 40) + 7;
        let (storage, mut handle) =
            make(suite, &[(0, 1, 500), (20, 1, newest), (270, 2, 900), (280, 3, 0)]);
        let mut newest_of = |timeline| {
            let found = handle.file.newest_flush_record(&storage, timeline).unwrap();
            found.map(|record| (record.timeline, record.position))
        };
        assert_eq!(newest_of(None), Some((1, newest)));
        assert_eq!(newest_of(Some(2)), Some((2, 900)));
        assert_eq!(newest_of(Some(3)), Some((3, 0)));
        assert_eq!(newest_of(Some(4)), None);
        // The record of another row is authentic there as well: a copy says nothing new.
        let record = |page| (wal_row_off(BlockNo(page)).0 + FLUSH_RECORD_AT) as usize;
        let at = record(20);
        for offset in 0..64 {
            storage.bytes()[at + offset] ^= 1;
            assert_eq!(newest_of(None), Some((2, 900)), "byte {offset}");
            storage.bytes()[at + offset] ^= 1;
        }
        assert_eq!(newest_of(None), Some((1, newest)));
        // The record of another file, in which it is authentic.
        let (other, _) = make(suite, &[(0, 1, u64::MAX)]);
        let foreign = other.bytes()[record(0)..record(0) + 64].to_vec();
        storage.bytes()[record(0)..record(0) + 64].copy_from_slice(&foreign);
        assert_eq!(newest_of(None), Some((1, newest)));
        // A file that ends within a tag block.
        storage.bytes().truncate(tag_block_off(1).0 as usize + 100);
        assert_eq!(newest_of(None), Some((1, newest)));
    }
}

#[test]
fn a_write_puts_the_record_into_each_row_that_it_touches() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut handle = create(&storage, Suite::Aes256Xts, &keys);
    handle.file.set_flush_record(Some(FlushRecord { timeline: 1, position: 5 }));
    handle.write(&storage, &pattern(300 * BLOCK, 1), 0).unwrap();
    handle.file.set_flush_record(Some(FlushRecord { timeline: 1, position: 6 }));
    handle.write(&storage, &pattern(100, 1), 40 * BLOCK_LEN - 50).unwrap();
    let position = |row: u64| {
        let off = wal_row_off(BlockNo(row * 16)).0 + FLUSH_RECORD_AT;
        storage.bytes()[off as usize + 8]
    };
    let positions: Vec<u8> = (0..19).map(position).collect();
    assert_eq!(positions, [5, 5, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
    assert!(handle.all(&storage).unwrap().len() == 300 * BLOCK);
}

#[test]
fn the_walk_tells_authentic_pages_from_others() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut handle = create(&storage, Suite::Aes256Xts, &keys);
    handle.write(&storage, &vec![0; 8 * BLOCK], 0).unwrap();
    handle.write(&storage, &pattern(5 * BLOCK, 1), 0).unwrap();
    storage.bytes()[page_at(1) + 9] ^= 1;
    let entry = wal_entry_off(BlockNo(3)).0 as usize;
    storage.bytes()[entry..entry + 28].fill(0);
    let mut walk = |must_open| {
        handle.file.set_must_open(PlainOff(must_open));
        let (file, scratch) = (&mut handle.file, &mut handle.scratch);
        verify_file(file, &storage, scratch, &mut |_| {}).unwrap()
    };
    let blocks = |list: &pgseal_core::verify::BlockList| -> Vec<u64> {
        list.blocks().map(|block| block.0).collect()
    };
    let report = walk(0);
    assert_eq!((report.data_blocks, report.authenticated), (3, false));
    assert_eq!(blocks(&report.unfitting), [1, 3]);
    assert_eq!((blocks(&report.zero), report.damaged.count()), (vec![5, 6, 7], 0));
    let report = walk(3 * BLOCK_LEN);
    assert_eq!((report.data_blocks, report.authenticated), (3, false));
    assert_eq!((blocks(&report.damaged), blocks(&report.unfitting)), (vec![1], vec![3]));
    let report = walk(8 * BLOCK_LEN);
    assert_eq!((report.data_blocks, report.authenticated), (3, true));
    assert_eq!(blocks(&report.damaged), [1, 3, 5, 6, 7]);
    handle.file.set_must_open(PlainOff(0));
    let mut look = |block| {
        let (file, scratch) = (&mut handle.file, &mut handle.scratch);
        verify_block(file, &storage, scratch, BlockNo(block)).unwrap()
    };
    assert_eq!([look(0), look(1)], [BlockState::Data, BlockState::Unfitting]);
    assert_eq!([look(7), look(8)], [BlockState::Zero, BlockState::Gone]);
}
