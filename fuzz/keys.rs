//! What the fuzz targets of key material do with their input: the keyring file, the hand-over frame, the
//! file of a cluster, the record of a configuration. `crates/pgseal-keys/tests/fuzz_smoke.rs` runs the same on a stable toolchain.
//!
//! The library reads the same texts on its own, with far less code; both must say the same. Who includes
//! this file has `crate::texts`, which is `crates/pgseal-preload/src/place/texts.rs`.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pgseal_keys::config_record::{ConfigRecord, MAX_KEPT_LEN, is_name};
use pgseal_keys::{Clusters, CostLimit, Kek, Keyring, Provider, handover};

use crate::texts;

/// Any bytes as a keyring: what is accepted is written back as the same thing, costs stay within bounds
/// before anything is derived, and a key that made nothing opens nothing.
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
    if !data.contains(&b'\\') {
        assert_eq!(texts::provider_of(data), Some(uri.as_bytes()), "the library reads the same");
    }
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

/// Any bytes as a hand-over frame: what is accepted is written back as the same thing.
pub fn frame(data: &[u8]) {
    if let Ok(keys) = handover::decode(data) {
        assert_eq!(handover::encode(&keys).as_slice(), data);
    }
}

/// Any bytes as the record of a configuration: none opens that nobody sealed; as the sealed body, what is
/// accepted is written as the same record, with names that lie in the data directory.
pub fn config_record(data: &[u8]) {
    let keys = handover::decode(include_bytes!("seeds/frame/two-keys")).unwrap();
    assert!(ConfigRecord::open(data, &keys).is_err(), "a record that nobody sealed");
    let Ok(record) = ConfigRecord::decode(data) else { return };
    let again = ConfigRecord::open(&record.seal(&keys).unwrap(), &keys).unwrap();
    assert_eq!(again, record);
    for entry in &record.entries {
        assert!(is_name(&entry.name) && !entry.name.starts_with(b"/"));
        assert_eq!(record.get(&entry.name), Some(entry));
        assert!(!entry.allows(Some(&vec![b'x'; MAX_KEPT_LEN + 1])));
    }
}

/// Any text as the file of a cluster in `/etc/pgseal/clusters.d`: the provider that is accepted is one
/// that can be written into such a file and read again, by the library, too.
pub fn cluster(data: &[u8]) {
    let path = Path::new("fuzz");
    let Ok(text) = core::str::from_utf8(data) else { return };
    let Ok(provider) = Clusters::parse(text, path) else { return };
    assert!(provider.to_string().len() <= data.len());
    let again = format!("# written\nprovider = {provider}\n");
    assert_eq!(Clusters::parse(&again, path).unwrap(), provider);
    for text in [text, &again] {
        let read = texts::provider_in(text.as_bytes()).unwrap();
        assert_eq!(Provider::parse(core::str::from_utf8(read).unwrap()).unwrap(), provider);
    }
}
