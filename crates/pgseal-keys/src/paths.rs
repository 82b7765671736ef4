//! Where the files of pgseal lie in a data directory.

use std::path::{Path, PathBuf};

use crate::config_record::CONFIG_RECORD_FILE;
use crate::control::CONTROL_FILE;
use crate::manifest::MANIFEST_FILE;
use crate::renewal::RENEWAL_FILE;

/// The name of pgseal's directory in a data directory.
pub const KEYRING_DIR: &str = "pgseal";
/// The name of the keyring in [`KEYRING_DIR`].
pub const KEYRING_FILE: &str = "keyring";

/// `DATADIR/pgseal/keyring`.
#[must_use]
pub fn keyring_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(KEYRING_FILE)
}

/// `DATADIR/pgseal/config`.
#[must_use]
pub fn config_record_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(CONFIG_RECORD_FILE)
}

/// `DATADIR/pgseal/manifest`.
#[must_use]
pub fn manifest_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(MANIFEST_FILE)
}

/// `DATADIR/pgseal/control`.
#[must_use]
pub fn control_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(CONTROL_FILE)
}

/// `DATADIR/pgseal/renewal`.
#[must_use]
pub fn renewal_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(RENEWAL_FILE)
}

/// The data directory of a keyring at this path; `None` if the path is not `DIR/pgseal/keyring`.
#[must_use]
pub fn datadir_of(keyring: &Path) -> Option<&Path> {
    let datadir = keyring.parent()?.parent()?;
    (keyring_path(datadir) == keyring).then_some(datadir)
}
