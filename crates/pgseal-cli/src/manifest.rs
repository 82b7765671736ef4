//! The manifest of a data directory (`spec/manifest.md`): what it says of the files, and writing
//! it.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgseal_core::random::LibraryRandom;
use pgseal_core::{Fingerprint, KeySet};
use pgseal_keys::manifest::{Difference, Listed, Manifest, control_digest, difference};
use pgseal_keys::{manifest_path, read_manifest, write_manifest};
use pgseal_pgdata::{catalog_version, is_shut_down};

use crate::error::CliError;
use crate::scan::{Scan, Seen};
use crate::small_file;
use crate::storage::ReadOnly;

/// What is known of the files of a data directory as a whole.
#[derive(Debug)]
pub enum Known {
    /// The manifest lists all files as they must be.
    Whole(Manifest),
    /// Nothing, for this reason. A server starts nevertheless.
    Nothing(String),
    /// Nothing, for this reason. No server starts.
    Refused(String),
}

/// Reads the manifest of a data directory on which no server runs.
///
/// # Errors
/// When a file cannot be read.
pub fn read(root: &Path, keys: &KeySet) -> Result<Known, CliError> {
    let control = match control(root) {
        Ok(control) => control,
        Err(error) => return Ok(Known::Nothing(format!("global/pg_control: {error}"))),
    };
    if !is_shut_down(&control) {
        // That of a base backup which no server has used yet.
        let manifest = read_manifest(root)?.and_then(|bytes| Manifest::open(&bytes, keys).ok());
        if let Some(manifest) = manifest.filter(|found| found.is_whole && found.fits(&control)) {
            return Ok(Known::Whole(manifest));
        }
        let why = "the server was not shut down cleanly, or follows another one";
        return Ok(Known::Nothing(why.to_owned()));
    }
    let Some(bytes) = read_manifest(root)? else {
        return Ok(Known::Refused("the manifest is gone".to_owned()));
    };
    Ok(match Manifest::open(&bytes, keys) {
        Err(why) => Known::Refused(why.to_string()),
        Ok(manifest) if !manifest.fits(&control) => Known::Refused(format!(
            "manifest {} is not that of the last shutdown: it or global/pg_control is an older copy",
            manifest.number
        )),
        Ok(manifest) if !manifest.is_whole && *manifest.writer == *b"postgres" => {
            Known::Nothing("the server ended while it was starting the last time".to_owned())
        }
        Ok(manifest) if !manifest.is_whole => Known::Nothing(format!(
            "{} changed the files of the stopped server on {}",
            String::from_utf8_lossy(&manifest.writer),
            manifest.date()
        )),
        Ok(manifest) => Known::Whole(manifest),
    })
}

/// Whether the server of a data directory was shut down cleanly, as a primary.
pub fn is_stopped(root: &Path) -> bool {
    control(root).is_ok_and(|control| is_shut_down(&control))
}

/// The number of the manifest and the digest of `pg_control`, if the server was shut down cleanly
/// and the two fit.
///
/// # Errors
/// When the manifest cannot be read.
pub fn stopped(root: &Path, keys: &KeySet) -> Result<Option<(u64, [u8; 32])>, CliError> {
    let control = control(root).unwrap_or_default();
    if !is_shut_down(&control) {
        return Ok(None);
    }
    let manifest = read_manifest(root)?.and_then(|bytes| Manifest::open(&bytes, keys).ok());
    let manifest = manifest.filter(|manifest| manifest.fits(&control));
    Ok(manifest.map(|manifest| (manifest.number, control_digest(&control))))
}

/// The content of `pg_control`, also while a conversion keeps it aside.
pub fn control(root: &Path) -> io::Result<Vec<u8>> {
    match small_file::read(&root.join("global/pg_control")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            small_file::read(&root.join("pgseal/pg_control"))
        }
        read => read,
    }
}

/// The files that differ from the manifest, and how.
///
/// # Errors
/// When a file cannot be read.
pub fn compare(
    root: &Path,
    scan: &Scan,
    manifest: &Manifest,
) -> Result<Vec<(String, Difference)>, CliError> {
    let control = control(root).map_err(CliError::io(root, "read global/pg_control"))?;
    let found = fingerprints(scan, &control)?;
    let mut differences = Vec::new();
    for listed in &manifest.files {
        let at = found.binary_search_by(|file| file.path.cmp(&listed.path)).ok();
        let difference = match at.and_then(|at| found.get(at)) {
            Some(file) => difference(&listed.fingerprint, &file.fingerprint),
            None if listed.fingerprint.is_empty() => None,
            None if pgseal_pgdata::classify(&listed.path).is_map_of_hints() => None,
            None => Some(Difference::Missing),
        };
        differences.extend(difference.map(|difference| (text(&listed.path), difference)));
    }
    for file in &found {
        let (first, number) = pgseal_pgdata::segment_of(&file.path);
        if number > 0 && manifest.find(&file.path).is_none() && manifest.find(first).is_some() {
            differences.push((text(&file.path), Difference::SegmentAdded));
        }
    }
    Ok(differences)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The files that a manifest lists, as they are.
fn fingerprints(scan: &Scan, control: &[u8]) -> Result<Vec<Listed>, CliError> {
    let version = catalog_version(control);
    let mut files = Vec::new();
    for entry in &scan.entries {
        let rel = entry.rel.as_os_str().as_bytes();
        let is_file = !matches!(entry.seen, Seen::Special | Seen::Dangling(_) | Seen::Gone);
        if !is_file || !entry.class.is_listed_in(rel, version) {
            continue;
        }
        let fingerprint =
            ReadOnly::open(&entry.path, false).and_then(|file| Fingerprint::of(&file));
        let fingerprint = fingerprint.map_err(CliError::io(&entry.path, "read the file"))?;
        files.push(Listed { path: rel.into(), fingerprint });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Writes the manifest of the files as they are. The server was shut down cleanly, and none runs.
///
/// # Errors
/// When a file cannot be read, or the manifest cannot be written.
pub fn write(root: &Path, scan: &Scan, keys: &KeySet) -> Result<Manifest, CliError> {
    let path = manifest_path(root);
    let control = control(root).map_err(CliError::io(root, "read global/pg_control"))?;
    let before = read_manifest(root)?.and_then(|bytes| Manifest::open(&bytes, keys).ok());
    let before = before.map_or(0, |manifest| manifest.number);
    let files = fingerprints(scan, &control)?;
    let manifest = Manifest::after(before, b"pgseal", true, vec![control_digest(&control)], files);
    let sealed = manifest
        .seal(keys, &LibraryRandom::new())
        .map_err(|error| CliError::NotNow(format!("{}: {error}", path.display())))?;
    write_manifest(root, &sealed)?;
    Ok(manifest)
}
