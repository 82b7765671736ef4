//! The body of the fuzz target for column values. `crates/pgseal-column/tests/fuzz_smoke.rs` runs
//! it over pseudo-random and mutated inputs on a stable toolchain.

#![allow(clippy::unwrap_used)]

use pgseal_column::header::{Header, Mode};
use pgseal_column::{ColumnKey, Domain, Kek, NumberCode, RawKey, RawMode, TypeCode};

/// The key of all inputs.
pub fn key() -> ColumnKey {
    ColumnKey::new(&[7; 32], Domain(5), 1).unwrap()
}

/// The KEK of all inputs.
pub fn kek() -> Kek {
    Kek::new(&[8; 32]).unwrap()
}

/// Parses any bytes as a sealed value, a wrapped key and a raw value: a result or an error, never a
/// panic. If a deterministic value opens, sealing the plain value gives the same bytes. Any value
/// can be sealed and opened again.
pub fn column(data: &[u8]) {
    let (key, code) = (key(), TypeCode::new(7).unwrap());
    let short = NumberCode::new(2).unwrap();
    let mut plain = vec![0; data.len()];
    let mut again = vec![0; data.len() + 40];
    for mode in [Mode::Deterministic, Mode::Randomised] {
        if let Ok(len) = key.open(mode, code, data, &mut plain) {
            let (header, _) = Header::parse(data).unwrap();
            assert_eq!((header.mode, header.key_version), (mode, 1));
            let sealed = key.seal(mode, code, &plain[..len], &mut again).unwrap();
            assert!(sealed == data.len() && (mode == Mode::Randomised || again[..sealed] == *data));
        }
    }
    // As a plain value: it comes back.
    for mode in [Mode::Deterministic, Mode::Randomised] {
        let len = key.seal(mode, code, data, &mut again).unwrap();
        assert_eq!(key.open(mode, code, &again[..len], &mut plain), Ok(data.len()));
        assert_eq!(plain, data);
    }
    let _ = kek().unwrap(Domain(5), 1, data);
    let number = data.iter().fold(0_u64, |x, byte| x.rotate_left(8) ^ u64::from(*byte));
    assert_eq!(key.decrypt64(short, key.encrypt64(short, number)), number);
    assert_eq!(key.encrypt64(short, key.decrypt64(short, number)), number);
    let (key_len, mode) = data.split_first().map_or((0, 0), |(first, _)| (first / 4, first % 4));
    let raw_key = &data[..usize::from(key_len).min(data.len())];
    let raw = RawKey::new(raw_key, RawMode::from_number(i32::from(mode)).unwrap()).unwrap();
    if let Ok(len) = raw.decrypt(raw_key, data, &mut plain) {
        // There is one padding for each plain value.
        let sealed = raw.encrypt(raw_key, &plain[..len], &mut again).unwrap();
        assert_eq!(again[..sealed], *data);
    }
}
