use data_encoding::HEXLOWER;
use pgseal_core::random::LibraryRandom;
use pgseal_core::{DataKey, KeyringId, Suite};
use proptest::prelude::*;

use super::*;

fn keys(id: u8, generations: &[u32]) -> KeySet {
    let active = Generation(*generations.last().unwrap());
    let mut set = KeySet::new(KeyringId([id; 16]), Suite::Aes256Gcm, active);
    for number in generations {
        let byte = u8::try_from(0x40 + number).unwrap();
        let key = DataKey::init_with(|bytes| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        });
        set.insert(Generation(*number), key.unwrap());
    }
    set
}

fn sample() -> ConfigRecord {
    let mut record = ConfigRecord { sequence: 7, locked: true, entries: Vec::new() };
    record.set(b"postgresql.conf", vec![Version::Content(b"fsync = on\n".to_vec())]);
    record.set(b"conf.d", vec![Version::Directory]);
    record.set(b"server.key", vec![Version::digest_of(b"secret")]);
    record.set(b"standby.signal", vec![Version::Content(Vec::new()), Version::Absent]);
    record
}

#[test]
fn round_trip() {
    let (record, keys) = (sample(), keys(1, &[1, 2]));
    let file = record.seal(&keys, &LibraryRandom::new()).unwrap();
    assert_eq!(ConfigRecord::open(&file, &keys).unwrap(), record);
    assert_ne!(record.seal(&keys, &LibraryRandom::new()).unwrap(), file, "the nonce is the same");
    assert!(!file.windows(5).any(|window| window == b"fsync"));
    let names: Vec<_> = record.entries.iter().map(|entry| entry.name.clone()).collect();
    assert!(names.is_sorted() && record.get(b"server.key").is_some());
    assert!(record.get(b"server.ke").is_none());
}

#[test]
fn entries_allow_only_their_versions() {
    let record = sample();
    let allows = |name: &[u8], found| record.get(name).unwrap().allows(found);
    assert!(allows(b"postgresql.conf", Some(b"fsync = on\n")));
    assert!(!allows(b"postgresql.conf", Some(b"fsync = of\n")));
    assert!(!allows(b"postgresql.conf", None));
    assert!(allows(b"server.key", Some(b"secret")) && !allows(b"server.key", Some(b"secreT")));
    assert!(!allows(b"server.key", None));
    assert!(allows(b"standby.signal", Some(b"")) && allows(b"standby.signal", None));
    assert!(!allows(b"standby.signal", Some(b"x")));
    assert!(!allows(b"conf.d", None) && record.get(b"conf.d").unwrap().is_directory());
}

#[test]
fn any_change_of_a_byte_is_noticed() {
    let keys = keys(1, &[1]);
    let file = sample().seal(&keys, &LibraryRandom::new()).unwrap();
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 1;
        assert!(ConfigRecord::open(&bad, &keys).is_err(), "byte {at}");
        assert!(ConfigRecord::open(&file[..at], &keys).is_err(), "cut to {at}");
    }
    let long = [&file[..], &[0]].concat();
    assert_eq!(ConfigRecord::open(&long, &keys), Err(RecordError::NotAuthentic));
}

#[test]
fn the_record_of_another_cluster_or_key_is_named_as_such() {
    let file = sample().seal(&keys(1, &[3]), &LibraryRandom::new()).unwrap();
    let open = |keys: &KeySet| ConfigRecord::open(&file, keys).unwrap_err();
    assert_eq!(open(&keys(2, &[3])), RecordError::OtherCluster(KeyringId([1; 16])));
    assert_eq!(open(&keys(1, &[4])), RecordError::KeyUnknown(Generation(3)));
    assert!(ConfigRecord::open(&file, &keys(1, &[3, 4])).is_ok(), "a retired key");
    assert_eq!(generation_of(&file), Ok(Generation(3)));
    let mut ephemeral = file.clone();
    ephemeral[24..28].fill(0xff);
    assert!(matches!(
        ConfigRecord::open(&ephemeral, &keys(1, &[3])),
        Err(RecordError::KeyUnknown(Generation::EPHEMERAL))
    ));
}

/// Parsing refuses a body that `encode` never writes, even if it authenticates.
#[test]
fn a_malformed_body_is_refused() {
    let body = sample().encode().unwrap();
    let with = |at: usize, byte: u8| {
        let mut bad = body.clone();
        bad[at] = byte;
        ConfigRecord::decode(&bad).unwrap_err()
    };
    assert_eq!(with(0, 0), RecordError::Damaged("no sequence number"));
    assert_eq!(with(8, 2), RecordError::Damaged("an unknown state"));
    assert_eq!(with(14, 1), RecordError::Damaged("too many entries"));
    assert_eq!(with(12, 3), RecordError::Damaged("bytes behind its end"));
    // The first entry is conf.d: its length at 16, its name at 18, its count at 24, its kind at 25.
    assert_eq!(with(18, b'/'), RecordError::Damaged("a name that is none"));
    assert_eq!(with(18, b'z'), RecordError::Damaged("names out of order"));
    assert_eq!(with(24, 3), RecordError::Damaged("no version, or too many"));
    assert_eq!(with(25, 4), RecordError::Damaged("an unknown kind of version"));
    for name in ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "pgseal/config", "a\0"] {
        assert!(!is_name(name.as_bytes()), "{name}");
        let entries =
            vec![Entry { name: name.as_bytes().to_vec(), versions: vec![Version::Absent] }];
        let record = ConfigRecord { sequence: 1, locked: true, entries };
        assert_eq!(record.encode(), Err(RecordError::TooLarge), "{name}");
    }
    assert!(is_name(b"conf.d/a b.conf") && is_name(b"pgseal.conf"));
}

/// The worked example of `spec/config-lock.md`.
#[test]
fn the_worked_example_holds() {
    let mut keys = KeySet::new(KeyringId([0; 16]), Suite::Aes256Gcm, Generation(1));
    let counted = |from: u8| {
        let mut next = from;
        move |bytes: &mut [u8]| {
            for byte in bytes {
                *byte = next;
                next += 1;
            }
        }
    };
    counted(0xa0)(&mut keys.keyring_id.0);
    let key = DataKey::init_with(|bytes| {
        counted(0x40)(bytes);
        Ok::<(), ()>(())
    });
    keys.insert(Generation(1), key.unwrap());
    let mut record = ConfigRecord { sequence: 7, locked: true, entries: Vec::new() };
    record.set(b"postgresql.auto.conf", vec![Version::Absent]);
    record.set(b"postgresql.conf", vec![Version::Content(b"fsync = on\n".to_vec())]);
    record.set(b"server.key", vec![Version::digest_of(b"secret")]);
    let mut nonce = [0; 12];
    counted(0x60)(&mut nonce);
    let file = ENVELOPE
        .seal_with_nonce(record.encode().unwrap().into(), &keys, keys.active(), nonce)
        .unwrap();
    let hex = HEXLOWER.encode(&file);
    let lines: Vec<&str> =
        hex.as_bytes().chunks(64).map(|line| core::str::from_utf8(line).unwrap()).collect();
    let block = format!("```\n{}\n```\n", lines.join("\n"));
    let spec = include_str!("../../../../spec/config-lock.md");
    assert!(spec.contains(&block), "spec/config-lock.md has another example:\n{block}");
    assert!(spec.contains(&HEXLOWER.encode(&record.encode().unwrap())[..64]));
}

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![
        Just(Version::Absent),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(Version::Content),
        (any::<u64>(), any::<[u8; 32]>()).prop_map(|(len, sum)| Version::Digest(len, sum)),
    ]
}

proptest! {
    #[test]
    fn seal_and_open_round_trip(
        sequence in 1_u64..,
        locked: bool,
        files in proptest::collection::btree_map(
            "[a-z]{1,8}(/[a-z.]{3,9})?", proptest::collection::vec(any_version(), 1..=2), 0..9,
        ),
    ) {
        let mut record = ConfigRecord { sequence, locked, entries: Vec::new() };
        for (name, versions) in files.iter().filter(|(name, _)| is_name(name.as_bytes())) {
            record.set(name.as_bytes(), versions.clone());
        }
        let keys = keys(1, &[1]);
        prop_assert_eq!(ConfigRecord::open(&record.seal(&keys, &LibraryRandom::new()).unwrap(), &keys), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(file: Vec<u8>, at in 0_usize..200, with: Vec<u8>) {
        let keys = keys(1, &[1]);
        let _ = ConfigRecord::open(&file, &keys);
        let _ = ConfigRecord::decode(&file);
        let mut body = sample().encode().unwrap();
        let at = at.min(body.len());
        body.splice(at..(at + with.len()).min(body.len()), with);
        if let Ok(record) = ConfigRecord::decode(&body) {
            prop_assert_eq!(record.encode().unwrap(), body);
        }
    }
}
