//! A key file that only root can read: it is read before root becomes the owner of a data
//! directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use pgseal_keys::{Kek, Provider};

use crate::environment;
use crate::error::CliError;

/// The source of an existing key on the command line.
static GIVEN: Mutex<Option<String>> = Mutex::new(None);
/// The key that was read before root stepped down.
static AHEAD: Mutex<Option<(Provider, Kek)>> = Mutex::new(None);

/// Remembers the source on the command line, for [`read_ahead`].
pub fn remember_given(uri: &str) {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(uri.to_owned());
}

/// Reads the key file that the command line or `PGSEAL_PROVIDER` names, if it belongs to root.
///
/// # Errors
/// Errors of the provider.
pub fn read_ahead() -> Result<(), CliError> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let uri = match given {
        Some(uri) => Some(uri),
        None => environment::variable(environment::PROVIDER)?,
    };
    let provider = uri.and_then(|uri| Provider::parse_typed(&uri).ok());
    let Some(provider @ Provider::File(_)) = provider else { return Ok(()) };
    let Provider::File(path) = &provider else { return Ok(()) };
    let is_roots = fs::metadata(path).is_ok_and(|meta| meta.uid() == 0 && meta.is_file());
    if is_roots {
        let key = provider.kek(None)?;
        *AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Some((provider, key));
    }
    Ok(())
}

/// The key that [`read_ahead`] read from this provider, if it read one.
pub fn of(provider: &Provider) -> Option<Kek> {
    let ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    let (known, key) = ahead.as_ref()?;
    (known == provider).then(|| key.duplicate())
}
