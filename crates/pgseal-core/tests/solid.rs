//! Files in the in-place layout that must have no holes (`spec/sealed-file.md`, section 8.1): zeros
//! on the disk are damage, whatever their cause. Only on request are the holes that a power cut
//! left filled.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, pattern};
use pgseal_core::geometry::{HEADER_LEN, SECTOR_LEN};
use pgseal_core::storage::crash::CrashStorage;
use pgseal_core::storage::fault::{FaultStorage, Plan};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{Form, Layout, OnDamage, Place, PlainOff, SealError, Suite};
use proptest::prelude::*;

const BLOCK: usize = 8192;
const SECTOR: usize = SECTOR_LEN as usize;
const HEADER: usize = HEADER_LEN as usize;

fn form() -> Form {
    let place = Place::of(b"pg_xact/0000").unwrap();
    Form { suite: Suite::Aes256Xts, layout: Layout::InPlace, solid: true, place }
}

#[test]
fn zeroed_sectors_are_damage() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &form(), &keys);
    file.write(&storage, &pattern(4 * BLOCK, 1), 0).unwrap();
    let wiped = HEADER + BLOCK + 3 * SECTOR;
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
    }
    // One cell of zeros at the end of a sector is damage, too: PostgreSQL's status bits fit in
    // less.
    let mut file = Handle::open(&storage, &keys);
    let end = HEADER + 2 * BLOCK + SECTOR;
    storage.bytes()[end - 16..end].fill(0);
    assert!(file.read(&storage, 2 * BLOCK as u64, BLOCK).is_err());
    // A page of zeros is damage as well. A write of a part of it fails, instead of taking zeros for
    // the rest of the page.
    storage.bytes()[HEADER + 3 * BLOCK..].fill(0);
    assert!(file.read(&storage, 3 * BLOCK as u64, BLOCK).is_err());
    assert!(file.write(&storage, b"x", 3 * BLOCK as u64 + 7).is_err());
    file.write(&storage, &pattern(BLOCK, 2), 3 * BLOCK as u64).unwrap();
    assert!(file.read(&storage, 3 * BLOCK as u64, BLOCK).unwrap() == pattern(BLOCK, 2));
}

#[test]
fn zeros_and_gaps_are_sealed() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &form(), &keys);
    file.write(&storage, &[0; 2 * BLOCK], 0).unwrap();
    file.write(&storage, &pattern(BLOCK, 1), 5 * BLOCK as u64).unwrap();
    file.set_len(&storage, 7 * BLOCK as u64 + 77).unwrap();
    let bytes = storage.bytes().clone();
    for (index, cell) in bytes[HEADER..HEADER + 7 * BLOCK + 64].chunks(16).enumerate() {
        assert!(cell.iter().any(|byte| *byte != 0), "cell {index}");
    }
    let all = Handle::open(&storage, &keys).all(&storage).unwrap();
    assert_eq!(all.len(), 7 * BLOCK + 77);
    assert!(all[..5 * BLOCK].iter().chain(&all[6 * BLOCK..]).all(|byte| *byte == 0));
    assert!(all[5 * BLOCK..6 * BLOCK] == pattern(BLOCK, 1));
}

#[test]
fn a_full_disk_in_a_gap_leaves_the_file_as_it_was() {
    let keys = keys();
    for odd in [0, 5] {
        let storage = FaultStorage::new(MemStorage::default());
        let mut file = Handle::create_as(&storage, &form(), &keys);
        file.write(&storage, &pattern(BLOCK + odd, 1), 0).unwrap();
        for write in 1..6 {
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
    /// After a power cut and the filling of holes, each sector holds the synced content or a
    /// content that was written later, with zeros for a sector that was never written; nothing is
    /// damage.
    #[test]
    fn what_a_power_cut_left_is_filled(
        writes in proptest::collection::vec(write(), 1..10),
        seed in 0_u64..1 << 40,
    ) {
        let (keys, storage) = (keys(), CrashStorage::default());
        let mut file = Handle::create_as(&storage, &form(), &keys);
        pgseal_core::storage::Storage::sync(&storage).unwrap();
        // For each sector, every content that it has had since the last sync.
        let mut versions: Vec<Vec<Vec<u8>>> = Vec::new();
        for (number, Write { block, blocks, synced }) in writes.iter().enumerate() {
            let data = pattern(blocks * BLOCK, number as u32 + 1);
            file.write(&storage, &data, (block * BLOCK) as u64).unwrap();
            let first = block * BLOCK / SECTOR;
            let end = first + data.len() / SECTOR;
            if versions.len() < end {
                versions.resize(end, vec![vec![0; SECTOR]]);
            }
            for (sector, data) in versions[first..end].iter_mut().zip(data.chunks(SECTOR)) {
                sector.push(data.to_vec());
            }
            if *synced {
                pgseal_core::storage::Storage::sync(&storage).unwrap();
                for sector in &mut versions {
                    sector.drain(..sector.len() - 1);
                }
            }
        }
        for seed in seed..seed + 8 {
            let disk = storage.crash_by_seed(seed);
            let mut after = Handle::open(&disk, &keys);
            after.file.fill_holes(&disk, &mut after.scratch).unwrap();
            prop_assert_eq!(after.file.fill_holes(&disk, &mut after.scratch).unwrap(), 0);
            let all = Handle::open(&disk, &keys).all(&disk).unwrap();
            for (index, got) in all.chunks(SECTOR).enumerate() {
                prop_assert!(versions[index].iter().any(|version| version == got), "sector {index}");
            }
        }
    }
}
