//! The keyring at the start and the end of a conversion: kept, restored, or put aside.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pgseal_convert::{Disk, Journal, Media, Operation};
use pgseal_keys::{
    KEYRING_DIR, Keyring, config_record_path, control_path, keyring_path, manifest_path,
};

use crate::error::CliError;
use crate::small_file::remove_if_there;

/// Makes the directory `pgseal`, if it does not exist.
pub fn make_dir(root: &Path) -> Result<(), CliError> {
    let dir = root.join(KEYRING_DIR);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CliError::io(&dir, "make the directory")(error))
        }
        _ => sync_dir(root),
    }
}

/// The new name of the keyring of a cluster that was decrypted: sealed backups still need it.
pub fn retired_name(keyring: &Keyring) -> String {
    let id = keyring.id().to_string();
    format!("keyring-{}.retired", id.get(..8).unwrap_or(&id))
}

/// Renames the keyring of a cluster that was decrypted.
pub fn retire_keyring(root: &Path) -> Result<(), CliError> {
    let path = keyring_path(root);
    if !path.exists() {
        return Ok(());
    }
    let retired = root.join(KEYRING_DIR).join(retired_name(&Keyring::load(&path)?));
    fs::rename(&path, &retired).map_err(CliError::io(&path, "put the keyring aside"))?;
    // Without the keyring the configuration is not locked, so its record is not needed.
    remove_if_there(&config_record_path(root))?;
    remove_if_there(&manifest_path(root))?;
    remove_if_there(&control_path(root))?;
    sync_dir(&root.join(KEYRING_DIR))
}

/// The keyring before `rekey` changed it; it is kept until a file has the new data key.
fn kept_path(root: &Path) -> PathBuf {
    root.join(KEYRING_DIR).join("keyring.before")
}

/// Links the keyring to a second name, so that it stays when it is replaced.
pub fn keep_keyring(root: &Path) -> Result<(), CliError> {
    let (path, kept) = (keyring_path(root), kept_path(root));
    remove_if_there(&kept)?;
    fs::hard_link(&path, &kept).map_err(CliError::io(&kept, "keep the keyring as it is"))?;
    sync_dir(&root.join(KEYRING_DIR))
}

/// Removes the kept keyring: files have the new data key now.
pub fn forget_kept_keyring(root: &Path) -> Result<(), CliError> {
    remove_if_there(&kept_path(root))
}

/// Restores the keyring of a conversion that was interrupted before it changed a file.
pub fn undo_keyring(root: &Path, journal: &Journal) -> Result<(), CliError> {
    let (path, kept) = (keyring_path(root), kept_path(root));
    match journal.operation {
        // Only the keyring of this conversion: the file may be another one.
        Operation::Encrypt => match Keyring::load(&path) {
            Ok(keyring) if keyring.id().to_string() == journal.keyring => remove_if_there(&path)?,
            _ => return Ok(()),
        },
        Operation::Rekey if kept.exists() => {
            fs::rename(&kept, &path)
                .map_err(CliError::io(&path, "put the keyring back as it was"))?;
            // rename() does nothing if both names are the same file: the keyring was not changed
            // yet.
            remove_if_there(&kept)?;
        }
        _ => return Ok(()),
    }
    sync_dir(&root.join(KEYRING_DIR))
}

fn sync_dir(dir: &Path) -> Result<(), CliError> {
    Disk.sync_dir(dir).map_err(CliError::io(dir, "sync the directory"))
}
