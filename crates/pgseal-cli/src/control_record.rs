//! The control record of a data directory (`spec/control.md`): what it says, and writing it anew.

use std::path::Path;

use pgseal_core::KeySet;
use pgseal_core::random::LibraryRandom;
use pgseal_keys::control::{Controls, Flushed, open_controls, open_flushed, whole};
use pgseal_keys::{RecordError, control_path, read_control, write_control};
use pgseal_pgdata::wal_segment_bytes;

use crate::error::CliError;
use crate::manifest;

/// What is known about `pg_control` and the end of the WAL.
#[derive(Debug)]
pub struct Known {
    /// Up to where the WAL is on the disk; `None` if no position is recorded, or if nothing is
    /// known.
    pub flushed: Option<Flushed>,
    /// Why a server would refuse the directory, if it would.
    pub refused: Option<String>,
}

/// Reads the record of a data directory on which no server runs.
///
/// # Errors
/// When a file cannot be read.
pub fn read(root: &Path, keys: &KeySet) -> Result<Known, CliError> {
    let control = manifest::control(root).map_err(CliError::io(root, "read global/pg_control"))?;
    let is_backup = root.join("backup_label").exists();
    if wal_segment_bytes(&control).is_none() {
        // No control file of PostgreSQL: a server compares nothing with it, and does not start.
        return Ok(Known { flushed: None, refused: None });
    }
    let Some(file) = read_control(root)? else {
        let is_fresh = is_backup || pgseal_pgdata::is_shut_down(&control);
        let refused = (!is_fresh).then(|| "it is gone".to_owned());
        return Ok(Known { flushed: None, refused });
    };
    let refused = match open_controls(&file, keys) {
        Err(why) => Some(why.to_string()),
        Ok(controls) if !is_backup && !controls.fit(&control) => {
            Some("global/pg_control is not the one that the server wrote last".to_owned())
        }
        Ok(_) => None,
    };
    match open_flushed(&file, keys) {
        Err(why) => Ok(Known { flushed: None, refused: refused.or(Some(why.to_string())) }),
        Ok(flushed) => {
            Ok(Known { flushed: Some(flushed).filter(|known| known.timeline != 0), refused })
        }
    }
}

/// Writes the record anew, for the present `pg_control`. The epoch stays.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(root: &Path, keys: &KeySet, flushed: Flushed) -> Result<(), CliError> {
    let control = manifest::control(root).map_err(CliError::io(root, "read global/pg_control"))?;
    let had = read_control(root)?.and_then(|file| open_controls(&file, keys).ok());
    let epoch = had.map_or(0, |controls| controls.epoch);
    store(root, keys, &Controls::of(&control, &control, epoch), flushed)
}

/// Puts an epoch into the record. Makes a record where a server would make one: in a directory
/// whose server was shut down cleanly, or that was restored from a base backup.
///
/// # Errors
/// When there is no record that can be changed, or a file cannot be read or written.
pub fn set_epoch(root: &Path, keys: &KeySet, epoch: u64) -> Result<(), CliError> {
    if let Some(why) = read(root, keys)?.refused {
        return Err(CliError::Damaged(format!(
            "{}: {why}; if the directory is as you want it, run first: pgseal wal accept {}",
            control_path(root).display(),
            root.display()
        )));
    }
    let opened = match read_control(root)? {
        Some(file) => {
            open_controls(&file, keys).and_then(|had| Ok((had, open_flushed(&file, keys)?)))
        }
        None => {
            let control =
                manifest::control(root).map_err(CliError::io(root, "read global/pg_control"))?;
            Ok((Controls::of(&control, &control, epoch), Flushed::default()))
        }
    };
    let (had, flushed) = opened.map_err(|why| damaged(root, why))?;
    store(root, keys, &Controls { epoch, ..had }, flushed)
}

fn store(
    root: &Path,
    keys: &KeySet,
    controls: &Controls,
    flushed: Flushed,
) -> Result<(), CliError> {
    let file =
        whole(controls, flushed, keys, &LibraryRandom::new()).map_err(|why| damaged(root, why))?;
    Ok(write_control(root, &file)?)
}

fn damaged(root: &Path, why: RecordError) -> CliError {
    CliError::Damaged(format!("{}: {why}", control_path(root).display()))
}
