//! The content of a sealed file after a power cut, for every suite in every layout
//! (`spec/media.md`).
//!
//! CTR promises nothing for a page that was being written when the power went off: it has no tag
//! that would show the tear, which is why it needs full-page images. So for CTR only untouched
//! blocks are checked.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::{Handle, combinations, pattern};
use pgseal_core::geometry::{BLOCK_LEN, CELL_LEN, SECTOR_DATA_LEN, SECTOR_LEN};
use pgseal_core::storage::accelerated::{Accelerated, Unaccelerated};
use pgseal_core::storage::crash::CrashStorage;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage as _};
use pgseal_core::testing::{FixedRandom, keys, same_sealed};
use pgseal_core::{
    Form, Generation, Layout, Opened, PlainLen, PlainOff, Scratch, SealError, SealedFile, Suite,
};
use proptest::prelude::*;

const BLOCK: usize = BLOCK_LEN as usize;

#[derive(Clone, Debug)]
enum Op {
    Write { off: usize, len: usize },
    SetLen(usize),
    Sync,
}

fn offset() -> impl Strategy<Value = usize> {
    let unit = prop_oneof![
        Just(1_i64),
        Just(16),
        Just(484),
        Just(512),
        Just(8192),
        Just(8192),
        Just(1 << 20)
    ];
    (unit, 0_i64..5, -2_i64..3)
        .prop_map(|(unit, times, shift)| (unit * times + shift).clamp(0, 1_100_000) as usize)
}

fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![1_usize..40, 500_usize..530, Just(8192), Just(24_576), Just(30_000)];
    prop_oneof![
        5 => (offset(), length).prop_map(|(off, len)| Op::Write { off, len }),
        2 => offset().prop_map(Op::SetLen),
        1 => Just(Op::Sync),
    ]
}

/// The plain file, and for each block touched since the last sync every content that the block has
/// had since then.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    touched: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Model {
    fn block(bytes: &[u8], block: usize) -> &[u8] {
        let start = (block * BLOCK).min(bytes.len());
        &bytes[start..(start + BLOCK).min(bytes.len())]
    }

    fn change(&mut self, from: usize, to: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let blocks = from / BLOCK..to.div_ceil(BLOCK).max(from / BLOCK + 1);
        for block in blocks.clone() {
            let synced = Model::block(&self.synced, block).to_vec();
            self.touched.entry(block).or_insert_with(|| vec![synced]);
        }
        change(&mut self.bytes);
        for block in blocks {
            let now = Model::block(&self.bytes, block).to_vec();
            self.touched.entry(block).or_default().push(now);
        }
    }

    fn write(&mut self, off: usize, data: &[u8]) {
        let had = self.bytes.len();
        if had < off {
            self.set_len(off);
        }
        self.change(off, off + data.len(), |bytes| {
            bytes.resize(bytes.len().max(off + data.len()), 0);
            bytes[off..off + data.len()].copy_from_slice(data);
        });
    }

    fn set_len(&mut self, len: usize) {
        let had = self.bytes.len();
        if had != len {
            self.change(had.min(len), had.max(len), |bytes| bytes.resize(len, 0));
        }
    }

    fn sync(&mut self) {
        self.synced = self.bytes.clone();
        self.touched.clear();
    }
}

/// Whether each piece of `sector` bytes of `read` begins with whole cells of the same piece of some
/// version and holds zeros behind them.
fn sectors_fit(read: &[u8], versions: &[Vec<u8>], sector: usize, cell: usize) -> bool {
    read.chunks(sector).enumerate().all(|(index, got)| {
        versions.iter().any(|version| {
            let mut want = version.get(index * sector..).unwrap_or_default().to_vec();
            want.truncate(sector);
            want.resize(got.len(), 0);
            let same = got.iter().zip(&want).take_while(|(a, b)| a == b).count();
            let cells = same - same % cell;
            same == got.len() || got[cells..].iter().all(|byte| *byte == 0)
        })
    })
}

fn check_block(
    suite: Suite,
    layout: Layout,
    read: &Result<Vec<u8>, SealError>,
    versions: Option<&Vec<Vec<u8>>>,
    synced: &[u8],
) -> Result<(), String> {
    let Some(versions) = versions else {
        return match read {
            Ok(bytes) if bytes == synced => Ok(()),
            Ok(bytes) => {
                Err(format!("untouched block changed ({} of {} bytes)", bytes.len(), synced.len()))
            }
            Err(error) => Err(format!("untouched block: {error}")),
        };
    };
    match read {
        Err(SealError::BlockDamaged(_)) if matches!(layout, Layout::Paged | Layout::Stream) => {
            Ok(())
        }
        Err(error) => Err(format!("touched block: {error}")),
        Ok(_) if !suite.authenticates() && layout == Layout::Paged => Ok(()),
        Ok(bytes) if matches!(layout, Layout::InPlace | Layout::Sectored | Layout::Wal) => {
            let fits = match layout {
                Layout::InPlace | Layout::Wal => {
                    sectors_fit(bytes, versions, SECTOR_LEN as usize, CELL_LEN as usize)
                }
                _ => sectors_fit(bytes, versions, SECTOR_DATA_LEN as usize, 1),
            };
            if fits { Ok(()) } else { Err("a sector is neither old nor new nor zeros".to_owned()) }
        }
        Ok(bytes) => {
            // Only a page can be a hole. A file that ends before the block is shorter, not wrong.
            let hole = layout == Layout::Paged && bytes.iter().all(|byte| *byte == 0);
            if bytes.is_empty() || hole || versions.contains(bytes) {
                Ok(())
            } else {
                Err(format!("silently wrong: {} bytes that nobody wrote", bytes.len()))
            }
        }
    }
}

/// Runs the operations. Returns the plain file as it must be, and whether it was ever synced.
fn run<S: Accelerator>(storage: &S, suite: Suite, layout: Layout, ops: &[Op]) -> (Model, bool) {
    let (form, random) = (Form::anywhere(suite, layout), FixedRandom::default());
    let mut file = SealedFile::create(storage, &form, &keys(), Generation(1), &random).unwrap();
    let (mut scratch, mut model, mut ever_synced) = (Scratch::new(), Model::default(), false);
    for (number, op) in ops.iter().enumerate() {
        match *op {
            Op::Write { off, len } => {
                let data = pattern(len, number as u32 + 1);
                file.write_at(storage, &mut scratch, &data, PlainOff(off as u64), &random).unwrap();
                model.write(off, &data);
            }
            Op::SetLen(len) => {
                file.set_len(storage, &mut scratch, PlainLen(len as u64), &random).unwrap();
                model.set_len(len);
            }
            Op::Sync => {
                storage.sync().unwrap();
                model.sync();
                ever_synced = true;
            }
        }
    }
    (model, ever_synced)
}

fn check(suite: Suite, layout: Layout, ops: &[Op], seeds: core::ops::Range<u64>) {
    let (keys, storage) = (keys(), CrashStorage::default());
    let (model, ever_synced) = run(&storage, suite, layout, ops);
    let accelerated = Accelerated::new(CrashStorage::default());
    run(&accelerated, suite, layout, ops);
    let unaccelerated = Unaccelerated(CrashStorage::default());
    run(&unaccelerated, suite, layout, ops);
    for seed in seeds {
        let context = format!("{suite} {layout} seed {seed} {ops:?}");
        let disk = storage.crash_by_seed(seed);
        assert!(
            same_sealed(&disk.bytes(), &accelerated.crash_by_seed(seed).bytes()),
            "{context}: accelerated"
        );
        assert!(
            same_sealed(&disk.bytes(), &unaccelerated.crash_by_seed(seed).bytes()),
            "{context}: unaccelerated"
        );
        let opened = SealedFile::open(&disk, &keys).unwrap_or_else(|e| panic!("{context}: {e}"));
        let mut after = match opened {
            Opened::NoHeader { .. } if !ever_synced => continue,
            Opened::Sealed(_) => Handle::open(&disk, &keys),
            other => panic!("{context}: {other:?}"),
        };
        // As the postmaster does before recovery.
        let random = FixedRandom::default();
        after.file.fill_lost_sectors(&disk, &mut after.scratch, &random, &|_| true).unwrap();
        let len = after.len(&disk) as usize;
        for block in 0..len.max(model.synced.len()).div_ceil(BLOCK) {
            let read = after.read(&disk, (block * BLOCK) as u64, BLOCK);
            let synced = Model::block(&model.synced, block);
            let versions = model.touched.get(&block);
            if let Err(what) = check_block(suite, layout, &read, versions, synced) {
                panic!("{context}: block {block}: {what}");
            }
        }
        // Pages of WAL before the first that was touched since the sync, or is a hole, must open.
        if layout == Layout::Wal {
            let is_sure = |block: &usize| {
                let synced = Model::block(&model.synced, *block);
                synced.iter().any(|byte| *byte != 0) && !model.touched.contains_key(block)
            };
            let sure = (0..).take_while(is_sure).count();
            after.file.set_must_open(PlainOff(sure as u64 * BLOCK_LEN));
            let read = after.read(&disk, 0, sure * BLOCK);
            let read = read.unwrap_or_else(|e| panic!("{context}: {sure} sure pages: {e}"));
            let synced = &model.synced[..model.synced.len().min(sure * BLOCK)];
            assert!(read == synced, "{context}: {sure} sure pages");
            after.file.set_must_open(PlainOff(0));
        }
        // The file stays usable: cut to whole blocks and lengthened again, the new part reads as
        // zeros.
        let kept = (len / BLOCK * BLOCK) as u64;
        after.set_len(&disk, kept).unwrap_or_else(|e| panic!("{context}: cut: {e}"));
        after.set_len(&disk, kept + 3 * BLOCK_LEN).unwrap();
        let grown = after.read(&disk, kept, 3 * BLOCK).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(grown.len() == 3 * BLOCK && grown.iter().all(|byte| *byte == 0), "{context}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_power_cut_leaves_old_new_or_damage(
        ops in proptest::collection::vec(op(), 1..12),
        seed in 0_u64..1 << 40,
    ) {
        for (suite, layout) in combinations() {
            check(suite, layout, &ops, seed..seed + 6);
        }
    }
}

/// Lengthening without a truncation first: tags that an earlier truncation left behind the end must
/// not show up as damage.
#[test]
fn stale_tags_behind_the_end_do_not_spoil_growth() {
    let keys = keys();
    for (suite, layout) in combinations() {
        let storage = CrashStorage::default();
        let mut handle = Handle::create(&storage, suite, layout, &keys);
        handle.write(&storage, &pattern(5 * BLOCK, 1), 0).unwrap();
        storage.sync().unwrap();
        handle.set_len(&storage, 2 * BLOCK_LEN).unwrap();
        // The truncation reached the disk, but the clearing of the tags did not.
        let disk =
            storage.crash(|part| matches!(part, pgseal_core::storage::crash::Part::SetLen { .. }));
        assert_eq!(Handle::open(&disk, &keys).len(&disk), 2 * BLOCK_LEN);
        // Lengthen with `set_len`, by appending zeros as PostgreSQL does, and by a gap.
        for by in ["length", "zeros", "gap"] {
            let disk = MemStorage::with(disk.bytes().clone());
            let mut after = Handle::open(&disk, &keys);
            match by {
                "length" => after.set_len(&disk, 4 * BLOCK_LEN).unwrap(),
                "zeros" => after.write(&disk, &[0; 2 * BLOCK], 2 * BLOCK_LEN).unwrap(),
                _ => after.write(&disk, &pattern(10, 2), 4 * BLOCK_LEN).unwrap(),
            }
            for mut handle in [after, Handle::open(&disk, &keys)] {
                let all =
                    handle.all(&disk).unwrap_or_else(|e| panic!("{suite} {layout} {by}: {e}"));
                assert!(all[2 * BLOCK..4 * BLOCK].iter().all(|byte| *byte == 0), "{suite} {by}");
            }
        }
    }
}
