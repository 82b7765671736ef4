//! The entry of the last page of WAL, which is kept outside of the file while the page may still
//! change (`spec/sealed-file.md`, section 8.3): every page below a flushed position opens, whoever
//! wrote it and whatever was forgotten in between.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::cell::Cell;
use std::io;

use common::{Handle, pattern};
use pgseal_core::geometry::{BLOCK_LEN, SECTOR_LEN, block_sealed_off, wal_row_off};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Held, Storage};
use pgseal_core::testing::keys;
use pgseal_core::{BlockNo, Layout, PlainOff, SealedLen, SealedOff, Suite};
use proptest::prelude::*;

const BLOCK: usize = BLOCK_LEN as usize;
/// Pages of the segment: more than a group.
const PAGES: usize = 300;

/// What the processes of a server share, and the file that they write.
struct Server {
    file: MemStorage,
    slot: Cell<Option<([u8; 16], Held)>>,
    /// How often a part of a tag block was written.
    row_writes: Cell<usize>,
}

impl Server {
    fn new() -> Server {
        Server { file: MemStorage::default(), slot: Cell::new(None), row_writes: Cell::new(0) }
    }

    /// A server ends, and another one starts.
    fn restart(&self) {
        self.slot.set(None);
    }
}

impl Storage for Server {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        self.file.read_at(buf, off)
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
        self.file.sync()
    }
}

impl Accelerator for Server {
    fn write_tags(&self, entries: &[u8], off: SealedOff) -> io::Result<()> {
        self.row_writes.set(self.row_writes.get() + 1);
        self.write_at(entries, off)
    }

    fn held_entry(&self, file_id: &[u8; 16]) -> Held {
        match self.slot.get() {
            Some((id, held)) if id == *file_id => held,
            _ => Held::Unknown,
        }
    }

    fn hold_entry(&self, file_id: &[u8; 16], held: Held) {
        self.slot.set(Some((*file_id, held)));
    }
}

/// A segment of zeros, as PostgreSQL makes it.
fn segment(server: &Server) -> Handle {
    let mut handle = Handle::create(server, Suite::Aes256Xts, Layout::Wal, &keys());
    handle.write(server, &vec![0; PAGES * BLOCK], 0).unwrap();
    handle
}

/// A reader for which each page that ends before the flushed position must open.
fn reader(server: &Server, flushed: usize) -> Handle {
    let mut handle = Handle::open(server, &keys());
    handle.file.set_must_open(PlainOff(flushed.saturating_sub(1) as u64));
    handle
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes so many bytes of WAL more, in whole pages, as a primary does.
    Pages(usize),
    /// Writes up to the end of a page.
    ToPageEnd(usize),
    /// Writes just the bytes, as a standby does.
    Bytes(usize),
    /// Another process goes on.
    OtherProcess,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![4 => 1_usize..3000, 1 => 8000_usize..20_000, 1 => Just(BLOCK)];
    prop_oneof![
        6 => bytes().prop_map(Step::Pages),
        2 => (0_usize..40).prop_map(Step::ToPageEnd),
        3 => bytes().prop_map(Step::Bytes),
        2 => Just(Step::OtherProcess),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_page_below_a_flushed_position_opens(
        start in 0_usize..(PAGES - 60) * BLOCK,
        steps in proptest::collection::vec(step(), 1..40),
        victim in any::<prop::sample::Index>(),
    ) {
        let server = Server::new();
        let mut writer = segment(&server);
        let mut model = pattern(start, 1);
        // What was there before this server.
        writer.write(&server, &model, 0).unwrap();
        server.restart();
        for (number, step) in steps.iter().enumerate() {
            let from = model.len();
            let to = match *step {
                Step::Pages(len) | Step::Bytes(len) => from + len,
                Step::ToPageEnd(pages) => from.next_multiple_of(BLOCK) + pages / 20 * BLOCK,
                Step::OtherProcess => {
                    writer = Handle::open(&server, &keys());
                    continue;
                }
                Step::Restart => {
                    server.restart();
                    continue;
                }
            };
            if to > PAGES * BLOCK || to == from {
                continue;
            }
            model.extend(pattern(to - from, number as u32 + 2));
            if matches!(step, Step::Bytes(_)) {
                writer.write(&server, &model[from..], from as u64).unwrap();
            } else {
                let first = from / BLOCK * BLOCK;
                let mut pages = model[first..].to_vec();
                pages.resize(pages.len().next_multiple_of(BLOCK), 0);
                writer.write(&server, &pages, first as u64).unwrap();
            }
            let read = reader(&server, to).read(&server, 0, to).unwrap();
            prop_assert!(read == model, "after step {number}");
        }
        // One bit of any such page is noticed.
        let pages = (model.len().saturating_sub(1) / BLOCK) as u64;
        if pages > 0 {
            let block = victim.index(pages as usize) as u64;
            let at = block_sealed_off(Layout::Wal, BlockNo(block)).0 as usize;
            server.file.bytes()[at + victim.index(BLOCK)] ^= 1;
            let read = reader(&server, model.len()).read(&server, block * BLOCK_LEN, BLOCK);
            prop_assert!(read.is_err());
        }
    }
}

#[test]
fn a_page_that_is_written_again_and_again_costs_one_row() {
    let server = Server::new();
    let mut writer = segment(&server);
    writer.write(&server, &pattern(3 * BLOCK, 1), 0).unwrap();
    let before = server.row_writes.get();
    for round in 0..20 {
        writer.write(&server, &pattern(BLOCK, round), 3 * BLOCK_LEN).unwrap();
    }
    // The page before the first of them was held.
    assert_eq!(server.row_writes.get(), before + 1);
    writer.write(&server, &pattern(BLOCK, 30), 4 * BLOCK_LEN).unwrap();
    assert_eq!(server.row_writes.get(), before + 2);
    assert!(reader(&server, 4 * BLOCK + 1).read(&server, 0, 4 * BLOCK).is_ok());
    // Nobody knows yet that the last page is complete.
    assert!(reader(&server, 5 * BLOCK + 1).read(&server, 0, 5 * BLOCK).is_err());
    // The last page of the file is never held.
    let last = (PAGES as u64 - 1) * BLOCK_LEN;
    writer.write(&server, &pattern(BLOCK, 31), last).unwrap();
    let mut reader = reader(&server, PAGES * BLOCK + 1);
    assert!(reader.read(&server, last, BLOCK).is_ok());
}

#[test]
fn the_first_page_of_a_group_brings_the_entry_of_the_group_before() {
    let server = Server::new();
    let mut writer = segment(&server);
    writer.write(&server, &pattern(BLOCK, 1), 254 * BLOCK_LEN).unwrap();
    writer.write(&server, &pattern(BLOCK, 2), 255 * BLOCK_LEN).unwrap();
    writer.write(&server, &pattern(BLOCK, 3), 256 * BLOCK_LEN).unwrap();
    let mut reader = reader(&server, 256 * BLOCK + 1);
    assert!(reader.read(&server, 254 * BLOCK_LEN, 2 * BLOCK).is_ok());
    let row = wal_row_off(BlockNo(256)).0 as usize;
    assert!(server.file.bytes()[row..row + SECTOR_LEN as usize].iter().all(|byte| *byte == 0));
}

#[test]
fn a_change_of_the_length_brings_the_entry_first() {
    for new_len in [2 * BLOCK, 5 * BLOCK, (PAGES + 2) * BLOCK] {
        let server = Server::new();
        let mut writer = segment(&server);
        writer.write(&server, &pattern(2 * BLOCK, 1), 0).unwrap();
        writer.set_len(&server, new_len as u64).unwrap();
        let mut reader = reader(&server, 2 * BLOCK + 1);
        assert!(reader.read(&server, 0, 2 * BLOCK).unwrap() == pattern(2 * BLOCK, 1));
    }
}

#[test]
fn two_files_do_not_take_each_others_entries() {
    let (one, other) = (Server::new(), Server::new());
    let (mut first, mut second) = (segment(&one), segment(&other));
    first.write(&one, &pattern(BLOCK, 1), 0).unwrap();
    // The slot is that of the second file now.
    second.write(&other, &pattern(2 * BLOCK, 2), 0).unwrap();
    one.slot.set(other.slot.get());
    first.write(&one, &pattern(BLOCK, 3), BLOCK_LEN).unwrap();
    let mut reader = reader(&one, BLOCK + 1);
    assert!(reader.read(&one, 0, BLOCK).unwrap() == pattern(BLOCK, 1));
}
