//! The body of the fuzz target for the journal of a conversion.
//! `crates/pgseal-convert/tests/fuzz_smoke.rs` runs it on a stable toolchain.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pgseal_convert::{Journal, Operation};

/// Parses any bytes as `pgseal/conversion`. An accepted journal is written back unchanged, contains
/// no more than the file, and names no path outside of a tablespace.
pub fn journal(data: &[u8]) {
    let path = Path::new("pgseal/conversion");
    let Ok(journal) = Journal::parse(data, path) else { return };
    let written = journal.to_bytes(path).unwrap();
    let again = Journal::parse(&written, path).unwrap();
    assert_eq!(again, journal);
    assert_eq!(again.to_bytes(path).unwrap(), written, "writing is stable");
    let held = journal.pg_version.len() + journal.keyring.len() + journal.suite.len();
    assert!(held + journal.config_file.as_os_str().len() <= data.len());
    assert!(!journal.version_dir().contains(['/', '\0', '.']));
    assert!(journal.operation == Operation::Decrypt || journal.suite().is_some());
}
