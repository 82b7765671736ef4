//! Reads every file of `vectors/column`, and checks that the generator still makes the same ones.

#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code, missing_docs)]
#[path = "../examples/make_column_vectors/vectors.rs"]
mod vectors;

use std::collections::BTreeMap;

use common::hex;
use pgseal_column::header::Mode;
use pgseal_column::{ColumnError, ColumnKey, Domain, Kek, NumberCode, RawKey, RawMode, TypeCode};

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/column");

struct Record(BTreeMap<String, String>);

impl Record {
    fn text(&self, field: &str) -> &str {
        &self.0[field]
    }

    fn bytes(&self, field: &str) -> Vec<u8> {
        if self.text(field) == "-" { Vec::new() } else { hex(self.text(field)) }
    }

    fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap()
    }

    fn domain(&self) -> Domain {
        Domain(self.number("domain"))
    }

    fn version(&self) -> u32 {
        self.number("key-version") as u32
    }

    fn key(&self) -> ColumnKey {
        ColumnKey::new(&self.bytes("key"), self.domain(), self.version()).unwrap()
    }

    fn type_code(&self) -> TypeCode {
        TypeCode::new(self.number("type") as u32).unwrap()
    }
}

fn records(file: &str) -> Vec<Record> {
    let text = std::fs::read_to_string(format!("{DIR}/{file}.vec")).unwrap();
    let records: Vec<Record> = text
        .split("\n\n")
        .map(|text| {
            let fields = text.lines().map(|line| line.split_once(": ").unwrap());
            Record(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect())
        })
        .collect();
    assert!(!records.is_empty());
    records
}

#[test]
fn the_generator_makes_these_files_and_no_others() {
    let mut found: Vec<String> = std::fs::read_dir(DIR)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut made = vectors::all();
    made.sort();
    for (name, text) in &made {
        let stored = std::fs::read_to_string(format!("{DIR}/{name}.vec")).unwrap();
        assert_eq!(&stored, text, "{name}");
    }
    let made: Vec<String> = made.iter().map(|(name, _)| format!("{name}.vec")).collect();
    assert_eq!(found, made);
}

#[test]
fn format_preserving() {
    for record in records("ff1") {
        let (key, code) = (record.key(), NumberCode::new(record.number("type") as u32).unwrap());
        let (plain, sealed) = (record.number("plain"), record.number("sealed"));
        let (there, back) = match record.text("bits") {
            "32" => (
                u64::from(key.encrypt32(code, plain as u32)),
                u64::from(key.decrypt32(code, sealed as u32)),
            ),
            "60" => (key.encrypt60(code, plain).unwrap(), key.decrypt60(code, sealed).unwrap()),
            _ => (key.encrypt64(code, plain), key.decrypt64(code, sealed)),
        };
        assert_eq!((there, back), (sealed, plain), "{}", record.text("name"));
    }
}

#[test]
fn authenticated() {
    for (file, mode) in [("deterministic", Mode::Deterministic), ("randomised", Mode::Randomised)] {
        for record in records(file) {
            let (key, code, name) = (record.key(), record.type_code(), record.text("name"));
            let (plain, sealed) = (record.bytes("plain"), record.bytes("sealed"));
            let mut out = vec![0; sealed.len()];
            let len = key.open(mode, code, &sealed, &mut out).unwrap();
            assert_eq!(out[..len], plain, "{file} {name}");
            let len = key.seal(mode, code, &plain, &mut out).unwrap();
            assert_eq!(len, sealed.len());
            assert_eq!(out == sealed, mode == Mode::Deterministic, "{file} {name}");
        }
    }
}

#[test]
fn refused() {
    let key = ColumnKey::new(&(0..32).collect::<Vec<u8>>(), Domain(1), 1).unwrap();
    for record in records("refused") {
        assert_eq!(record.text("mode"), "deterministic");
        let expected = match record.text("expect") {
            "not-sealed" => ColumnError::NotSealed,
            "other-mode" => ColumnError::OtherMode,
            "other-version" => ColumnError::OtherVersion,
            "not-authentic" => ColumnError::NotAuthentic,
            other => unreachable!("{other}"),
        };
        let code = TypeCode::new(7).unwrap();
        let found = key.open(Mode::Deterministic, code, &record.bytes("sealed"), &mut [0; 99]);
        assert_eq!(found, Err(expected), "{}", record.text("name"));
    }
}

#[test]
fn wrapped_keys() {
    for record in records("wrapped") {
        let kek = Kek::new(&record.bytes("kek")).unwrap();
        let wrapped = record.bytes("wrapped");
        let key = kek.unwrap(record.domain(), record.version(), &wrapped).unwrap();
        assert_eq!(key.to_vec(), record.bytes("key"));
        let again = kek.wrap(record.domain(), record.version(), &key).unwrap();
        assert_eq!(again[..9], wrapped[..9], "format and key check value");
    }
}

#[test]
fn raw() {
    for record in records("raw") {
        let mode = RawMode::from_name(record.text("cipher")).unwrap();
        let raw = RawKey::new(&record.bytes("key"), mode).unwrap();
        let mut out = vec![0; 64];
        let len = raw.decrypt(&record.bytes("iv"), &record.bytes("sealed"), &mut out).unwrap();
        assert_eq!(out[..len], record.bytes("plain"), "{}", record.text("name"));
    }
}
