//! The key-encryption key (KEK), and the text forms of a raw key.

use std::fmt;

use data_encoding::{BASE64, BASE64_NOPAD, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};
use zeroize::{Zeroize, Zeroizing};

use crate::argon::Argon2idParams;
use crate::error::KeyError;
use crate::wrap;

/// A 256-bit key-encryption key. Zeroized on drop, never cloned, never printed.
///
/// A KEK made from a passphrase remembers the parameters it was derived with, because a keyring
/// that is created or re-keyed with it must hold them.
pub struct Kek {
    key: Box<[u8; 32]>,
    params: Option<Argon2idParams>,
    origin: Option<String>,
}

impl Kek {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// A KEK whose bytes `fill` writes in place, so that no copy is left on the stack.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn init_with<E>(fill: impl FnOnce(&mut [u8; 32]) -> Result<(), E>) -> Result<Kek, E> {
        let mut kek = Kek { key: Box::new([0; 32]), params: None, origin: None };
        fill(&mut kek.key)?;
        Ok(kek)
    }

    /// A KEK from its text: 64 hexadecimal digits or base64 (padded or not), with any ASCII white
    /// space around it. `origin` names the source in the error.
    ///
    /// # Errors
    /// [`KeyError::BadKeyText`], which never shows the text.
    pub fn from_text(text: &[u8], origin: &str) -> Result<Kek, KeyError> {
        let text = text.trim_ascii();
        let encoding: Encoding = match text.len() {
            64 => HEXLOWER_PERMISSIVE,
            44 => BASE64,
            43 => BASE64_NOPAD,
            _ => return Err(KeyError::BadKeyText { origin: origin.to_owned() }),
        };
        // The decoder may ask for more room than the key needs (base64 with padding).
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

    /// The bytes: for `pgseal run`, which passes them on through a memfd, and for the primitives.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.key
    }

    /// With which parameters the KEK was derived, if it is from a passphrase.
    #[must_use]
    pub fn params(&self) -> Option<&Argon2idParams> {
        self.params.as_ref()
    }

    /// Which provider gave it, as messages show it; `None` when it came from none.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// The same key once more, said out loud: there is no `Clone`, so that no copy is made unseen.
    #[must_use]
    pub fn duplicate(&self) -> Kek {
        Kek { key: self.key.clone(), params: self.params.clone(), origin: self.origin.clone() }
    }

    pub(crate) fn with_origin(mut self, origin: String) -> Kek {
        self.origin = Some(origin);
        self
    }

    pub(crate) fn with_params(mut self, params: Argon2idParams) -> Kek {
        self.params = Some(params);
        self
    }

    /// What a memfd named by `PGSEAL_KEK_FD` holds: the 32 raw bytes, then, for a passphrase, its
    /// parameters as JSON (a new keyring must hold them, and the helper never sees the passphrase).
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the parameters cannot be written.
    pub fn hand_through(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let params = match &self.params {
            Some(params) => serde_json::to_vec(params)
                .map_err(|_| KeyError::Internal("writing Argon2id parameters"))?,
            None => Vec::new(),
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(Kek::LEN + params.len()));
        bytes.extend_from_slice(&*self.key);
        bytes.extend_from_slice(&params);
        Ok(bytes)
    }

    /// The reverse of [`Kek::hand_through`].
    ///
    /// # Errors
    /// [`KeyError::ProviderFailed`] when the bytes are too short or the parameters are none.
    pub(crate) fn from_hand_through(bytes: &[u8], provider: &str) -> Result<Kek, KeyError> {
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
        let params: Argon2idParams =
            serde_json::from_slice(params).map_err(|_| failed("holds more than one key"))?;
        params.check().map_err(failed)?;
        Ok(kek.with_params(params))
    }
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

/// A new random key as 64 hexadecimal digits: what `pgseal key new` prints.
///
/// # Errors
/// [`KeyError::Internal`] when there are no random numbers.
pub fn generate_raw_key() -> Result<Zeroizing<String>, KeyError> {
    let mut raw = Zeroizing::new([0u8; Kek::LEN]);
    wrap::random(&mut *raw)?;
    Ok(Zeroizing::new(HEXLOWER.encode(&*raw)))
}
