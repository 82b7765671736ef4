//! `DATADIR/pgseal/escrow.json`: which generations the last escrow copy of the keyring holds. It
//! has no secret; with it pgseal can warn when the copy lacks a generation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use pgseal_keys::escrow::EscrowSummary;

use crate::datadir::DataDir;
use crate::{json_file, out, small_file};

/// Its path.
pub fn path(dir: &DataDir) -> PathBuf {
    dir.keyring().with_file_name("escrow.json")
}

/// Records a copy. If the record cannot be written, that is a warning: the copy itself is good.
pub fn write(dir: &DataDir, summary: &EscrowSummary) {
    let path = path(dir);
    let summary = EscrowSummary { share: None, ..summary.clone() };
    if let Err(error) = json_file::write(&path, mode(dir), &summary) {
        out::complain(&format!(
            "{}: the date of this copy cannot be remembered: {error}; \
             \"pgseal doctor\" will not know of it",
            path.display()
        ));
    }
}

/// As of the keyring: where a group may read the directory, its backup programs copy this file too,
/// and would fail if they could not.
fn mode(dir: &DataDir) -> u32 {
    let above = dir.keyring().parent().and_then(|above| fs::metadata(above).ok());
    if above.is_some_and(|meta| meta.mode() & 0o077 == 0o050) { 0o640 } else { 0o600 }
}

/// The record; `None` if there is none, or it cannot be read.
pub fn read(dir: &DataDir) -> Option<EscrowSummary> {
    // small_file's limit is far above the largest record: 1024 generations of 50 bytes, indented.
    serde_json::from_slice(&small_file::read(&path(dir)).ok()?).ok()
}
