//! The key-encryption key (KEK), and the text forms of a raw key.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::{BASE64, BASE64_NOPAD, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};
use pgseal_crypto::Service;
use zeroize::{Zeroize, Zeroizing};

use crate::argon::Argon2idParams;
use crate::error::KeyError;
use crate::wrap;
use crate::wrapped_kek::StoreCopy;

/// A 256-bit key-encryption key. Zeroized on drop, never cloned, never printed.
///
/// A KEK that was derived from a passphrase keeps the Argon2id parameters, and a new KEK that a key
/// store wrapped keeps the wrapped copy, because a keyring that is created or wrapped again with
/// this KEK must store them.
pub struct Kek {
    key: Box<[u8; 32]>,
    params: Option<Argon2idParams>,
    store: Option<StoreCopy>,
    origin: Option<String>,
}

impl Kek {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// A KEK whose bytes `fill` writes in place, which leaves no copy on the stack.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn init_with<E>(fill: impl FnOnce(&mut [u8; 32]) -> Result<(), E>) -> Result<Kek, E> {
        let mut kek = Kek { key: Box::new([0; 32]), params: None, store: None, origin: None };
        fill(&mut kek.key)?;
        Ok(kek)
    }

    /// A KEK from its text: 64 hexadecimal digits or base64 (padded or not), with any ASCII white
    /// space around it. `origin` names the source in the error.
    ///
    /// # Errors
    /// [`KeyError::BadKeyText`], which does not show the text.
    pub fn from_text(text: &[u8], origin: &str) -> Result<Kek, KeyError> {
        let text = text.trim_ascii();
        let encoding: Encoding = match text.len() {
            64 => HEXLOWER_PERMISSIVE,
            44 => BASE64,
            43 => BASE64_NOPAD,
            _ => return Err(KeyError::BadKeyText { origin: origin.to_owned() }),
        };
        // For base64 with padding, the decoder needs a byte more than the key has.
        let mut room = Zeroizing::new([0u8; 33]);
        let bad = || KeyError::BadKeyText { origin: origin.to_owned() };
        let room_len = encoding.decode_len(text.len()).map_err(|_| bad())?;
        let room = room.get_mut(..room_len).ok_or_else(bad)?;
        let key_len = encoding.decode_mut(text, room).map_err(|_| bad())?;
        let decoded = room.get(..key_len).filter(|key| key.len() == Kek::LEN).ok_or_else(bad)?;
        Kek::init_with(|key| {
            key.copy_from_slice(decoded);
            Ok(())
        })
    }

    /// The key itself, for the cryptographic primitives.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.key
    }

    /// The parameters that the KEK was derived with; `None` if it is a raw key.
    #[must_use]
    pub fn params(&self) -> Option<&Argon2idParams> {
        self.params.as_ref()
    }

    /// The provider that gave the key, as messages show it; `None` if no provider did.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// A copy of the key. The type does not implement `Clone`, so that each copy is explicit.
    #[must_use]
    pub fn duplicate(&self) -> Kek {
        Kek {
            key: self.key.clone(),
            params: self.params.clone(),
            store: self.store.clone(),
            origin: self.origin.clone(),
        }
    }

    pub(crate) fn with_origin(mut self, origin: String) -> Kek {
        self.origin = Some(origin);
        self
    }

    pub(crate) fn with_params(mut self, params: Argon2idParams) -> Kek {
        self.params = Some(params);
        self
    }

    pub(crate) fn with_store(mut self, store: StoreCopy) -> Kek {
        self.store = Some(store);
        self
    }

    /// The copy that a key store wrapped, of a new KEK.
    pub(crate) fn store(&self) -> Option<&StoreCopy> {
        self.store.as_ref()
    }

    /// The content of the memfd that `PGSEAL_KEK_FD` names: the 32 raw bytes and, as JSON, the
    /// parameters of a passphrase or the copy that a key store wrapped. A new keyring must store
    /// these, and the helper that makes it sees neither the passphrase nor the store.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the JSON cannot be written.
    pub fn to_memfd_bytes(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let params = match (&self.params, &self.store) {
            (Some(params), _) => serde_json::to_vec(params),
            (None, Some(store)) => serde_json::to_vec(store),
            (None, None) => Ok(Vec::new()),
        };
        let params = params.map_err(|_| KeyError::Internal("writing JSON"))?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(Kek::LEN + params.len()));
        bytes.extend_from_slice(&*self.key);
        bytes.extend_from_slice(&params);
        Ok(bytes)
    }

    /// The reverse of [`Kek::to_memfd_bytes`].
    ///
    /// # Errors
    /// [`KeyError::ProviderFailed`] if the bytes are too short or the parameters are not valid.
    pub(crate) fn from_memfd_bytes(bytes: &[u8], provider: &str) -> Result<Kek, KeyError> {
        let failed = |what: &str| KeyError::ProviderFailed {
            provider: provider.to_owned(),
            what: format!("{what}; PGSEAL_KEK_FD is set by pgseal itself: unset it"),
        };
        let (raw, params) =
            bytes.split_first_chunk::<32>().ok_or_else(|| failed("holds less than one key"))?;
        let kek = Kek::init_with(|key| {
            key.copy_from_slice(raw);
            Ok::<(), KeyError>(())
        })?;
        if params.is_empty() {
            return Ok(kek);
        }
        if let Ok(store) = serde_json::from_slice::<StoreCopy>(params) {
            store.wrapped_kek.check().map_err(failed)?;
            return Ok(kek.with_store(store));
        }
        let params: Argon2idParams =
            serde_json::from_slice(params).map_err(|_| failed("holds more than one key"))?;
        params.check().map_err(failed)?;
        Ok(kek.with_params(params))
    }
}

impl Argon2idParams {
    /// Derives the KEK from a passphrase.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the parameters are out of range.
    pub fn derive(&self, passphrase: &[u8]) -> Result<Kek, KeyError> {
        pgseal_crypto::check(Service::Argon2id)?;
        let broken = || KeyError::Internal("Argon2id");
        self.check().map_err(|_| broken())?;
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(Kek::LEN))
            .map_err(|_| broken())?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let kek = Kek::init_with(|key| {
            argon.hash_password_into(passphrase, &self.salt, key).map_err(|_| broken())
        })?;
        Ok(kek.with_params(self.clone()))
    }
}

/// A KEK of equal bytes, for tests.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn kek(byte: u8) -> Kek {
    Kek::init_with(|key| {
        key.fill(byte);
        Ok::<(), ()>(())
    })
    .unwrap()
}

impl Drop for Kek {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek(..)")
    }
}

/// A new random key as 64 hexadecimal digits, as `pgseal key new` prints it.
///
/// # Errors
/// [`KeyError::Internal`] when there are no random numbers.
pub fn generate_raw_key() -> Result<Zeroizing<String>, KeyError> {
    let mut raw = Zeroizing::new([0u8; Kek::LEN]);
    wrap::random(&mut *raw)?;
    Ok(Zeroizing::new(HEXLOWER.encode(&*raw)))
}
