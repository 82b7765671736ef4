//! The bodies of the fuzz targets for key material: the keyring file, the hand-over frame, the file
//! of a cluster, the records that a server writes, anchors.
//! `crates/pgseal-keys/tests/fuzz_smoke.rs` runs them on a stable toolchain.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pgseal_core::random::LibraryRandom;
use pgseal_core::{Generation, KeySet, Suite};
use pgseal_keys::anchor::{Directory, State};
use pgseal_keys::audit::{Check, Entry, Link};
use pgseal_keys::config_record::{ConfigRecord, MAX_KEPT_LEN, is_name};
use pgseal_keys::control::{PART_LEN, open_controls, open_flushed, whole};
use pgseal_keys::handover::{Answer, Unlocked};
use pgseal_keys::manifest::Manifest;
use pgseal_keys::{Clusters, CostLimit, Kek, Keyring, Provider, handover, renewal};

/// Parses any bytes as a keyring. An accepted keyring is written back unchanged, its costs are
/// within bounds before anything is derived, and an unrelated key does not open it.
pub fn keyring(data: &[u8]) {
    let path = Path::new("fuzz");
    let Ok(ring) = Keyring::parse(data, path) else { return };
    assert_eq!(ring.to_bytes(), data, "a parsed file is kept byte for byte");
    let written = ring.reencode().unwrap();
    let again = Keyring::parse(&written, path).unwrap();
    assert_eq!(again.reencode().unwrap(), written, "writing is stable");
    assert_eq!(again.summary(), ring.summary());
    let kek = Kek::from_text(&[b'7'; 64], "fuzz").unwrap();
    assert!(ring.unlock(&kek).is_err(), "keys that nobody sealed");

    let uri = ring.provider_uri();
    let provider = Provider::parse(uri);
    let shown = Provider::shown(uri);
    assert!(shown.len() <= uri.len() + 16 && !shown.contains(char::is_control));
    match ring.passphrase_params() {
        // Refused for its cost, before anybody is asked for a passphrase; or cheap.
        Some(params) => {
            assert!(uri.starts_with("passphrase:"));
            let summary = ring.summary().passphrase.unwrap();
            let sensible =
                summary.memory_kib <= 1 << 20 && summary.passes <= 16 && summary.lanes <= 64;
            assert_eq!(CostLimit::Sensible.check(params, path).is_ok(), sensible);
            assert!(CostLimit::Format.check(params, path).is_ok());
            assert!(summary.memory_kib <= 4 << 20 && summary.passes <= 1024);
        }
        None => assert!(!provider.is_ok_and(|provider| provider.is_passphrase())),
    }
}

/// Decodes any bytes as a hand-over frame. An accepted frame is encoded to the same bytes.
pub fn frame(data: &[u8]) {
    let Ok(answer) = handover::decode(data) else { return };
    let again = match answer {
        Answer::Unlocked(Unlocked { keys, key_variable, source }) => {
            handover::encode_keys(&keys, key_variable.as_deref(), &source).to_vec()
        }
        Answer::OtherKeyring(id) => handover::encode_other_keyring(id),
        Answer::Interrupted(conversion) => handover::encode_interrupted(conversion),
    };
    assert_eq!(again, data);
}

/// Opens any bytes as a configuration record: nothing opens that was not sealed. Then decodes them
/// as a decrypted body: an accepted record survives sealing and opening, and its names lie in the
/// data directory.
pub fn config_record(data: &[u8]) {
    let answer = handover::decode(include_bytes!("seeds/frame/two-keys")).unwrap();
    let keys = answer.unlocked().unwrap().keys;
    assert!(ConfigRecord::open(data, &keys).is_err(), "a record that nobody sealed");
    let Ok(record) = ConfigRecord::decode(data) else { return };
    let again =
        ConfigRecord::open(&record.seal(&keys, &LibraryRandom::new()).unwrap(), &keys).unwrap();
    assert_eq!(again, record);
    for entry in &record.entries {
        assert!(is_name(&entry.name) && !entry.name.starts_with(b"/"));
        assert_eq!(record.get(&entry.name), Some(entry));
        assert!(!entry.allows(Some(&vec![b'x'; MAX_KEPT_LEN + 1])));
    }
}

/// Opens any bytes as a manifest: nothing opens that was not sealed. Then decodes them as a
/// decrypted body: an accepted manifest survives sealing and opening, and finds each of its files.
pub fn manifest(data: &[u8]) {
    let answer = handover::decode(include_bytes!("seeds/frame/two-keys")).unwrap();
    let keys = answer.unlocked().unwrap().keys;
    assert!(Manifest::open(data, &keys).is_err(), "a manifest that nobody sealed");
    let Ok(manifest) = Manifest::decode(data) else { return };
    let again =
        Manifest::open(&manifest.seal(&keys, &LibraryRandom::new()).unwrap(), &keys).unwrap();
    assert_eq!(again, manifest);
    assert!(manifest.is_whole || manifest.files.is_empty());
    for (at, listed) in manifest.files.iter().enumerate() {
        assert_eq!(manifest.find(&listed.path), Some(at));
        assert!(!listed.path.starts_with(b"/"));
    }
}

/// Opens any bytes as a control record. What opens says the same when it is sealed anew, and no
/// byte of its first part may differ from what was sealed.
pub fn control_record(data: &[u8]) {
    let answer = handover::decode(include_bytes!("seeds/frame/two-keys")).unwrap();
    let keys = answer.unlocked().unwrap().keys;
    let sealed = include_bytes!("seeds/control_record/sealed");
    let (controls, flushed) = (open_controls(data, &keys), open_flushed(data, &keys));
    if controls.is_ok() {
        assert_eq!(data.get(..PART_LEN), sealed.get(..PART_LEN), "a part that nobody sealed");
    }
    if let Ok(flushed) = flushed {
        assert_eq!(Ok(flushed), open_flushed(sealed, &keys), "a position that nobody sealed");
    }
    if let (Ok(controls), Ok(flushed)) = (controls, flushed) {
        let again = whole(&controls, flushed, &keys, &LibraryRandom::new()).unwrap();
        assert_eq!(open_controls(&again, &keys), Ok(controls));
        assert_eq!(open_flushed(&again, &keys), Ok(flushed));
    }
}

/// Reads any text as the state of an anchor, and any bytes as number and value. What is accepted is
/// written to the same text and bytes, and expects something of a directory.
pub fn anchor(data: &[u8]) {
    let of_text = core::str::from_utf8(data).ok().and_then(|text| text.parse::<State>().ok());
    let of_bytes = data.split_first_chunk().and_then(|(sequence, value)| {
        let state = State::of(u64::from_le_bytes(*sequence), value)?;
        assert_eq!(state.value(), value);
        Some(state)
    });
    if let Some(state) = &of_text {
        assert_eq!(state.to_string().as_bytes(), data);
    }
    for state in [of_text, of_bytes].into_iter().flatten() {
        assert_eq!(State::of(state.sequence, &state.value()), Some(state));
        let unknown = Directory { epoch: None, is_backup: false, stopped: None };
        assert!(state.expect(&unknown).is_err(), "a directory of which nothing is known");
    }
}

/// Parses any text as the file of a cluster in `/etc/pgseal/clusters.d`. The accepted providers can
/// be written to such a file and read back.
pub fn cluster(data: &[u8]) {
    let path = Path::new("fuzz");
    let Ok(text) = core::str::from_utf8(data) else { return };
    let Ok(providers) = Clusters::parse(text, path) else { return };
    let lines = providers.iter().map(|provider| format!("provider = {provider}\n"));
    let again: String = core::iter::once("# written\n".to_owned()).chain(lines).collect();
    assert_eq!(Clusters::parse(&again, path).unwrap(), providers);
}

/// Checks any lines as a file of the audit trail, with a key and without one. Whatever they are,
/// each is counted once; and if nothing is found without the key, the next line can be chained to
/// the last one.
pub fn audit(data: &[u8]) {
    let keys = renewal_keys();
    let with_key = checked(data, Some(&keys));
    let without = checked(data, None);
    assert_eq!(with_key.lines, without.lines);
    assert!(with_key.findings.len() >= without.findings.len());
    assert!(without.findings.iter().all(|(line, _)| (1..=without.lines).contains(line)));
    assert_eq!(without.macs, 0);
    let last = data.split(|byte| *byte == b'\n').next_back().map_or(Link::START, Link::to);
    let entry = Entry { time: "2026-01-31T12:00:00Z".to_owned(), ..Entry::default() };
    let next = entry.chained(&last, None).unwrap();
    if without.findings.is_empty() && last.number < u64::MAX {
        let mut check = Check::new(None);
        data.split(|byte| *byte == b'\n').for_each(|line| check.take(line).unwrap());
        check.take(next.as_bytes()).unwrap();
        assert!(check.findings.is_empty(), "{:?}", check.findings);
    }
}

fn checked<'a>(data: &[u8], keys: Option<&'a KeySet>) -> Check<'a> {
    let mut check = Check::new(keys);
    data.split(|byte| *byte == b'\n').for_each(|line| check.take(line).unwrap());
    check
}

/// Opens any bytes as a renewal file, with the keys under which the seed is sealed. Only the seed
/// opens, and hands over what was sealed.
pub fn renewal(data: &[u8]) {
    let keys = renewal_keys();
    let sealed = include_bytes!("seeds/renewal/sealed");
    if let Ok(renewed) = renewal::open(data, &keys) {
        assert_eq!(data, sealed, "a file that nobody sealed");
        assert_eq!((renewed.generation, renewed.key.bytes()), (Generation(9), &[9; 32]));
        assert_eq!(renewed.suites, keys.suites().changed_to(Suite::Aes256Xts));
    }
}

/// The keys of the seed.
pub fn renewal_keys() -> KeySet {
    handover::decode(include_bytes!("seeds/frame/two-keys")).unwrap().unlocked().unwrap().keys
}
