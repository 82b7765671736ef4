//! The new data directory: whether it is free, and what is removed after a failure.

use std::fs;
use std::io;
use std::path::Path;

use pgseal_keys::{KEYRING_DIR, keyring_path};

use crate::error::CliError;

/// Whether the directory exists.
///
/// # Errors
/// When it is not empty, or is no directory.
pub fn check(dir: &Path) -> Result<bool, CliError> {
    let refused = |what, remedy| Err(CliError::Exists { path: dir.to_owned(), what, remedy });
    let exists = |what| refused(what, "choose another directory, or empty this one yourself");
    let mut listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return exists("there is a file of this name");
        }
        Err(error) => return Err(CliError::io(dir, "read the directory")(error)),
    };
    if keyring_path(dir).exists() {
        return refused(
            "there is a sealed data directory already, which was left alone",
            "\"pgseal status DIR\" and \"pgseal key check DIR\" say what it is; for a new one choose \
             another directory",
        );
    }
    if listing.next().is_some() {
        return exists("the directory is not empty");
    }
    Ok(true)
}

/// Removes the directory `pgseal` after an initdb that failed and removed its own files.
pub fn remove_keyring(dir: &Path, existed: bool) -> Result<(), CliError> {
    let own = dir.join(KEYRING_DIR);
    match fs::remove_dir_all(&own) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(CliError::io(&own, "remove the directory")(error)),
    }
    if !existed {
        // It stays if somebody else has put a file there.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}

/// Removes everything in the directory, which was empty before initdb.
pub fn remove_all(dir: &Path, existed: bool) -> Result<(), CliError> {
    // And in a WAL directory elsewhere (initdb -X).
    let mut roots = vec![dir.to_owned()];
    if let Ok(wal) = fs::read_link(dir.join("pg_wal")) {
        roots.push(wal);
    }
    for root in &roots {
        let listing = fs::read_dir(root).map_err(CliError::io(root, "read the directory"))?;
        for item in listing.flatten() {
            let is_dir = item.file_type().is_ok_and(|kind| kind.is_dir());
            let path = item.path();
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(CliError::io(&path, "remove what was half-made"))?;
        }
    }
    if !existed {
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}
