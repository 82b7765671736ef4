//! The directory `pgseal` of a data directory, at the beginning and the end of a conversion.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pgseal_convert::{Disk, Journal, Media, Operation};
use pgseal_keys::{KEYRING_DIR, Keyring, config_record_path, keyring_path};

use crate::error::CliError;

/// Makes `pgseal/`, if it is not there.
pub fn make_dir(root: &Path) -> Result<(), CliError> {
    let dir = root.join(KEYRING_DIR);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CliError::io(&dir, "make the directory")(error))
        }
        _ => sync_dir(root),
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
    // What says that configuration is locked has gone with the keyring.
    remove_if_there(&config_record_path(root))?;
    sync_dir(&root.join(KEYRING_DIR))
}

/// The keyring as it was before `rekey` changed it, as long as no file has its new data key.
fn kept_path(root: &Path) -> PathBuf {
    root.join(KEYRING_DIR).join("keyring.before")
}

/// Gives the keyring a second name, under which it stays when another takes its place.
pub fn keep_keyring(root: &Path) -> Result<(), CliError> {
    let (path, kept) = (keyring_path(root), kept_path(root));
    remove_if_there(&kept)?;
    fs::hard_link(&path, &kept).map_err(CliError::io(&kept, "keep the keyring as it is"))?;
    sync_dir(&root.join(KEYRING_DIR))
}

/// What was kept is needed no more: files have the new data key.
pub fn forget_kept_keyring(root: &Path) -> Result<(), CliError> {
    remove_if_there(&kept_path(root))
}

/// Takes back what was done to the keyring before any file had another key.
pub fn undo_keyring(root: &Path, journal: &Journal) -> Result<(), CliError> {
    let (path, kept) = (keyring_path(root), kept_path(root));
    match journal.operation {
        // Only its own: another one may have been put there meanwhile, or before.
        Operation::Encrypt => match Keyring::load(&path) {
            Ok(keyring) if keyring.id().to_string() == journal.keyring => remove_if_there(&path)?,
            _ => return Ok(()),
        },
        Operation::Rekey if kept.exists() => {
            fs::rename(&kept, &path)
                .map_err(CliError::io(&path, "put the keyring back as it was"))?;
            // Two names of one file are not renamed: it was never changed.
            remove_if_there(&kept)?;
        }
        _ => return Ok(()),
    }
    sync_dir(&root.join(KEYRING_DIR))
}

fn sync_dir(dir: &Path) -> Result<(), CliError> {
    Disk.sync_dir(dir).map_err(CliError::io(dir, "sync the directory"))
}

/// Removes a file; none there is fine.
fn remove_if_there(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::io(path, "remove the file")(error))
        }
        _ => Ok(()),
    }
}
