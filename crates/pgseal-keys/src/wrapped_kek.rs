//! The copy of a KEK that a key store wrapped, as a keyring holds it.

use std::path::Path;

use data_encoding::HEXLOWER;
use pgseal_core::KeyringId;
use pgseal_plugin::{MAX_KEY_NAME_LEN, MAX_WRAPPED_LEN, WrappedKey};
use serde::{Deserialize, Serialize};

/// A KEK, wrapped by the key of a store. Only that store can unwrap this copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrappedKek {
    /// The name of the store's key, in the store's words: a hint, for people and for the plugin.
    pub key: String,
    /// The wrapped key, as lower-case hexadecimal.
    pub wrapped: String,
}

impl WrappedKek {
    pub(crate) fn new(answer: &WrappedKey) -> WrappedKek {
        WrappedKek { key: answer.key.clone(), wrapped: HEXLOWER.encode(&answer.wrapped) }
    }

    /// Checks the limits of the format, also of an answer that is about to be stored.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.key.len() > MAX_KEY_NAME_LEN || self.key.chars().any(char::is_control) {
            return Err("the name of the store's key is too long or has control characters");
        }
        self.bytes().map(|_| ())
    }

    /// The wrapped key.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, &'static str> {
        let bad = "the wrapped key is not hexadecimal of 1 to 1024 bytes";
        match HEXLOWER.decode(self.wrapped.as_bytes()) {
            Ok(bytes) if (1..=MAX_WRAPPED_LEN).contains(&bytes.len()) => Ok(bytes),
            _ => Err(bad),
        }
    }
}

/// What a new KEK brings along if a key store wraps it: a keyring that is made or wrapped again
/// with this KEK must hold the wrapped copy, and have the identity that the copy is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreCopy {
    #[serde(with = "crate::hex")]
    pub keyring_id: [u8; 16],
    pub wrapped_kek: WrappedKek,
}

impl StoreCopy {
    pub(crate) fn id(&self) -> KeyringId {
        KeyringId(self.keyring_id)
    }
}

/// What a key store needs of a keyring that is to be unlocked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locked<'a> {
    /// The identity of the keyring.
    pub id: KeyringId,
    /// The copy in the keyring; `None` if the KEK is under no store.
    pub wrapped_kek: Option<&'a WrappedKek>,
    /// The keyring, for messages.
    pub path: &'a Path,
    /// The data directory of the keyring, which must not hold the plugin.
    pub datadir: Option<&'a Path>,
}
