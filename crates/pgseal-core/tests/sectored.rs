//! The sectored layout (`spec/sealed-file.md`, section 8.2): after a power cut each sector is old
//! or new, zeros on the disk are damage whatever their cause, and sectors that never reached the
//! disk are filled on request only.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, pattern};
use pgseal_core::geometry::{HEADER_LEN, SECTOR_DATA_LEN, SECTOR_LEN, SECTORED_STRIDE};
use pgseal_core::storage::crash::CrashStorage;
use pgseal_core::storage::fault::{FaultStorage, Plan};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{BlockNo, Form, Layout, OnDamage, Place, PlainOff, SealError, Suite};
use proptest::prelude::*;

const BLOCK: usize = 8192;
const SECTOR: usize = SECTOR_LEN as usize;
const DATA: usize = SECTOR_DATA_LEN as usize;
const STRIDE: usize = SECTORED_STRIDE as usize;
const HEADER: usize = HEADER_LEN as usize;

fn form() -> Form {
    let place = Place::of(b"pg_xact/0000").unwrap();
    Form { suite: Suite::Aes256Gcm, layout: Layout::Sectored, place }
}

#[test]
fn zeroed_sectors_are_damage() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &form(), &keys);
    file.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
    let wiped = HEADER + STRIDE + 3 * SECTOR;
    storage.bytes()[wiped..wiped + SECTOR].fill(0);
    for mut handle in [file, Handle::open(&storage, &keys)] {
        assert!(
            matches!(handle.all(&storage), Err(SealError::BlockDamaged(block)) if block.0 == 1)
        );
        assert!(handle.read(&storage, 0, BLOCK).unwrap() == pattern(4 * BLOCK, 1)[..BLOCK]);
        // A reader that does not stop at damage gets a count of the damaged blocks, and the blocks
        // behind.
        let mut buf = vec![0; 4 * BLOCK];
        let outcome = handle
            .file
            .read_at(&storage, &mut handle.scratch, &mut buf, PlainOff(0), OnDamage::InvalidPage)
            .unwrap();
        assert_eq!((outcome.damaged_blocks, outcome.zero_blocks), (1, 0));
        assert!(buf[2 * BLOCK..] == pattern(4 * BLOCK, 1)[2 * BLOCK..]);
        // A write of a part of the sector fails, instead of taking zeros for the rest of it. A
        // write of the whole page mends the page.
        let off = (BLOCK + 3 * DATA) as u64 + 7;
        assert!(handle.write(&storage, b"x", off).is_err());
    }
    let mut file = Handle::open(&storage, &keys);
    file.write(&storage, &pattern(BLOCK, 2), BLOCK as u64).unwrap();
    assert!(file.read(&storage, BLOCK as u64, BLOCK).unwrap() == pattern(BLOCK, 2));
}

/// Only the sectors of a block that may have been lost are filled.
#[test]
fn a_sector_that_was_synced_is_never_filled() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &form(), &keys);
    file.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
    for block in [1, 2] {
        let wiped = HEADER + block * STRIDE + 5 * SECTOR;
        storage.bytes()[wiped..wiped + 2 * SECTOR].fill(0);
    }
    let may_be_lost = |block: BlockNo| block.0 >= 2;
    let Handle { file: sealed, scratch, random } = &mut file;
    let filled = sealed.fill_lost_sectors(&storage, scratch, random, &may_be_lost).unwrap();
    assert_eq!(filled, 2);
    assert!(file.read(&storage, BLOCK as u64, BLOCK).is_err());
    let read = file.read(&storage, 2 * BLOCK as u64, BLOCK).unwrap();
    let old = &pattern(4 * BLOCK, 1)[2 * BLOCK..3 * BLOCK];
    assert!(read[..5 * DATA] == old[..5 * DATA] && read[7 * DATA..] == old[7 * DATA..]);
    assert!(read[5 * DATA..7 * DATA].iter().all(|byte| *byte == 0));
}

#[test]
fn zeros_and_gaps_are_sealed() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &form(), &keys);
    file.write(&storage, &[0; 2 * BLOCK], 0).unwrap();
    file.write(&storage, &pattern(BLOCK, 1), 5 * BLOCK as u64).unwrap();
    file.set_len(&storage, 7 * BLOCK as u64 + 77).unwrap();
    let bytes = storage.bytes().clone();
    assert_eq!(bytes.len(), HEADER + 7 * STRIDE + SECTOR + 77);
    for (index, piece) in bytes[HEADER..HEADER + 7 * STRIDE + SECTOR].chunks(64).enumerate() {
        assert!(piece.iter().any(|byte| *byte != 0), "piece {index}");
    }
    let all = Handle::open(&storage, &keys).all(&storage).unwrap();
    assert_eq!(all.len(), 7 * BLOCK + 77);
    assert!(all[..5 * BLOCK].iter().chain(&all[6 * BLOCK..]).all(|byte| *byte == 0));
    assert!(all[5 * BLOCK..6 * BLOCK] == pattern(BLOCK, 1));
}

/// What lies behind a cut within a sector never comes back.
#[test]
fn bytes_behind_a_cut_are_gone() {
    let (keys, storage) = (keys(), MemStorage::default());
    for by_length in [true, false] {
        let mut file = Handle::create_as(&storage, &form(), &keys);
        file.write(&storage, &pattern(400, 1), 0).unwrap();
        file.set_len(&storage, 100).unwrap();
        assert_eq!(file.len(&storage), 100);
        if by_length {
            file.set_len(&storage, 300).unwrap();
        } else {
            file.write(&storage, b"x", 299).unwrap();
        }
        let all = Handle::open(&storage, &keys).all(&storage).unwrap();
        assert!(all.len() == 300 && all[..100] == pattern(400, 1)[..100]);
        assert!(all[100..299].iter().all(|byte| *byte == 0), "{by_length}");
        storage.bytes().clear();
    }
}

#[test]
fn a_full_disk_in_a_gap_leaves_the_file_as_it_was() {
    let keys = keys();
    for odd in [0, 5, DATA] {
        let storage = FaultStorage::new(MemStorage::default());
        let mut file = Handle::create_as(&storage, &form(), &keys);
        file.write(&storage, &pattern(BLOCK + odd, 1), 0).unwrap();
        // The rest of the last block if it is not full, the blocks of the gap, the page.
        let writes = if odd == 0 { 2 } else { 3 };
        for write in 1..=writes {
            storage.arm(format!("enospc@write#{write}").parse::<Plan>().unwrap());
            let failed = file.write(&storage, &pattern(BLOCK, 2), 5 * BLOCK as u64);
            assert!(failed.is_err(), "write {write}");
            storage.arm("".parse::<Plan>().unwrap());
            assert!(file.all(&storage).unwrap() == pattern(BLOCK + odd, 1), "write {write}");
        }
        file.write(&storage, &pattern(BLOCK, 2), 5 * BLOCK as u64).unwrap();
        assert_eq!(file.len(&storage), 6 * BLOCK as u64);
    }
}

#[derive(Clone, Debug)]
struct Write {
    block: usize,
    blocks: usize,
    synced: bool,
}

fn write() -> impl Strategy<Value = Write> {
    (0_usize..9, 1_usize..3, any::<bool>()).prop_map(|(block, blocks, synced)| Write {
        block,
        blocks,
        synced,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// After a power cut each sector holds the synced content or a content that was written later,
    /// or is damage because it was never synced. Once lost sectors are filled, nothing is damage.
    #[test]
    fn what_a_power_cut_left_is_old_or_new(
        writes in proptest::collection::vec(write(), 1..10),
        seed in 0_u64..1 << 40,
    ) {
        let (keys, storage) = (keys(), CrashStorage::default());
        let mut file = Handle::create_as(&storage, &form(), &keys);
        pgseal_core::storage::Storage::sync(&storage).unwrap();
        // For each block, every content that it has had since the last sync. Pieces of a block that
        // lie in one sector come from one of these contents.
        let mut versions: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut synced_blocks = 0;
        for (number, Write { block, blocks, synced }) in writes.iter().enumerate() {
            let data = pattern(blocks * BLOCK, number as u32 + 1);
            file.write(&storage, &data, (block * BLOCK) as u64).unwrap();
            if versions.len() < block + blocks {
                versions.resize(block + blocks, vec![vec![0; BLOCK]]);
            }
            for (version, data) in versions[*block..].iter_mut().zip(data.chunks(BLOCK)) {
                version.push(data.to_vec());
            }
            if *synced {
                pgseal_core::storage::Storage::sync(&storage).unwrap();
                for version in &mut versions {
                    version.drain(..version.len() - 1);
                }
                synced_blocks = versions.len();
            }
        }
        for seed in seed..seed + 8 {
            let disk = storage.crash_by_seed(seed);
            let mut after = Handle::open(&disk, &keys);
            // A block that was synced once opens without any repair, whatever tore it since.
            for block in 0..synced_blocks {
                after.read(&disk, (block * BLOCK) as u64, BLOCK).unwrap();
            }
            let Handle { file, scratch, random } = &mut after;
            let unsynced = |block: BlockNo| block.0 as usize >= synced_blocks;
            file.fill_lost_sectors(&disk, scratch, random, &unsynced).unwrap();
            let again = file.fill_lost_sectors(&disk, scratch, random, &|_| true).unwrap();
            prop_assert_eq!(again, 0);
            let all = Handle::open(&disk, &keys).all(&disk).unwrap();
            for (block, page) in all.chunks(BLOCK).enumerate() {
                for (index, got) in page.chunks(DATA).enumerate() {
                    let at = index * DATA;
                    prop_assert!(
                        versions[block].iter().any(|page| page[at..at + got.len()] == *got),
                        "block {block}, sector {index}"
                    );
                }
            }
        }
    }
}
