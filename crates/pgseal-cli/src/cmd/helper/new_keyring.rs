//! `pgseal helper new-keyring`: the keyring of a data directory that initdb is making.

use std::env;
use std::path::{Path, PathBuf};

use pgseal_core::Suite;
use pgseal_keys::{Keyring, Provider, kek_from_fd, keyring_path};

use crate::environment::{PROVIDER, kek_fd, variable};
use crate::error::CliError;
use crate::{as_owner, audit, keys};

/// Makes `DATADIR/pgseal/keyring`, or copies `from`.
pub fn run(
    dir: &Path,
    provider: Option<String>,
    suite: Option<Suite>,
    from: Option<PathBuf>,
) -> Result<(), CliError> {
    if dir.is_dir() {
        as_owner::step_down(dir)?;
    }
    let target = keyring_path(dir);
    let provider = match provider {
        Some(uri) => Some(uri),
        None => variable(PROVIDER)?,
    };
    let from = from.or_else(|| {
        env::var_os("PGSEAL_KEYRING_FROM").filter(|path| !path.is_empty()).map(PathBuf::from)
    });
    if let Some(from) = from {
        let mut keyring = Keyring::load(&from)?;
        // Otherwise a copy that the key cannot open would be noticed only after initdb has
        // finished.
        let kek = match (&provider, kek_fd()?) {
            (Some(uri), None) => keys::kek(&keyring, Some(uri))?,
            _ => keys::kek(&keyring, None)?,
        };
        keyring.unlock(&kek)?;
        if keyring.config_lock().is_some() {
            // The new directory has a configuration of its own.
            keyring.set_config_lock(&kek, None)?;
        }
        return Ok(keyring.store_new(&target)?);
    }
    let Some(uri) = provider else {
        return Err(CliError::Usage(format!(
            "{}: a new keyring needs a key; set PGSEAL_PROVIDER (env:NAME, file:PATH, ...)",
            dir.display()
        )));
    };
    let suite = match suite {
        Some(suite) => suite,
        None => suite_from_environment()?,
    };
    let provider = Provider::parse_typed(&uri)?;
    let kek = match kek_fd()? {
        Some(fd) => kek_from_fd(fd)?,
        None => provider.kek_for_new()?,
    };
    let keyring = Keyring::create(suite, &provider.to_string(), &kek)?;
    audit::using_at(dir);
    audit::opened(&keyring, &kek)?;
    Ok(keyring.store_new(&target)?)
}

fn suite_from_environment() -> Result<Suite, CliError> {
    match variable("PGSEAL_SUITE")? {
        Some(name) => {
            name.parse().map_err(|error| CliError::Usage(format!("PGSEAL_SUITE: {error}")))
        }
        None => Ok(Suite::Aes256Gcm),
    }
}
