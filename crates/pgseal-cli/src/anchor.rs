//! The anchor of a data directory (`spec/anchor.md`): its store, and what the directory says of
//! itself.

use std::path::Path;

use pgseal_core::KeySet;
use pgseal_keys::AnchorStore;
use pgseal_keys::anchor::Directory;
use pgseal_keys::control::open_controls;
use pgseal_keys::read_control;

use crate::environment;
use crate::error::CliError;
use crate::manifest;

/// The store that a command was given, or that `PGSEAL_ANCHOR` names. The store is not below the
/// data directory.
///
/// # Errors
/// When no store is named, or not a usable one.
pub fn store(given: Option<&str>, root: &Path) -> Result<AnchorStore, CliError> {
    let uri = match given {
        Some(uri) => Some(uri.to_owned()),
        None => environment::variable(environment::ANCHOR)?,
    };
    let Some(uri) = uri else {
        return Err(CliError::Usage(
            "which anchor? give --anchor STORE, or set PGSEAL_ANCHOR as the server has it"
                .to_owned(),
        ));
    };
    let store = AnchorStore::parse(&uri)?;
    if let AnchorStore::Directory(dir) = &store {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if real(dir).starts_with(real(root)) {
            return Err(CliError::Usage(format!(
                "{}: an anchor below the data directory is copied back with it; use a directory on \
                 another volume",
                store.shown()
            )));
        }
    }
    Ok(store)
}

/// What the directory of a stopped server says of itself.
///
/// # Errors
/// When a file cannot be read.
pub fn directory(root: &Path, keys: &KeySet) -> Result<Directory, CliError> {
    let record = read_control(root)?;
    let controls = record.and_then(|file| open_controls(&file, keys).ok());
    Ok(Directory {
        epoch: controls.map(|controls| controls.epoch),
        is_backup: root.join("backup_label").exists(),
        stopped: manifest::stopped(root, keys)?,
    })
}
