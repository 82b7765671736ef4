//! Authenticated values: opening gives the whole plain value, or an error and nothing of the value.

#![allow(clippy::unwrap_used)]

use pgseal_column::header::{Header, MAX_PLAIN_BYTES, Mode};
use pgseal_column::{ColumnError, ColumnKey, Domain, NumberCode, TypeCode};
use proptest::prelude::*;

const BOTH: [Mode; 2] = [Mode::Deterministic, Mode::Randomised];

fn key(fill: u8, domain: u64, version: u32) -> ColumnKey {
    ColumnKey::new(&[fill; 32], Domain(domain), version).unwrap()
}

fn text() -> TypeCode {
    TypeCode::new(7).unwrap()
}

fn seal(key: &ColumnKey, mode: Mode, plain: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; key.sealed_len(mode, plain.len())];
    let len = key.seal(mode, text(), plain, &mut sealed).unwrap();
    assert_eq!(len, sealed.len());
    sealed
}

fn open(
    key: &ColumnKey,
    mode: Mode,
    code: TypeCode,
    sealed: &[u8],
) -> Result<Vec<u8>, ColumnError> {
    let mut plain = vec![0xAA; sealed.len()];
    match key.open(mode, code, sealed, &mut plain) {
        Ok(len) => {
            plain.truncate(len);
            Ok(plain)
        }
        Err(error) => {
            // The buffer contains nothing of the value: it is untouched or zeroed.
            assert!(plain.iter().all(|byte| matches!(byte, 0 | 0xAA)), "{plain:?}");
            Err(error)
        }
    }
}

proptest! {
    #[test]
    fn any_value_comes_back_and_no_other(
        plain in proptest::collection::vec(any::<u8>(), 0..300),
        other in proptest::collection::vec(any::<u8>(), 0..300),
        domain in any::<u64>(),
        version in prop_oneof![1..40_u32, any::<u32>().prop_map(|x| x.max(1))],
        bit in any::<proptest::sample::Index>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let key = key(1, domain, version);
        for mode in BOTH {
            let sealed = seal(&key, mode, &plain);
            prop_assert_eq!(open(&key, mode, text(), &sealed).unwrap(), plain.clone());
            let header = if version < 31 { 1 } else { 5 };
            prop_assert_eq!(sealed.len(), plain.len() + header + mode.overhead_bytes());
            let (parsed, _) = Header::parse(&sealed).unwrap();
            prop_assert_eq!(parsed, Header { mode, key_version: version });

            let mut changed = sealed.clone();
            let at = bit.index(8 * changed.len());
            changed[at / 8] ^= 1 << (at % 8);
            prop_assert!(open(&key, mode, text(), &changed).is_err());
            prop_assert!(open(&key, mode, text(), &sealed[..cut.index(sealed.len())]).is_err());
            let longer = [&sealed[..], &[0]].concat();
            prop_assert!(open(&key, mode, text(), &longer).is_err());

            // Only the deterministic mode gives equal bytes for equal values.
            let again = seal(&key, mode, &plain);
            prop_assert_eq!(again == sealed, mode == Mode::Deterministic);
            if plain != other {
                prop_assert_ne!(seal(&key, mode, &other), sealed);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let key = key(1, 5, 1);
        for mode in BOTH {
            prop_assert!(open(&key, mode, text(), &bytes).is_err());
        }
    }
}

#[test]
fn a_value_belongs_to_key_domain_version_and_type() {
    for mode in BOTH {
        for plain in [&b""[..], b"x", b"sixteen bytes...", b"more than sixteen bytes of text"] {
            let sealed = seal(&key(1, 5, 1), mode, plain);
            let not = Err(ColumnError::NotAuthentic);
            assert_eq!(open(&key(2, 5, 1), mode, text(), &sealed), not, "key");
            assert_eq!(open(&key(1, 6, 1), mode, text(), &sealed), not, "domain");
            let other = Err(ColumnError::OtherVersion);
            assert_eq!(open(&key(1, 5, 2), mode, text(), &sealed), other);
            let bytea = TypeCode::new(8).unwrap();
            assert_eq!(open(&key(1, 5, 1), mode, bytea, &sealed), not, "type");
            // Long type codes, some of which contain the byte of the short code.
            for code in [64, 7 << 8, 7 << 24, 65_536 + 7, u32::MAX] {
                let code = TypeCode::new(code).unwrap();
                assert_eq!(open(&key(1, 5, 1), mode, code, &sealed), not, "{code:?}");
                let mut long = vec![0; sealed.len()];
                key(1, 5, 1).seal(mode, code, plain, &mut long).unwrap();
                assert_eq!(open(&key(1, 5, 1), mode, code, &long).unwrap(), plain);
                assert_eq!(open(&key(1, 5, 1), mode, text(), &long), not, "{code:?}");
            }
            let mode = BOTH[usize::from(mode == Mode::Deterministic)];
            assert_eq!(open(&key(1, 5, 1), mode, text(), &sealed).unwrap_err(), {
                // A value may be too short for the other mode.
                ColumnError::OtherMode
            });
            // Replace the header by the one that the reader expects.
            let mut moved = sealed.clone();
            moved[0] = (moved[0] & 0xE0) | 2;
            let refused = open(&key(1, 5, 2), sealed_mode(&sealed), text(), &moved);
            assert_eq!(refused, Err(ColumnError::NotAuthentic));
        }
    }
}

fn sealed_mode(sealed: &[u8]) -> Mode {
    Header::parse(sealed).unwrap().0.mode
}

/// The results of FF1 also depend on key, domain, type and version.
#[test]
fn numbers_belong_to_key_domain_version_and_type() {
    let (int4, int8) = (NumberCode::new(1).unwrap(), NumberCode::new(2).unwrap());
    let sealed = key(1, 5, 1).encrypt64(int8, 42);
    assert_eq!(key(1, 5, 1).decrypt64(int8, sealed), 42);
    let others = [
        key(2, 5, 1).encrypt64(int8, 42),
        key(1, 6, 1).encrypt64(int8, 42),
        key(1, 5, 2).encrypt64(int8, 42),
        key(1, 5, 1).encrypt64(int4, 42),
        key(1, 5, 1).encrypt60(int8, 42).unwrap(),
    ];
    assert!(others.iter().all(|other| *other != sealed), "{sealed} {others:?}");
    assert_eq!(key(1, 5, 1).decrypt60(int8, others[4]), Ok(42));
    assert_eq!(key(1, 5, 1).decrypt60(int8, 1 << 60), Err(ColumnError::Domain));
    let narrow = key(1, 5, 1).encrypt32(int4, 42);
    assert_eq!(key(1, 5, 1).decrypt32(int4, narrow), 42);
}

#[test]
fn headers() {
    let parse = |bytes: &[u8]| Header::parse(&[bytes, &[0; 40]].concat()).map(|(header, _)| header);
    let det = |key_version| Ok(Header { mode: Mode::Deterministic, key_version });
    assert_eq!(parse(&[0x21]), det(1));
    assert_eq!(parse(&[0x3E]), det(30));
    assert_eq!(parse(&[0x3F, 31, 0, 0, 0]), det(31));
    assert_eq!(parse(&[0x3F, 0xFF, 0xFF, 0xFF, 0xFF]), det(u32::MAX));
    assert_eq!(parse(&[0x41]), Ok(Header { mode: Mode::Randomised, key_version: 1 }));
    for bad in [&[0x20][..], &[0x3F, 30, 0, 0, 0], &[0x3F, 0, 0, 0, 0], &[0x01], &[0x61], &[0xE1]] {
        assert_eq!(parse(bad), Err(ColumnError::NotSealed), "{bad:?}");
    }
    for (first, shortest) in [(0x21, 17), (0x41, 29), (0x3F, 21), (0x5F, 33)] {
        let mut bytes = vec![first; shortest];
        assert!(Header::parse(&bytes).is_ok(), "{first:x}");
        bytes.pop();
        assert_eq!(Header::parse(&bytes), Err(ColumnError::NotSealed), "{first:x}");
    }
    assert_eq!(Header::parse(&[]), Err(ColumnError::NotSealed));
    let mut largest = vec![0x21; MAX_PLAIN_BYTES + 17];
    assert!(Header::parse(&largest).is_ok());
    largest.push(0);
    assert_eq!(Header::parse(&largest), Err(ColumnError::NotSealed));
}

#[test]
fn arguments_are_checked() {
    for len in [0, 16, 31, 65] {
        let made = ColumnKey::new(&vec![1; len], Domain(1), 1);
        assert!(matches!(made, Err(ColumnError::KeyLength)), "{len}");
    }
    assert!(matches!(ColumnKey::new(&[1; 32], Domain(1), 0), Err(ColumnError::BadArgument)));
    assert_eq!(TypeCode::new(0), Err(ColumnError::BadArgument));
    assert_eq!(TypeCode::new(u32::MAX).unwrap().get(), u32::MAX);
    for bad in [0, 64, 257] {
        assert_eq!(NumberCode::new(bad), Err(ColumnError::BadArgument));
    }
    assert!(NumberCode::new(1).is_ok() && NumberCode::new(63).is_ok());
    let key = key(1, 1, 1);
    for mode in BOTH {
        let len = key.sealed_len(mode, 5);
        let mut sealed = vec![0; len];
        let small = Err(ColumnError::BufferTooSmall);
        assert_eq!(key.seal(mode, text(), b"hello", &mut sealed[..len - 1]), small);
        assert_eq!(key.seal(mode, text(), b"hello", &mut sealed), Ok(len));
        assert_eq!(key.open(mode, text(), &sealed, &mut [0; 4]), small);
        assert_eq!(key.open(mode, text(), &sealed, &mut [0; 5]), Ok(5));
    }
}

#[test]
fn debug_output_contains_no_key() {
    let key = key(0x37, 5, 1);
    assert_eq!(format!("{key:?}"), "ColumnKey of domain 5 version 1");
    let raw = pgseal_column::RawKey::new(&[0x37; 32], pgseal_column::RawMode::Cbc).unwrap();
    let shown = format!("{raw:?} {:?}", pgseal_column::Kek::new(&[0x37; 32]).unwrap());
    assert_eq!(shown, "RawKey { mode: Cbc, encrypt: AES key, decrypt: AesInverse(AES key) } Kek");
}
