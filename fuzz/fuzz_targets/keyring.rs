//! The parsers of the keyring file and of the hand-over frame: no input makes them panic, and what
//! they accept they write back as the same thing.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pgseal_keys::{Kek, Keyring, handover};

fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz");
    if let Ok(ring) = Keyring::parse(data, path) {
        assert_eq!(ring.to_bytes(), data, "a parsed file is kept byte for byte");
        let written = ring.reencode().expect("what was parsed can be written");
        let again = Keyring::parse(&written, path).expect("what was written can be parsed");
        assert_eq!(again.reencode().expect("again"), written, "writing is stable");
        assert_eq!(again.summary(), ring.summary());
        let kek = Kek::from_text(&[b'7'; 64], "fuzz").expect("64 hexadecimal digits");
        let _ = ring.unlock(&kek);
    }
    if let Ok(keys) = handover::decode(data) {
        assert_eq!(handover::encode(&keys).as_slice(), data);
    }
});
