//! Makes the vectors of `spec/column-cipher.md` from the primitives, as the specification says. It
//! does not use the crate's code for values, only the general FF1, AES-SIV, AES-GCM, HKDF and HMAC.

use std::fmt::Write as _;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use pgseal_column::ff1::Ff1;
use pgseal_column::siv::Siv;
use pgseal_column::{RawKey, RawMode};

/// One record: fields in their order.
struct Record(String);

impl Record {
    fn new(name: &str) -> Record {
        Record(format!("name: {name}\n"))
    }

    fn with(mut self, field: &str, value: impl std::fmt::Display) -> Record {
        let _ = writeln!(self.0, "{field}: {value}");
        self
    }

    fn hex(self, field: &str, bytes: &[u8]) -> Record {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.with(field, if text.is_empty() { "-".to_owned() } else { text })
    }
}

fn file(name: &'static str, records: Vec<Record>) -> (&'static str, String) {
    (name, records.into_iter().map(|record| record.0).collect::<Vec<_>>().join("\n"))
}

/// Section 2: HKDF-SHA-256 without salt.
fn derive(parent: &[u8], info: &[&[u8]], len: usize) -> Vec<u8> {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut key = vec![0; len];
    let root = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(parent);
    root.expand(info, Len(len)).unwrap().fill(&mut key).unwrap();
    key
}

/// A column key of the vectors.
struct Key {
    name: &'static str,
    material: Vec<u8>,
    domain: u64,
    version: u32,
}

impl Key {
    fn all() -> [Key; 3] {
        [
            Key { name: "first", material: (0..32).collect(), domain: 1, version: 1 },
            Key {
                name: "long-version",
                material: (32..64).collect(),
                domain: 0x0102_0304_0506_0708,
                version: 31,
            },
            Key { name: "long-key", material: (64..128).collect(), domain: u64::MAX, version: 30 },
        ]
    }

    fn sub_key(&self, label: &str, len: usize) -> Vec<u8> {
        let info = [label.as_bytes(), &self.domain.to_le_bytes(), &self.version.to_le_bytes()];
        derive(&self.material, &info, len)
    }

    fn ff1(&self) -> Vec<u8> {
        self.sub_key("pgseal/v1/kdf/column-ff1", 32)
    }

    fn siv(&self) -> Vec<u8> {
        self.sub_key("pgseal/v1/kdf/column-siv", 64)
    }

    fn gcm(&self) -> Vec<u8> {
        self.sub_key("pgseal/v1/kdf/column-gcm", 32)
    }

    fn header(&self, mode: u8) -> Vec<u8> {
        match self.version {
            1..=30 => vec![(mode << 5) | self.version as u8],
            _ => [&[(mode << 5) | 31][..], &self.version.to_le_bytes()].concat(),
        }
    }

    fn associated(&self, mode: u8, type_code: u32) -> Vec<u8> {
        let code = match type_code {
            0..=63 => vec![type_code as u8],
            _ => [&[0][..], &type_code.to_le_bytes()].concat(),
        };
        [&self.header(mode)[..], &self.domain.to_le_bytes(), &code].concat()
    }

    fn record(&self, name: &str, type_code: u32) -> Record {
        Record::new(&format!("{}-{name}", self.name))
            .hex("key", &self.material)
            .with("domain", self.domain)
            .with("key-version", self.version)
            .with("type", type_code)
    }

    fn deterministic(&self, type_code: u32, plain: &[u8]) -> Vec<u8> {
        let siv = Siv::new(&self.siv()).unwrap();
        let mut body = vec![0; plain.len()];
        let associated = siv.associate(&[&self.associated(1, type_code)]);
        let iv = siv.seal(&associated, plain, &mut body).unwrap();
        [&self.header(1)[..], &iv, &body].concat()
    }

    fn randomised(&self, type_code: u32, nonce: [u8; 12], plain: &[u8]) -> Vec<u8> {
        let body = gcm(&self.gcm(), nonce, &self.associated(2, type_code), plain);
        [&self.header(2)[..], &nonce, &body].concat()
    }
}

fn gcm(key: &[u8], nonce: [u8; 12], associated: &[u8], plain: &[u8]) -> Vec<u8> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).unwrap());
    let mut body = plain.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(associated), &mut body).unwrap();
    body
}

fn keys() -> Vec<Record> {
    Key::all()
        .iter()
        .map(|key| {
            Record::new(key.name)
                .hex("key", &key.material)
                .with("domain", key.domain)
                .with("key-version", key.version)
                .hex("ff1-key", &key.ff1())
                .hex("siv-key", &key.siv())
                .hex("gcm-key", &key.gcm())
        })
        .collect()
}

fn ff1() -> Vec<Record> {
    let mut records = Vec::new();
    for key in Key::all() {
        for (bits, type_code, plain) in [
            (32, 1_u32, 42_u64),
            (32, 3, 0xFFFF_FFFF),
            (60, 6, 0),
            (60, 6, (1 << 60) - 1),
            (64, 2, 42),
            (64, 4, 0),
            (64, 5, u64::MAX),
        ] {
            let tweak = [&key.domain.to_le_bytes()[..], &[type_code as u8]].concat();
            let mut text: Vec<u16> =
                (0..bits).rev().map(|bit| ((plain >> bit) & 1) as u16).collect();
            Ff1::new(&key.ff1(), 2).unwrap().encrypt(&tweak, &mut text).unwrap();
            let sealed = text.iter().fold(0_u64, |x, bit| (x << 1) | u64::from(*bit));
            records.push(
                key.record(&format!("{bits}-bits-{plain:x}"), type_code)
                    .with("bits", bits)
                    .with("plain", plain)
                    .with("sealed", sealed),
            );
        }
    }
    records
}

fn plain_values() -> Vec<Vec<u8>> {
    [0, 1, 15, 16, 17, 32, 44].map(|len| (0..len).map(|at| b'a' + at % 26).collect()).to_vec()
}

fn deterministic() -> Vec<Record> {
    let mut records = Vec::new();
    for key in Key::all() {
        for plain in plain_values() {
            records.push(
                key.record(&format!("{}-bytes", plain.len()), 7)
                    .hex("plain", &plain)
                    .hex("sealed", &key.deterministic(7, &plain)),
            );
        }
        records.push(
            key.record("long-type-code", 0x0102_0304)
                .hex("plain", b"hello")
                .hex("sealed", &key.deterministic(0x0102_0304, b"hello")),
        );
    }
    records
}

fn randomised() -> Vec<Record> {
    let mut records = Vec::new();
    for key in Key::all() {
        for plain in plain_values() {
            let nonce = [0xA0 | (plain.len() % 16) as u8; 12];
            records.push(
                key.record(&format!("{}-bytes", plain.len()), 8)
                    .hex("plain", &plain)
                    .hex("sealed", &key.randomised(8, nonce, &plain)),
            );
        }
        records.push(
            key.record("long-type-code", 64)
                .hex("plain", b"hello")
                .hex("sealed", &key.randomised(64, [0xB5; 12], b"hello")),
        );
    }
    records
}

/// Values that opening with the first key and the type text (7) must refuse.
fn refused() -> Vec<Record> {
    let [key, long_version, _] = Key::all();
    let good = key.deterministic(7, b"hello");
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let record = |name: &str, expect: &str, sealed: &[u8]| {
        Record::new(name).with("mode", "deterministic").with("expect", expect).hex("sealed", sealed)
    };
    let long_one = [&[0x3F, 1, 0, 0, 0][..], &good[1..]].concat();
    vec![
        record("empty", "not-sealed", &[]),
        record("mode-0", "not-sealed", &[&[0x01], &good[1..]].concat()),
        record("mode-3", "not-sealed", &[&[0x61], &good[1..]].concat()),
        record("version-0", "not-sealed", &[&[0x20], &good[1..]].concat()),
        record("version-1-in-5-bytes", "not-sealed", &long_one),
        record("too-short", "not-sealed", &good[..16]),
        record("other-mode", "other-mode", &key.randomised(7, [1; 12], b"hello")),
        record("other-version", "other-version", &long_version.deterministic(7, b"hello")),
        record("other-type", "not-authentic", &key.deterministic(8, b"hello")),
        record("other-long-type", "not-authentic", &key.deterministic(7 << 8, b"hello")),
        record("cut", "not-authentic", &good[..good.len() - 1]),
        record("iv-bit", "not-authentic", &changed(1)),
        record("text-bit", "not-authentic", &changed(good.len() - 1)),
    ]
}

fn wrapped() -> Vec<Record> {
    let kek: Vec<u8> = (0x80..0xA0).collect();
    let wrapping = derive(&kek, &[b"pgseal/v1/kdf/column-key-wrap"], 32);
    let check_key = derive(&kek, &[b"pgseal/v1/kdf/column-kek-check"], 32);
    let check = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, &check_key),
        b"pgseal/v1/mac/column-kek-check",
    );
    Key::all()
        .iter()
        .take(2)
        .map(|key| {
            let nonce = [0x5A; 12];
            let associated = [
                &b"pgseal/v1/aad/column-key"[..],
                &key.domain.to_le_bytes(),
                &key.version.to_le_bytes(),
            ]
            .concat();
            let body = gcm(&wrapping, nonce, &associated, &key.material);
            let wrapped = [&[1][..], &check.as_ref()[..8], &nonce, &body].concat();
            Record::new(key.name)
                .hex("kek", &kek)
                .with("domain", key.domain)
                .with("key-version", key.version)
                .hex("key", &key.material)
                .hex("wrapped", &wrapped)
        })
        .collect()
}

fn raw() -> Vec<Record> {
    let record = |cipher: &str, key: &[u8], iv: &[u8], plain: &[u8]| {
        let raw = RawKey::new(key, RawMode::from_name(cipher).unwrap()).unwrap();
        let mut out = vec![0; plain.len() + 16];
        let len = raw.encrypt(iv, plain, &mut out).unwrap();
        let name =
            format!("{}-key-{}-plain-{}", cipher.replace(['/', ':'], "-"), key.len(), plain.len());
        Record::new(&name)
            .with("cipher", cipher)
            .hex("key", key)
            .hex("iv", iv)
            .hex("plain", plain)
            .hex("sealed", &out[..len])
    };
    vec![
        record("aes", b"abcde", b"", b"hello"),
        record("aes", b"", b"", b"x"),
        record("aes", b"0123456789abcdef", b"", b"0123456789abcdef"),
        record("aes-cbc", b"0123456789abcdef01234567", b"", b"x"),
        record("aes", b"0123456789abcdef0123456789abcdefGHIJKLMN", b"", b"x"),
        record("aes", b"abcde", b"initvector", b"hello"),
        record("aes-ecb", b"abcde", b"", b"0123456789abcdef0123456789abcdefhello"),
        record("aes-cbc/pad:none", b"abcde", b"", b"0123456789abcdef"),
    ]
}

/// Every file: its name and text.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        file("keys", keys()),
        file("ff1", ff1()),
        file("deterministic", deterministic()),
        file("randomised", randomised()),
        file("refused", refused()),
        file("wrapped", wrapped()),
        file("raw", raw()),
    ]
}
