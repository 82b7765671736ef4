//! Where a keyring lies: in a data directory, or in a file of its own, as that of sealed columns.

use std::path::{Path, PathBuf};

use pgseal_keys::{KeyError, Keyring, datadir_of, update};

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::{as_owner, keys};

/// Where a keyring lies.
#[derive(Debug)]
pub enum KeyringPlace {
    /// In a data directory.
    DataDir(DataDir),
    /// In a file of its own.
    File(PathBuf),
}

impl KeyringPlace {
    /// Opens the data directory or the file at `path`. Root becomes the owner of the directory. A
    /// path of the keyring in a data directory stands for the data directory.
    ///
    /// # Errors
    /// As [`DataDir::open`]; [`KeyError::Insecure`] for a link.
    pub fn open(path: &Path) -> Result<KeyringPlace, CliError> {
        if !path.is_file() {
            return Ok(KeyringPlace::DataDir(DataDir::open(path)?));
        }
        let file = std::path::absolute(path).map_err(CliError::io(path, "resolve the path"))?;
        if let Some(datadir) = datadir_of(&file) {
            return Ok(KeyringPlace::DataDir(DataDir::open(datadir)?));
        }
        as_owner::step_down_beside(&file)?;
        if file.is_symlink() {
            return Err(CliError::Key(KeyError::Insecure {
                path: file,
                what: "it is a link, which would be replaced by a new file".to_owned(),
                remedy: "give the file itself".to_owned(),
            }));
        }
        Ok(KeyringPlace::File(file))
    }

    /// The data directory, if it lies in one.
    pub fn datadir(&self) -> Option<&DataDir> {
        match self {
            KeyringPlace::DataDir(dir) => Some(dir),
            KeyringPlace::File(_) => None,
        }
    }

    /// Reads the keyring.
    ///
    /// # Errors
    /// As [`keys::own_keyring`] and [`Keyring::load`].
    pub fn load(&self) -> Result<Keyring, CliError> {
        match self {
            KeyringPlace::DataDir(dir) => keys::own_keyring(dir),
            KeyringPlace::File(path) => Ok(Keyring::load(path)?),
        }
    }

    /// Changes the keyring, which no other program changes meanwhile, and returns what it is then.
    ///
    /// # Errors
    /// Those of `change`; as [`keys::change_own`].
    pub fn change(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<(), KeyError>,
    ) -> Result<Keyring, CliError> {
        match self {
            KeyringPlace::DataDir(dir) => keys::change_own(dir, change),
            KeyringPlace::File(path) => {
                Ok(update(path, |keyring| change(keyring).map(|()| keyring.clone()))?)
            }
        }
    }
}
