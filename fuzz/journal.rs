//! What the fuzz target of the journal of a conversion does with its input;
//! `crates/pgseal-convert/tests/fuzz_smoke.rs` runs the same on a stable toolchain.
//!
//! The library reads the command out of the same text on its own. Who includes this file has
//! `crate::texts`, which is `crates/pgseal-preload/src/place/texts.rs`.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pgseal_convert::{Journal, Operation};

use crate::texts;

/// Any bytes as `pgseal/conversion`: what is accepted is written back as the same thing, holds no more
/// than the file, and names no place outside of a tablespace.
pub fn journal(data: &[u8]) {
    let path = Path::new("pgseal/conversion");
    let named = texts::interrupted_command(data);
    let Ok(journal) = Journal::parse(data, path) else { return };
    let written = journal.to_bytes(path).unwrap();
    let again = Journal::parse(&written, path).unwrap();
    assert_eq!(again, journal);
    assert_eq!(again.to_bytes(path).unwrap(), written, "writing is stable");
    let held = journal.pg_version.len() + journal.keyring.len() + journal.suite.len();
    assert!(held + journal.config_file.as_os_str().len() <= data.len());
    assert!(!journal.version_dir().contains(['/', '\0', '.']));
    assert!(journal.operation == Operation::Decrypt || journal.suite().is_some());
    for text in [data, &written] {
        if !text.contains(&b'\\') {
            assert_eq!(texts::interrupted_command(text), journal.operation.name());
        }
    }
    assert!(["encrypt", "decrypt", "rekey"].contains(&named));
}
