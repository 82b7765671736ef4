//! The slots of a keyring: the wrapped copies of the keyring key, one for each KEK that opens it
//! (`spec/key-hierarchy.md`, section 3).

use pgseal_core::KeyringId;
use serde::{Deserialize, Serialize};

use crate::argon::Argon2idParams;
use crate::hex;
use crate::wrap::{self, Wrapped};
use crate::wrapped_kek::WrappedKek;

/// Longest provider URI, in bytes.
pub(crate) const MAX_URI_LEN: usize = 4096;
/// The most recipients that a keyring has.
pub(crate) const MAX_RECIPIENTS: usize = 16;
const MAX_NAME_LEN: usize = 64;

/// Another KEK that opens the keyring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipient {
    pub name: String,
    pub created: String,
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<Argon2idParams>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped_kek: Option<WrappedKek>,
    #[serde(with = "hex")]
    pub key_check: [u8; 8],
    pub keyring_key: Wrapped,
}

/// One wrapped copy of the keyring key, with what must be known of the KEK that opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    /// The name of the recipient; `None`: the keyring's own provider.
    pub name: Option<&'a str>,
    pub provider: &'a str,
    pub passphrase: Option<&'a Argon2idParams>,
    pub wrapped_kek: Option<&'a WrappedKek>,
    pub key_check: &'a [u8; 8],
    pub keyring_key: &'a Wrapped,
}

impl Slot<'_> {
    /// The associated data of the wrapped keyring key.
    pub(crate) fn aad(&self, id: KeyringId) -> Vec<u8> {
        match self.name {
            None => wrap::keyring_key_aad(id),
            Some(name) => wrap::recipient_aad(id, name),
        }
    }

    /// Checks the limits of the format.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        check_uri_shape(self.provider)?;
        if self.passphrase.is_some() != self.provider.starts_with("passphrase:") {
            return Err("provider and passphrase parameters do not fit together");
        }
        if let Some(params) = self.passphrase {
            params.check()?;
        }
        if let Some(wrapped_kek) = self.wrapped_kek {
            let scheme = self.provider.split(':').next().unwrap_or_default();
            if ["env", "file", "command", "passphrase"].contains(&scheme) {
                return Err("a wrapped key under a provider that is no key store");
            }
            wrapped_kek.check()?;
        }
        Ok(())
    }
}

/// Whether this can be the name of a recipient: 1 to 64 lower-case letters, digits, `.`, `_` and
/// `-`, beginning with a letter or digit.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_NAME_LEN).contains(&text.len())
        && text.bytes().next().is_some_and(allowed)
        && text.bytes().all(|byte| allowed(byte) || b"._-".contains(&byte))
}

/// Checks what is true of every provider's URI, also of providers that this version does not know.
pub(crate) fn check_uri_shape(uri: &str) -> Result<(), &'static str> {
    if uri.len() > MAX_URI_LEN {
        return Err("the provider URI is too long");
    }
    if uri.chars().any(|c| c.is_control()) {
        return Err("the provider URI has control characters");
    }
    if !uri.contains(':') {
        return Err("the provider URI has no scheme");
    }
    Ok(())
}
