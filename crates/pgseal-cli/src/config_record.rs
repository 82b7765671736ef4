//! The record of a locked configuration (`spec/config-lock.md`): whether it is valid, and what
//! commands other than `pgseal config` have to do with it.

use std::io::{self, Write};
use std::path::Path;

use pgseal_core::KeySet;
use pgseal_keys::config_record::ConfigRecord;
use pgseal_keys::{Keyring, keyring_path, read_config_record};

use crate::error::CliError;
use crate::out::Out;

/// The record of a locked directory; `None` for a directory that is not locked; or why the record
/// is not valid.
///
/// # Errors
/// When the file cannot be read.
pub fn valid(root: &Path, keys: &KeySet) -> Result<Result<Option<ConfigRecord>, String>, CliError> {
    let least = keys.config_lock;
    let Some(bytes) = read_config_record(root)? else {
        return Ok(match least {
            0 => Ok(None),
            _ => Err("the record of the locked configuration is gone".to_owned()),
        });
    };
    let record = match ConfigRecord::open(&bytes, keys) {
        Ok(record) => record,
        Err(why) => return Ok(Err(why.to_string())),
    };
    Ok(if record.sequence < least {
        Err("it is an older copy of the record".to_owned())
    } else if !record.locked && least > 0 {
        Err("it says that nothing is locked, and the keyring says otherwise; an unlock may have \
             been cut off"
            .to_owned())
    } else {
        Ok(Some(record).filter(|record| record.locked))
    })
}

/// Whether the keyring of a data directory says that the configuration is locked.
pub fn is_locked(root: &Path) -> bool {
    Keyring::load(&keyring_path(root)).is_ok_and(|keyring| keyring.config_lock().is_some())
}

/// Prints what to do after a command that has changed a locked configuration.
pub fn print_if_locked(out: &mut Out, root: &Path) -> io::Result<()> {
    if !is_locked(root) {
        return Ok(());
    }
    writeln!(
        out,
        "The configuration is locked, so no server reads it yet: pgseal config accept {}",
        root.display()
    )
}
