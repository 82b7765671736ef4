//! The environment variables that name keys, keyrings and providers.

use std::env;

use pgseal_keys::KeyError;

use crate::error::CliError;

/// Names a descriptor with the raw KEK.
pub const KEK_FD: &str = "PGSEAL_KEK_FD";
/// Names the provider.
pub const PROVIDER: &str = "PGSEAL_PROVIDER";

/// The number in `PGSEAL_KEK_FD`.
pub fn kek_fd() -> Result<Option<u32>, KeyError> {
    let Some(text) = env::var_os(KEK_FD) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| KeyError::ProviderFailed {
        provider: KEK_FD.to_owned(),
        what: "not the number of a descriptor; pgseal sets it itself: unset it".to_owned(),
    })
}

/// The value of a variable, if it is set and not empty.
pub fn variable(name: &str) -> Result<Option<String>, CliError> {
    match env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(CliError::Usage(format!(
            "the environment variable {name} is not UTF-8; set it anew or unset it"
        ))),
    }
}

/// Names the keyrings that a server may use.
pub const KEYRING_ID: &str = "PGSEAL_KEYRING_ID";

/// With the value `locked`: the server's configuration must be locked.
pub const CONFIG: &str = "PGSEAL_CONFIG";

/// Names the store of the anchor.
pub const ANCHOR: &str = "PGSEAL_ANCHOR";
