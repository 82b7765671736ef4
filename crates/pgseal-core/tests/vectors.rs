//! Reads every file of `vectors/v2`, and checks that the generator still makes the same files. The
//! files of `vectors/v1` are refused.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, missing_docs)]
#[path = "../examples/make_vectors/vectors.rs"]
mod vectors;

use std::collections::{BTreeMap, BTreeSet};

use pgseal_core::storage::mem::MemStorage;
use pgseal_core::{HeaderFault, OnDamage, Opened, PlainOff, Scratch, SealError, SealedFile};

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/v2");
const OLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/v1");

/// Parses the text of a vector. Returns its fields and its bytes.
fn parse(text: &str) -> (BTreeMap<&str, &str>, Vec<u8>) {
    let (head, body) = text.split_once("\n\n").unwrap();
    let fields: BTreeMap<&str, &str> =
        head.lines().map(|line| line.split_once(": ").unwrap()).collect();
    let mut bytes = vec![0; fields["length"].parse().unwrap()];
    let mut at = 0;
    for line in body.lines() {
        if let Some(offset) = line.strip_prefix('@') {
            at = offset.parse().unwrap();
            continue;
        }
        for pair in line.as_bytes().chunks(2) {
            bytes[at] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            at += 1;
        }
    }
    (fields, bytes)
}

/// Reads the bytes of a file, after the fields that only files of WAL have. Returns the verdict,
/// and the hash of the plain contents.
fn read(fields: &BTreeMap<&str, &str>, bytes: Vec<u8>) -> (String, Option<String>) {
    let storage = MemStorage::with(bytes);
    let mut file = match SealedFile::open(&storage, &vectors::keys()) {
        Ok(Opened::Sealed(file)) => file,
        Ok(Opened::NoHeader { .. }) => return ("unborn".to_owned(), None),
        Ok(Opened::Plain) => return ("plain".to_owned(), None),
        Err(SealError::Header(fault)) => {
            let verdict = match fault {
                HeaderFault::BadKeyStage { .. } => "bad-key-stage".to_owned(),
                HeaderFault::BadPlace => "bad-place".to_owned(),
                HeaderFault::NotAuthentic => "header-not-authentic".to_owned(),
                HeaderFault::ReservedNotZero => "reserved-not-zero".to_owned(),
                HeaderFault::UnknownSuite { .. } => "unknown-suite".to_owned(),
                HeaderFault::UnknownVersion(version) => format!("unknown-version {version}"),
                other => panic!("{other}"),
            };
            return (verdict, None);
        }
        Err(SealError::KeyUnknown { .. }) => return ("key-unknown".to_owned(), None),
        Err(error) => panic!("{error}"),
    };
    if let Some(must_open) = fields.get("must-open") {
        let newest = vectors::record_text(file.newest_flush_record(&storage, None).unwrap());
        assert_eq!(newest, fields["newest-flush-record"], "{}", fields["name"]);
        assert_eq!(file.newest_flush_record(&storage, Some(2)).unwrap(), None);
        file.set_must_open(PlainOff(must_open.parse().unwrap()));
    }
    let mut plain = vec![0; file.plain_len(&storage).unwrap().0 as usize];
    let mut scratch = Scratch::new();
    match file.read_at(&storage, &mut scratch, &mut plain, PlainOff(0), OnDamage::Fail) {
        Ok(outcome) => {
            assert_eq!(outcome.len, plain.len());
            ("ok".to_owned(), Some(vectors::sha256(&plain)))
        }
        Err(SealError::BlockDamaged(block)) => (format!("block-damaged {block}"), None),
        Err(error) => panic!("{error}"),
    }
}

/// Reads each vector of a directory, and passes its fields, the verdict and the hash to `look`.
fn for_each(dir: &str, mut look: impl FnMut(&BTreeMap<&str, &str>, String, Option<String>)) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let (fields, bytes) = parse(&text);
        // A FIPS build does not have these suites.
        let lacking = ["aes-128-xts", "aegis"];
        if pgseal_crypto::FIPS && lacking.iter().any(|name| fields["name"].contains(name)) {
            continue;
        }
        let (verdict, hash) = read(&fields, bytes);
        look(&fields, verdict, hash);
    }
}

#[test]
fn every_vector_reads_as_it_says() {
    let mut seen = 0;
    for_each(DIR, |fields, verdict, hash| {
        assert_eq!(verdict, fields["expect"], "{}", fields["name"]);
        assert_eq!(hash.as_deref().unwrap_or("-"), fields["plain-sha256"], "{}", fields["name"]);
        seen += 1;
    });
    assert!(seen >= 50, "{seen}");
}

#[test]
fn files_of_version_1_are_refused() {
    let mut refused = 0;
    for_each(OLD, |fields, verdict, _| {
        if matches!(fields["expect"], "plain" | "unborn") {
            assert_eq!(verdict, fields["expect"], "{}", fields["name"]);
        } else if fields["name"] != "bad-version" {
            assert_eq!(verdict, "unknown-version 1", "{}", fields["name"]);
            refused += 1;
        }
    });
    assert!(refused >= 35, "{refused}");
}

#[test]
fn the_generator_makes_the_same_vectors() {
    let mut names = BTreeSet::new();
    for vector in vectors::all() {
        let name = format!("{}.vec", vector.name);
        let committed = std::fs::read_to_string(format!("{DIR}/{name}")).unwrap_or_default();
        assert!(committed == vector.to_text(), "{name} differs from what the generator makes");
        names.insert(name);
    }
    let files = std::fs::read_dir(DIR).unwrap();
    let found: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, names);
}
