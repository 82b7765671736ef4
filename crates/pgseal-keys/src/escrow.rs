//! Escrow copies: the data keys of a keyring, encrypted, as text that can be printed and typed in
//! again (`spec/key-escrow.md`).

mod binary;
mod shares;
mod text;
mod typed;

use std::fmt;

use pgseal_core::{DataKey, Generation, KeySet, KeyringId, Suites};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::argon::Argon2idParams;
use crate::body;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::Keyring;
use crate::labels;
use crate::wrap::{self, Secret32};

pub use text::{TextReader, TextStep, ranges, read_all};
pub use typed::read_typed;

/// What will open a new copy.
#[derive(Clone, Copy, Debug)]
pub enum Lock<'a> {
    /// A key, or a passphrase if the key was derived from one.
    Kek(&'a Kek),
    /// Any `threshold` of `limit` shares: 2 <= threshold <= limit <= 255.
    Shares {
        /// Shares that open it.
        threshold: u8,
        /// Shares to make.
        limit: u8,
    },
}

/// What a copy says, unencrypted, about one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EscrowGeneration {
    /// Its number.
    pub generation: Generation,
    /// When it was made: RFC 3339, UTC.
    pub created: String,
    /// The fingerprint of the data key, by which a data key can be compared with it.
    pub fingerprint: [u8; 8],
}

/// What opens a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenedBy {
    /// A passphrase, with these parameters.
    Passphrase(Argon2idParams),
    /// Shares.
    Shares {
        /// Shares that open it.
        threshold: u8,
        /// Shares that were made.
        limit: u8,
    },
    /// A key with this check value.
    Key([u8; 8]),
}

/// One share of the secret of a copy.
pub(crate) struct Share {
    pub index: u8,
    pub value: Zeroizing<[u8; 32]>,
}

/// One escrow copy. The data keys in it are encrypted. A share in it is secret.
pub struct EscrowCopy {
    pub(crate) keyring_id: KeyringId,
    pub(crate) suites: Suites,
    pub(crate) active: Generation,
    pub(crate) made: String,
    pub(crate) generations: Vec<EscrowGeneration>,
    pub(crate) opened_by: OpenedBy,
    pub(crate) nonce: [u8; 12],
    pub(crate) sealed: Vec<u8>,
    pub(crate) tag: [u8; 16],
    pub(crate) share: Option<Share>,
    /// Where the copy was read, for messages.
    pub(crate) origin: String,
}

/// The content of a copy without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct EscrowSummary {
    /// The identity of the keyring, as 32 hexadecimal digits.
    pub keyring_id: String,
    /// When the copy was made: RFC 3339, UTC.
    pub made: String,
    /// What opens the copy, in words.
    pub opened_by: String,
    /// The generation that was active when the copy was made.
    pub active_generation: u32,
    /// Number and fingerprint of each generation, oldest first.
    pub generations: Vec<(u32, String)>,
    /// The number of the share that this copy holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u8>,
}

/// Makes escrow copies of a keyring: one copy, or one for each share.
///
/// # Errors
/// As [`Keyring::unlock`]; [`KeyError::Internal`] for a threshold or limit out of range.
pub fn make(keyring: &Keyring, kek: &Kek, lock: Lock<'_>) -> Result<Vec<EscrowCopy>, KeyError> {
    let keys = keyring.unlock(kek)?;
    let mut nonce = [0; 12];
    wrap::random(&mut nonce)?;
    let secret = match lock {
        Lock::Kek(lock) => copy_of(lock),
        Lock::Shares { .. } => wrap::random_secret()?,
    };
    let opened_by = match lock {
        Lock::Kek(lock) => match lock.params() {
            Some(params) => OpenedBy::Passphrase(params.clone()),
            None => OpenedBy::Key(wrap::key_check(lock.expose(), keyring.id())?),
        },
        Lock::Shares { threshold, limit } => OpenedBy::Shares { threshold, limit },
    };
    let mut generations = Vec::new();
    for entry in keyring.summary().generations {
        let generation = Generation(entry.generation);
        let key = keys.get(generation).ok_or(KeyError::Internal("a generation's key"))?;
        let fingerprint = wrap::fingerprint(key.bytes(), keyring.id())?;
        generations.push(EscrowGeneration { generation, created: entry.created, fingerprint });
    }
    let copy = EscrowCopy {
        keyring_id: keyring.id(),
        suites: keyring.suites(),
        active: keyring.active_generation(),
        made: body::now()?,
        generations,
        opened_by,
        nonce,
        sealed: Vec::new(),
        tag: [0; 16],
        share: None,
        origin: "new escrow copy".to_owned(),
    };
    let copy = copy.seal(&keys, &secret)?;
    match lock {
        Lock::Kek(_) => Ok(vec![copy]),
        Lock::Shares { threshold, limit } => {
            let shares = shares::split(&secret, threshold, limit)?;
            Ok(shares.into_iter().map(|share| copy.with_share(share)).collect())
        }
    }
}

fn copy_of(kek: &Kek) -> Secret32 {
    let mut secret = Secret32::zero();
    secret.copy_from_slice(kek.expose());
    secret
}

impl EscrowCopy {
    pub(crate) fn seal(mut self, keys: &KeySet, secret: &Secret32) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new(vec![0; self.generations.len() * DataKey::LEN]);
        for (room, entry) in bytes.chunks_exact_mut(DataKey::LEN).zip(&self.generations) {
            let key = keys.get(entry.generation).ok_or(KeyError::Internal("a generation's key"))?;
            room.copy_from_slice(key.bytes());
        }
        let wrap_key = wrap::derive(secret, self.keyring_id, labels::KDF_ESCROW_WRAP)?;
        let aad = self.aad()?;
        self.tag = wrap::seal_bytes(&wrap_key, &aad, &mut self.nonce, &mut bytes)?;
        self.sealed = bytes.to_vec();
        Ok(self)
    }

    fn aad(&self) -> Result<Vec<u8>, KeyError> {
        Ok([labels::AAD_ESCROW_COPY.as_bytes(), &self.head_bytes()?].concat())
    }

    fn with_share(&self, share: Share) -> EscrowCopy {
        EscrowCopy {
            keyring_id: self.keyring_id,
            suites: self.suites,
            active: self.active,
            made: self.made.clone(),
            generations: self.generations.clone(),
            opened_by: self.opened_by.clone(),
            nonce: self.nonce,
            sealed: self.sealed.clone(),
            tag: self.tag,
            share: Some(share),
            origin: self.origin.clone(),
        }
    }

    /// The identity of the keyring whose data keys the copy holds.
    #[must_use]
    pub fn keyring_id(&self) -> KeyringId {
        self.keyring_id
    }

    /// The generations in the copy, oldest first.
    #[must_use]
    pub fn generations(&self) -> &[EscrowGeneration] {
        &self.generations
    }

    /// What opens the copy.
    #[must_use]
    pub fn opened_by(&self) -> &OpenedBy {
        &self.opened_by
    }

    /// The parameters of the passphrase, if a passphrase opens the copy.
    #[must_use]
    pub fn passphrase_params(&self) -> Option<&Argon2idParams> {
        match &self.opened_by {
            OpenedBy::Passphrase(params) => Some(params),
            _ => None,
        }
    }

    /// The number of the share that the copy holds, if it holds one.
    #[must_use]
    pub fn share_index(&self) -> Option<u8> {
        self.share.as_ref().map(|share| share.index)
    }

    /// Where the copy was read.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether `key` is the data key that the copy holds for this generation; `None` if the copy
    /// does not have the generation.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn holds(&self, generation: Generation, key: &DataKey) -> Result<Option<bool>, KeyError> {
        let found = self.generations.iter().find(|entry| entry.generation == generation);
        let Some(entry) = found else { return Ok(None) };
        let fingerprint = wrap::fingerprint(key.bytes(), self.keyring_id)?;
        Ok(Some(wrap::same(&fingerprint, &entry.fingerprint)))
    }

    /// The content without secrets, for display.
    #[must_use]
    pub fn summary(&self) -> EscrowSummary {
        let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
        EscrowSummary {
            keyring_id: self.keyring_id.to_string(),
            made: self.made.clone(),
            opened_by: self.opened_by.to_string(),
            active_generation: self.active.0,
            generations: self
                .generations
                .iter()
                .map(|entry| (entry.generation.0, hex(&entry.fingerprint)))
                .collect(),
            share: self.share_index(),
        }
    }
}

impl fmt::Display for OpenedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenedBy::Passphrase(params) => {
                write!(f, "a passphrase (Argon2id, {} MiB)", params.memory_kib / 1024)
            }
            OpenedBy::Shares { threshold, limit } => write!(f, "any {threshold} of {limit} shares"),
            OpenedBy::Key(check) => {
                write!(f, "a key (check value {})", data_encoding::HEXLOWER.encode(check))
            }
        }
    }
}

impl fmt::Debug for EscrowCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EscrowCopy").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

/// The data keys of an opened copy.
#[derive(Debug)]
pub struct Opened {
    keys: KeySet,
    generations: Vec<(Generation, String)>,
}

impl Opened {
    /// The data keys.
    #[must_use]
    pub fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// A keyring with these data keys under a KEK.
    ///
    /// # Errors
    /// As [`Keyring::create`].
    pub fn keyring(&self, provider_uri: &str, kek: &Kek) -> Result<Keyring, KeyError> {
        Keyring::rebuild(&self.keys, &self.generations, provider_uri, kek)
    }
}

/// Opens a copy that was made for a passphrase or for a key. `kek` is derived from the passphrase,
/// or is the key.
///
/// # Errors
/// [`KeyError::EscrowWrong`].
pub fn open(copy: &EscrowCopy, kek: &Kek) -> Result<Opened, KeyError> {
    let wrong =
        |what, remedy| Err(KeyError::EscrowWrong { origin: copy.origin.clone(), what, remedy });
    match (&copy.opened_by, kek.params().is_some()) {
        (OpenedBy::Passphrase(_), false) => wrong("a key", "its passphrase does"),
        (OpenedBy::Key(_), true) => wrong("a passphrase", "a key does, from file:, env:, command:"),
        (OpenedBy::Shares { .. }, _) => wrong("one secret", "give its shares"),
        (OpenedBy::Key(check), false)
            if !wrap::same(check, &wrap::key_check(kek.expose(), copy.keyring_id)?) =>
        {
            wrong("the key", "give the one with which the copy was made")
        }
        (OpenedBy::Passphrase(_), true) => {
            unseal(copy, &copy_of(kek), "the passphrase", "give the one that was chosen for it")
        }
        (OpenedBy::Key(_), false) => {
            unseal(copy, &copy_of(kek), "the key", "somebody changed the copy; take another one")
        }
    }
}

/// Opens a copy with the shares of several copies of one set.
///
/// # Errors
/// [`KeyError::EscrowShares`] for too few shares, [`KeyError::EscrowWrong`] for shares of different
/// sets.
pub fn open_shares(copies: &[EscrowCopy]) -> Result<Opened, KeyError> {
    let first = copies.first().ok_or(KeyError::Internal("no shares"))?;
    let OpenedBy::Shares { threshold, limit } = first.opened_by else {
        return Err(KeyError::Internal("a copy without shares"));
    };
    let mut shares: Vec<&Share> = Vec::new();
    for copy in copies {
        if copy.common_bytes()? != first.common_bytes()? {
            return Err(KeyError::EscrowWrong {
                origin: copy.origin.clone(),
                what: "this share",
                remedy: "it is from another copy than the first one; give those printed together",
            });
        }
        let Some(share) = &copy.share else { continue };
        if !shares.iter().any(|known| known.index == share.index) {
            shares.push(share);
        }
    }
    let origin = || first.origin.clone();
    let (have, threshold, limit) = (shares.len(), threshold.into(), limit.into());
    if have < threshold {
        return Err(KeyError::EscrowShares { origin: origin(), have, threshold, limit });
    }
    let secret = shares::combine(&shares)?;
    let remedy = "one of them was changed; try others";
    unseal(first, &secret, "this set of shares", remedy)
}

fn unseal(
    copy: &EscrowCopy,
    secret: &Secret32,
    what: &'static str,
    remedy: &'static str,
) -> Result<Opened, KeyError> {
    let wrong = || KeyError::EscrowWrong { origin: copy.origin.clone(), what, remedy };
    let wrap_key = wrap::derive(secret, copy.keyring_id, labels::KDF_ESCROW_WRAP)?;
    let mut bytes = Zeroizing::new(vec![0; copy.sealed.len()]);
    let sealed = (&copy.sealed[..], &copy.tag);
    wrap::open_bytes(&wrap_key, &copy.aad()?, copy.nonce, sealed, &mut bytes)
        .map_err(|wrap::NotAuthentic| wrong())?;
    let mut keys = KeySet::new(copy.keyring_id, copy.suites, copy.active);
    for (bytes, entry) in bytes.chunks_exact(DataKey::LEN).zip(&copy.generations) {
        let key = DataKey::init_with(|key| {
            key.copy_from_slice(bytes);
            Ok::<(), KeyError>(())
        })?;
        keys.insert(entry.generation, key);
    }
    let generations =
        copy.generations.iter().map(|entry| (entry.generation, entry.created.clone())).collect();
    Ok(Opened { keys, generations })
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod vectors;
