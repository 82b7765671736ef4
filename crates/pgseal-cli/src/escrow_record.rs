//! `DATADIR/pgseal/escrow.json`: which generations the last escrow copy of the keyring holds. It
//! has no secret; with it pgseal can warn when the copy lacks a generation.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use pgseal_keys::escrow::EscrowSummary;

use crate::datadir::DataDir;
use crate::{out, small_file};

/// Its path.
pub fn path(dir: &DataDir) -> PathBuf {
    dir.keyring().with_file_name("escrow.json")
}

/// Records a copy. If the record cannot be written, that is a warning: the copy itself is good.
pub fn write(dir: &DataDir, summary: &EscrowSummary) {
    let path = path(dir);
    let summary = EscrowSummary { share: None, ..summary.clone() };
    if let Err(error) = try_write(&path, &summary) {
        out::complain(&format!(
            "{}: the date of this copy cannot be remembered: {error}; \
             \"pgseal doctor\" will not know of it",
            path.display()
        ));
    }
}

fn try_write(path: &Path, summary: &EscrowSummary) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(summary).map_err(io::Error::other)?;
    text.push(b'\n');
    let dir = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension(format!("json.new.{}", std::process::id()));
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let owner = fs::metadata(dir)?;
        if owner.uid() != rustix::process::geteuid().as_raw() {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&new);
    }
    written
}

/// The record; `None` if there is none, or it cannot be read.
pub fn read(dir: &DataDir) -> Option<EscrowSummary> {
    // small_file's limit is far above the largest record: 1024 generations of 50 bytes, indented.
    serde_json::from_slice(&small_file::read(&path(dir)).ok()?).ok()
}
