//! Compares raw AES with results of pgcrypto 1.3 (PostgreSQL 15, OpenSSL 3.0).

#![allow(clippy::unwrap_used)]

mod common;

use common::{hex, to_hex};
use pgseal_column::{ColumnError, RawKey, RawMode};
use proptest::prelude::*;

/// `encrypt_iv(plain, key, iv, cipher)`; without IV `encrypt(plain, key, cipher)`.
const PGCRYPTO: [(&str, &str, &str, &str, &str); 19] = [
    ("hello", "abcde", "", "aes", "0ce74a52dd982363b1bba19c8b67cca4"),
    (
        "0123456789abcdef",
        "0123456789abcdef",
        "",
        "aes",
        "72727e881edcfd0100a718687909b565b2b504309a2e16467a1d16c4c6785880",
    ),
    (
        "0123456789abcdefg",
        "0123456789abcdef0",
        "",
        "aes",
        "f8e398bee256e0e0f1983fe3a52858a0ae9d5fc3bf772941e0fac18d73194fdb",
    ),
    ("x", "0123456789abcdef01234567", "", "aes-cbc", "9cdabf59b587d3cb1b9ef0524acb8ac4"),
    ("x", "0123456789abcdef012345678", "", "aes", "adc31e5a8322202087ddccc7a57a65e6"),
    ("x", "0123456789abcdef0123456789abcdef", "", "aes", "936acaddaeb1820f9d7cc541924c0a53"),
    (
        "x",
        "0123456789abcdef0123456789abcdefGHIJKLMN",
        "",
        "aes",
        "936acaddaeb1820f9d7cc541924c0a53",
    ),
    ("x", "", "", "aes", "1dd733a04c633c194fdeacf97c59d237"),
    ("", "abcde", "", "aes", "38afd07aa58db68944af1a846f1e1169"),
    (
        "0123456789abcdef0123456789abcdefhello",
        "abcde",
        "",
        "aes-ecb",
        "a3d0aad2b55d5bbb8eb80ebb74de6a8ca3d0aad2b55d5bbb8eb80ebb74de6a8c0ce74a52dd982363b1bba19c8b67cca4",
    ),
    ("0123456789abcdef", "abcde", "", "aes-cbc/pad:none", "a3d0aad2b55d5bbb8eb80ebb74de6a8c"),
    ("", "abcde", "", "aes-cbc/pad:none", ""),
    ("0123456789abcdef", "abcde", "", "aes-ecb/pad:none", "a3d0aad2b55d5bbb8eb80ebb74de6a8c"),
    ("hello", "abcde", "initvector", "aes", "9a833fcb87a3373633f619f704d163b6"),
    ("hello", "abcde", "initvector0123456789", "aes", "ec0a039ba2c1e7dc0dfeccf04528dde8"),
    ("hello", "abcde", "initvector012345", "aes", "ec0a039ba2c1e7dc0dfeccf04528dde8"),
    ("hello", "abcde", "initvector012345", "aes-ecb", "0ce74a52dd982363b1bba19c8b67cca4"),
    ("hello", "abcde", "", "AES-CBC/PAD:PKCS", "0ce74a52dd982363b1bba19c8b67cca4"),
    ("hello", "abcde", "", "rijndael", "0ce74a52dd982363b1bba19c8b67cca4"),
];

#[test]
fn the_bytes_are_those_of_pgcrypto() {
    for (plain, key, iv, cipher, sealed) in PGCRYPTO {
        let raw = RawKey::new(key.as_bytes(), RawMode::from_name(cipher).unwrap()).unwrap();
        let mut out = vec![0; plain.len() + 16];
        let len = raw.encrypt(iv.as_bytes(), plain.as_bytes(), &mut out).unwrap();
        assert_eq!(to_hex(&out[..len]), sealed, "{plain} {key} {cipher}");
        let mut back = vec![0; len];
        let len = raw.decrypt(iv.as_bytes(), &hex(sealed), &mut back).unwrap();
        assert_eq!(&back[..len], plain.as_bytes());
    }
    // repeat('abc', 40)
    let raw = RawKey::new(b"abcde", RawMode::Cbc).unwrap();
    let mut out = [0; 136];
    assert_eq!(raw.encrypt(b"", "abc".repeat(40).as_bytes(), &mut out), Ok(128));
    assert!(
        to_hex(&out)
            .starts_with("a590a46e6938099eb0694e136deac93653b7e1fc7868581fb52311ea1b0e6908")
    );
    assert_eq!(out[112..128], hex("bbc29d914d756fcc9d5963ed48cccfdd"));
}

#[test]
fn names_that_pgcrypto_knows_and_others() {
    assert_eq!(RawMode::from_name("aes/pad:none"), Some(RawMode::CbcNoPad));
    assert_eq!(RawMode::from_name("aes-cbc/pad:pkcs/pad:none"), Some(RawMode::CbcNoPad));
    assert_eq!(RawMode::from_name("Aes-Ecb"), Some(RawMode::Ecb));
    for other in
        ["", "aes128", "bf", "aes-cfb", "aes-ctr", "aes/pad:", "aes/pad:zero", "aes/", " aes"]
    {
        assert_eq!(RawMode::from_name(other), None, "{other}");
    }
    for mode in [RawMode::Cbc, RawMode::Ecb, RawMode::CbcNoPad, RawMode::EcbNoPad] {
        assert_eq!(RawMode::from_number(mode.number()), Some(mode));
    }
    assert_eq!(RawMode::from_number(4), None);
}

#[test]
fn what_pgcrypto_refuses() {
    let cbc = RawKey::new(b"abcde", RawMode::Cbc).unwrap();
    let whole = RawKey::new(b"abcde", RawMode::CbcNoPad).unwrap();
    let mut out = [0xAA; 64];
    assert_eq!(whole.encrypt(b"", b"01234", &mut out), Err(ColumnError::BadRaw));
    assert_eq!(cbc.decrypt(b"", b"", &mut out), Err(ColumnError::BadRaw));
    assert_eq!(whole.decrypt(b"", b"", &mut out), Ok(0));
    assert_eq!(cbc.decrypt(b"", b"12345", &mut out), Err(ColumnError::BadRaw));
    assert_eq!(out, [0xAA; 64]);
    assert_eq!(cbc.decrypt(b"", b"0123456789abcdef", &mut out), Err(ColumnError::BadRaw));
    assert_eq!(out[..16], [0; 16], "the output is zeroed");
    assert_eq!(cbc.encrypt(b"", b"hello", &mut out[..15]), Err(ColumnError::BufferTooSmall));
    assert_eq!(cbc.decrypt(b"", &[0; 32], &mut out[..31]), Err(ColumnError::BufferTooSmall));
}

/// Blocks with valid and invalid padding: all bytes of the padding are checked.
#[test]
fn padding_is_checked_whole() {
    let whole = RawKey::new(b"k", RawMode::EcbNoPad).unwrap();
    let padded = RawKey::new(b"k", RawMode::Ecb).unwrap();
    for count in 0..=20_u8 {
        for wrong_at in 0..=16_usize {
            let mut block = [b'x'; 16];
            let start = 16_usize.saturating_sub(usize::from(count));
            block[start..].fill(count);
            block[15] = count;
            let mut good = (1..=16).contains(&count);
            if let Some(byte) = block[..15].get_mut(wrong_at).filter(|_| wrong_at >= start) {
                *byte ^= 1;
                good = false;
            }
            let (mut sealed, mut out) = ([0; 16], [0; 16]);
            whole.encrypt(b"", &block, &mut sealed).unwrap();
            let expected = if good { Ok(start) } else { Err(ColumnError::BadRaw) };
            assert_eq!(padded.decrypt(b"", &sealed, &mut out), expected, "{block:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_value_comes_back(
        key in proptest::collection::vec(any::<u8>(), 0..50),
        iv in proptest::collection::vec(any::<u8>(), 0..20),
        plain in proptest::collection::vec(any::<u8>(), 0..200),
        number in 0..4,
    ) {
        let mode = RawMode::from_number(number).unwrap();
        let raw = RawKey::new(&key, mode).unwrap();
        let mut out = vec![0; plain.len() + 16];
        match raw.encrypt(&iv, &plain, &mut out) {
            Ok(len) => {
                let mut back = vec![0; len];
                let plain_len = raw.decrypt(&iv, &out[..len], &mut back).unwrap();
                prop_assert_eq!(&back[..plain_len], &plain[..]);
            }
            Err(error) => {
                prop_assert_eq!(error, ColumnError::BadRaw);
                prop_assert!(number >= 2 && !plain.len().is_multiple_of(16));
            }
        }
    }
}
