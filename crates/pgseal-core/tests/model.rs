//! Compares a sealed file with a plain one in memory over random sequences of operations, for every
//! suite in every layout that carries it.

#![allow(clippy::unwrap_used, clippy::panic)]

use pgseal_core::storage::Accelerator;
use pgseal_core::storage::accelerated::{Accelerated, Unaccelerated};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{FixedRandom, keys, same_sealed, suites};
use pgseal_core::verify::verify_file;
use pgseal_core::{
    Form, Generation, Layout, OnDamage, Opened, PlainLen, PlainOff, Scratch, SealedFile, Suite,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Write {
        off: u64,
        len: usize,
    },
    Read {
        off: u64,
        len: usize,
    },
    /// In parts of these lengths.
    ReadParts {
        off: u64,
        lens: Vec<usize>,
    },
    SetLen(u64),
    Reopen,
}

/// Offsets near the edges that matter: cells, sectors and what they hold, blocks, groups.
fn offset() -> impl Strategy<Value = u64> {
    let unit = prop_oneof![Just(1_u64), Just(16), Just(484), Just(512), Just(8192), Just(1 << 20)];
    (unit, 0_u64..6, -2_i64..3)
        .prop_map(|(unit, times, shift)| (unit * times).saturating_add_signed(shift).min(2_200_000))
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        1_usize..40,
        500_usize..530,
        8180_usize..8200,
        Just(8192),
        Just(3 * 8192),
        Just(150_000)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (offset(), length()).prop_map(|(off, len)| Op::Write { off, len }),
        3 => (offset(), length()).prop_map(|(off, len)| Op::Read { off, len }),
        1 => (offset(), prop::collection::vec(prop_oneof![length(), Just(0)], 2..6))
            .prop_map(|(off, lens)| Op::ReadParts { off, lens }),
        2 => offset().prop_map(Op::SetLen),
        1 => Just(Op::Reopen),
    ]
}

/// Checks that each read returns the bytes of a plain file that got the same operations.
fn check<S: Accelerator>(storage: &S, form: &Form, ops: &[Op]) {
    let Form { suite, layout, .. } = *form;
    let (keys, random, mut scratch) = (keys(), FixedRandom::default(), Scratch::new());
    let mut file = SealedFile::create(storage, form, &keys, Generation(1), &random).unwrap();
    let mut model: Vec<u8> = Vec::new();
    let mut seed = 1_u8;
    for op in ops {
        match *op {
            Op::Write { off, len } => {
                seed = seed.wrapping_add(37) | 1;
                let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(seed) | 1).collect();
                file.write_at(storage, &mut scratch, &bytes, PlainOff(off), &random).unwrap();
                let end = off as usize + len;
                if model.len() < end {
                    model.resize(end, 0);
                }
                model[off as usize..end].copy_from_slice(&bytes);
            }
            Op::Read { off, len } => {
                let mut buf = vec![0xEE; len];
                let got = file
                    .read_at(storage, &mut scratch, &mut buf, PlainOff(off), OnDamage::Fail)
                    .unwrap()
                    .len;
                let start = (off as usize).min(model.len());
                let want = &model[start..(start + len).min(model.len())];
                assert_eq!(&buf[..got], want, "{suite} {layout} read {off}+{len}");
            }
            Op::ReadParts { off, ref lens } => {
                let mut bufs: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xEE; *len]).collect();
                let mut parts: Vec<&mut [u8]> = bufs.iter_mut().map(Vec::as_mut_slice).collect();
                let got = file
                    .read_parts_at(storage, &mut scratch, &mut parts, PlainOff(off), OnDamage::Fail)
                    .unwrap()
                    .len;
                let all = bufs.concat();
                let start = (off as usize).min(model.len());
                let want = &model[start..(start + all.len()).min(model.len())];
                assert_eq!(&all[..got], want, "{suite} {layout} read {off}+{lens:?}");
            }
            Op::SetLen(len) => {
                file.set_len(storage, &mut scratch, PlainLen(len), &random).unwrap();
                model.resize(len as usize, 0);
            }
            Op::Reopen => {
                let Opened::Sealed(again) = SealedFile::open(storage, &keys).unwrap() else {
                    panic!("not sealed any more")
                };
                file = *again;
            }
        }
        assert_eq!(file.plain_len(storage).unwrap().0 as usize, model.len(), "{layout} {op:?}");
    }
    let mut all = vec![0; model.len() + 1];
    let got =
        file.read_at(storage, &mut scratch, &mut all, PlainOff(0), OnDamage::Fail).unwrap().len;
    assert!(all[..got] == model[..], "{suite} {layout}: contents differ");
    // Each page of WAL fits its entry, unless it is a hole.
    let report = verify_file(&mut file, storage, &mut scratch, &mut |_| {}).unwrap();
    assert!(report.unfitting.is_empty() && report.damaged.is_empty(), "{ops:?}");
    let lost = file.fill_lost_sectors(storage, &mut scratch, &random, &|_| true).unwrap();
    assert_eq!(lost, 0, "{ops:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn behaves_like_a_plain_file(
        ops in proptest::collection::vec(op(), 1..24),
    ) {
        for suite in suites() {
            for layout in Layout::ALL.into_iter().filter(|layout| layout.carries(suite)) {
                let form = Form::anywhere(suite, layout);
                let plain = MemStorage::default();
                check(&plain, &form, &ops);
                let accelerated = Accelerated::new(MemStorage::default());
                check(&accelerated, &form, &ops);
                prop_assert!(same_sealed(&plain.bytes(), &accelerated.bytes()), "{form:?}");
                let unaccelerated = Unaccelerated(MemStorage::default());
                check(&unaccelerated, &form, &ops);
                prop_assert!(same_sealed(&plain.bytes(), &unaccelerated.bytes()), "{form:?}");
            }
        }
    }
}

/// Checks that the comparison above does use the accelerator in the layouts that have a use for it.
#[test]
fn an_accelerator_is_used() {
    let ops = [
        Op::Write { off: 0, len: 3 * 8192 },
        Op::Reopen,
        Op::Read { off: 8192, len: 8192 },
        Op::Read { off: 0, len: 150_000 },
    ];
    for (layout, is_used) in [
        (Layout::Paged, true),
        (Layout::Stream, false),
        (Layout::InPlace, true),
        (Layout::Sectored, false),
        (Layout::Wal, true),
    ] {
        let xts = matches!(layout, Layout::InPlace | Layout::Wal);
        let suite = if xts { Suite::Aes256Xts } else { Suite::Aes256Gcm };
        let storage = Accelerated::new(MemStorage::default());
        check(&storage, &Form::anywhere(suite, layout), &ops);
        assert_eq!(storage.used() > 0, is_used, "{layout}");
    }
}
