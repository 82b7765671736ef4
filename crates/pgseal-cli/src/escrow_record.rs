//! `DATADIR/pgseal/escrow.json`: what the last escrow copy of the keyring holds, without any
//! secret, so that it can be said when it lacks a generation.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use pgseal_keys::escrow::EscrowSummary;

use crate::datadir::DataDir;
use crate::{out, small_file};

/// Where it is.
pub fn path(dir: &DataDir) -> PathBuf {
    dir.keyring().with_file_name("escrow.json")
}

/// Remembers a copy. That it cannot be remembered does no harm to the copy: it is only said.
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
        // It may not even have been made.
        let _ = fs::remove_file(&new);
    }
    written
}

/// What is remembered; `None` if nothing is, or nothing that can be read.
pub fn read(dir: &DataDir) -> Option<EscrowSummary> {
    // Longer is nothing that pgseal wrote: 1024 generations of 50 bytes, indented.
    serde_json::from_slice(&small_file::read(&path(dir)).ok()?).ok()
}
