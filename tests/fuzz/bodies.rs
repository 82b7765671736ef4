//! What the fuzz targets do with their input; `crates/pgseal-core/tests/fuzz_smoke.rs` runs the
//! same over pseudo-random and mutated inputs on a stable toolchain.

#![allow(clippy::unwrap_used, clippy::panic)]

use pgseal_core::header::{self, Kind};
use pgseal_core::random::LibraryRandom;
use pgseal_core::storage::Accelerator;
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{FixedRandom, keys, same_sealed};
use pgseal_core::{
    Form, Generation, Layout, OnDamage, Opened, PlainLen, PlainOff, Scratch, SealError, SealedFile,
    Suite,
};

const MAX_LEN: u64 = 1_200_000;

/// Any bytes as the start of a file: a verdict, never a panic; nothing that no key made is
/// accepted.
pub fn header(data: &[u8]) {
    if let Ok(Kind::Sealed(found)) = header::classify(data) {
        assert!(data.starts_with(&header::MAGIC) && found.layout.carries(found.suite));
        let _ = SealedFile::from_header(data, found, &keys());
    }
}

/// Any bytes behind a good header, whose suite and layout the first byte chooses: reads end, with
/// data or damage; GCM accepts nothing but holes.
pub fn block(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let (suite, layout) = combination(*choice);
    let (keys, random, storage) = (keys(), LibraryRandom::new(), MemStorage::default());
    let _ =
        SealedFile::create(&storage, &Form::anywhere(suite, layout), &keys, Generation(1), &random)
            .unwrap();
    storage.bytes().extend_from_slice(body);
    let Opened::Sealed(mut file) = SealedFile::open(&storage, &keys).unwrap() else {
        panic!("not sealed")
    };
    let mut scratch = Scratch::new();
    let mut plain = vec![0; file.plain_len(&storage).unwrap().0 as usize + 10];
    for on_damage in [OnDamage::Fail, OnDamage::InvalidPage] {
        let result = file.read_at(&storage, &mut scratch, &mut plain, PlainOff(0), on_damage);
        match result {
            Ok(outcome) => {
                let read = &plain[..outcome.len];
                let holes = outcome.damaged_blocks == 0 && read.iter().all(|byte| *byte == 0);
                assert!(!suite.authenticates() || holes || outcome.damaged_blocks > 0);
            }
            Err(SealError::BlockDamaged(_)) => assert_eq!(on_damage, OnDamage::Fail),
            Err(error) => panic!("{error}"),
        }
    }
    let _ = file.write_at(&storage, &mut scratch, b"more", PlainOff(5000), &random);
    let _ = file.set_len(&storage, &mut scratch, PlainLen(9000), &random);
}

/// Operations on a file against the same on a vector: 8 bytes each, the first byte of all chooses
/// suite and layout. The storage has an accelerator, or none; the sealed bytes are the same.
pub fn file_ops(data: &[u8]) {
    let Some((choice, ops)) = data.split_first() else { return };
    let (suite, layout) = combination(*choice);
    let form = Form::anywhere(suite, layout);
    let (plain, accelerated) = (MemStorage::default(), Accelerated::<MemStorage>::default());
    operate(&plain, &form, ops);
    operate(&accelerated, &form, ops);
    assert!(same_sealed(&plain.bytes(), &accelerated.bytes()), "{form:?}: sealed bytes differ");
}

fn operate<S: Accelerator>(storage: &S, form: &Form, ops: &[u8]) {
    let (keys, random) = (keys(), FixedRandom::default());
    let mut file = SealedFile::create(storage, form, &keys, Generation(1), &random).unwrap();
    let (mut scratch, mut model) = (Scratch::new(), Vec::new());
    for op in ops.chunks_exact(8).take(24) {
        let off = u64::from(u32::from_le_bytes([op[1], op[2], op[3], 0])) % MAX_LEN;
        let len = usize::from(u16::from_le_bytes([op[4], op[5]])) + 1;
        match op[0] % 4 {
            0 | 1 => {
                let bytes: Vec<u8> = (0..len).map(|at| op[6].wrapping_add(at as u8) | 1).collect();
                file.write_at(storage, &mut scratch, &bytes, PlainOff(off), &random).unwrap();
                let off = off as usize;
                model.resize(model.len().max(off + len), 0);
                model[off..off + len].copy_from_slice(&bytes);
            }
            2 => {
                file.set_len(storage, &mut scratch, PlainLen(off), &random).unwrap();
                model.resize(off as usize, 0);
            }
            _ => {
                let Opened::Sealed(again) = SealedFile::open(storage, &keys).unwrap() else {
                    panic!("not sealed any more")
                };
                file = *again;
            }
        }
        assert_eq!(file.plain_len(storage).unwrap().0 as usize, model.len());
    }
    let mut all = vec![0; model.len() + 1];
    let outcome =
        file.read_at(storage, &mut scratch, &mut all, PlainOff(0), OnDamage::Fail).unwrap();
    assert!(all[..outcome.len] == model[..], "{form:?}: contents differ");
}

fn combination(choice: u8) -> (Suite, Layout) {
    let all = [
        (Suite::Aes256Gcm, Layout::Paged),
        (Suite::Aes128Gcm, Layout::Stream),
        (Suite::Aes256Xts, Layout::InPlace),
        (Suite::Aes128Xts, Layout::InPlace),
        (Suite::Aes192Ctr, Layout::Paged),
        (Suite::Aes256Gcm, Layout::Sectored),
        (Suite::Aes256Xts, Layout::Wal),
        (Suite::Aes128Xts, Layout::Wal),
        (Suite::Aegis256X2, Layout::Paged),
    ];
    match all[usize::from(choice) % all.len()] {
        // A FIPS build has 256 bits only.
        (Suite::Aes128Xts, layout) if Suite::Aes128Xts.check_approved().is_err() => {
            (Suite::Aes256Xts, layout)
        }
        (Suite::Aegis256X2, layout) if Suite::Aegis256X2.check_approved().is_err() => {
            (Suite::Aes256Gcm, layout)
        }
        combination => combination,
    }
}
