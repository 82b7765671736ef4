//! The directory `pgseal` of a data directory, at the beginning and the end of a conversion.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use pgseal_keys::{KEYRING_DIR, Keyring, keyring_path};

use crate::error::CliError;

/// Makes `pgseal/`, if it is not there.
pub fn make_dir(root: &Path) -> Result<(), CliError> {
    let dir = root.join(KEYRING_DIR);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CliError::io(&dir, "make the directory")(error))
        }
        _ => Ok(fs::File::open(root)
            .and_then(|dir| dir.sync_all())
            .map_err(CliError::io(root, "sync the directory"))?),
    }
}

/// The name under which the keyring of a cluster that is plain again stays, for sealed backups.
pub fn retired_name(keyring: &Keyring) -> String {
    let id = keyring.id().to_string();
    format!("keyring-{}.retired", id.get(..8).unwrap_or(&id))
}

/// Takes the keyring out of use, without losing it.
pub fn retire_keyring(root: &Path) -> Result<(), CliError> {
    let path = keyring_path(root);
    if !path.exists() {
        return Ok(());
    }
    let retired = root.join(KEYRING_DIR).join(retired_name(&Keyring::load(&path)?));
    fs::rename(&path, &retired).map_err(CliError::io(&path, "put the keyring aside"))?;
    let dir = root.join(KEYRING_DIR);
    fs::File::open(&dir)
        .and_then(|dir| dir.sync_all())
        .map_err(CliError::io(&dir, "sync the directory"))
}

/// Removes a file; none there is fine.
pub fn remove_if_there(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::io(path, "remove the file")(error))
        }
        _ => Ok(()),
    }
}
