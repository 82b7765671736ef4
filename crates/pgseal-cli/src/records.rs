//! The files below a data directory that pgseal seals with a data key for itself: the configuration
//! record, the manifest, the control record.

use std::path::{Path, PathBuf};

use pgseal_core::random::LibraryRandom;
use pgseal_core::{Generation, KeySet};
use pgseal_keys::config_record::ConfigRecord;
use pgseal_keys::control::{open_controls, open_flushed, whole};
use pgseal_keys::manifest::Manifest;
use pgseal_keys::{
    KeyError, RecordError, config_record, config_record_path, control, control_path, manifest,
    manifest_path, read_config_record, read_control, read_manifest, write_config_record,
    write_control, write_manifest,
};

use crate::error::CliError;

/// One of these files.
struct Record {
    path: fn(&Path) -> PathBuf,
    read: fn(&Path) -> Result<Option<Vec<u8>>, KeyError>,
    generation_of: fn(&[u8]) -> Result<Generation, RecordError>,
    /// The same content sealed with the active data key.
    anew: fn(&[u8], &KeySet) -> Result<Vec<u8>, RecordError>,
    write: fn(&Path, &[u8]) -> Result<(), KeyError>,
    /// The command that makes the file from what is there.
    remedy: &'static str,
}

const RECORDS: [Record; 3] = [
    Record {
        path: config_record_path,
        read: read_config_record,
        generation_of: config_record::generation_of,
        anew: |file, keys| ConfigRecord::open(file, keys)?.seal(keys, &LibraryRandom::new()),
        write: write_config_record,
        remedy: "pgseal config accept",
    },
    Record {
        path: manifest_path,
        read: read_manifest,
        generation_of: manifest::generation_of,
        anew: |file, keys| Manifest::open(file, keys)?.seal(keys, &LibraryRandom::new()),
        write: write_manifest,
        remedy: "pgseal manifest write",
    },
    Record {
        path: control_path,
        read: read_control,
        generation_of: control::generation_of,
        anew: |file, keys| {
            let (controls, flushed) = (open_controls(file, keys)?, open_flushed(file, keys)?);
            Ok(whole(&controls, flushed, keys, &LibraryRandom::new())?.to_vec())
        },
        write: write_control,
        remedy: "pgseal wal accept",
    },
];

/// Seals each of the files with the active data key that was sealed with another one. To be called
/// within [`pgseal_keys::update`].
///
/// # Errors
/// When a file cannot be opened or written.
pub fn seal_anew(root: &Path, keys: &KeySet) -> Result<(), CliError> {
    for record in &RECORDS {
        let Some(file) = (record.read)(root)? else { continue };
        if (record.generation_of)(&file) == Ok(keys.active()) {
            continue;
        }
        let sealed = (record.anew)(&file, keys).map_err(|why| {
            let path = (record.path)(root);
            CliError::Damaged(format!("{}: {why}; {} makes it anew", path.display(), record.remedy))
        })?;
        (record.write)(root, &sealed)?;
    }
    Ok(())
}
