//! Wrapping column keys under a key-encryption key (KEK).

use core::fmt;

use argon2::{Algorithm, Argon2, Block as ArgonBlock, Params, Version};
use aws_lc_rs::{hkdf, hmac};
use zeroize::{Zeroize, Zeroizing};

use crate::error::ColumnError;
use crate::gcm::Gcm;
use crate::header::{NONCE_BYTES, TAG_BYTES};
use crate::key::{ColumnKey, Domain, KEY_BYTES, Length};
use crate::labels;
use pgseal_crypto::{Service, fill_random};

/// Bytes of a wrapped column key.
pub const WRAPPED_BYTES: usize = 1 + CHECK_BYTES + NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const CHECK_BYTES: usize = 8;
/// The first byte of a wrapped column key.
const FORMAT: u8 = 1;
const MAX_PASSPHRASE_BYTES: usize = 4096;
const MAX_SALT_BYTES: usize = 64;
const MIN_SALT_BYTES: usize = 8;
const MAX_MEMORY_KIB: u32 = 4 * 1024 * 1024;
const MAX_PASSES: u32 = 1024;
const MAX_LANES: u32 = 64;

/// A key-encryption key, ready to wrap and unwrap column keys.
pub struct Kek {
    wrap: Gcm,
    check: [u8; CHECK_BYTES],
}

/// The cost of Argon2id (RFC 9106).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2idCost {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Kek {
    /// Makes a KEK from 32 bytes.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`].
    pub fn new(kek: &[u8]) -> Result<Kek, ColumnError> {
        if kek.len() != KEY_BYTES {
            return Err(ColumnError::KeyLength);
        }
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(kek);
        let derive = |label: &'static str| {
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            let info = [label.as_bytes()];
            let okm = root.expand(&info, Length(KEY_BYTES)).map_err(|_| ColumnError::Internal)?;
            okm.fill(&mut *key).map_err(|_| ColumnError::Internal)?;
            Ok::<_, ColumnError>(key)
        };
        let check_key = hmac::Key::new(hmac::HMAC_SHA256, &*derive(labels::KDF_KEK_CHECK)?);
        let mac = hmac::sign(&check_key, labels::MAC_KEK_CHECK.as_bytes());
        let check = mac.as_ref().first_chunk().ok_or(ColumnError::Internal)?;
        Ok(Kek { wrap: Gcm::new(&*derive(labels::KDF_WRAP)?)?, check: *check })
    }

    /// Derives a KEK from a passphrase of 1 to 4096 bytes and a salt of 8 to 64 bytes.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`] if the passphrase or the salt is too short or too long,
    /// [`ColumnError::BadArgument`] if the cost is out of range, [`ColumnError::NoMemory`].
    pub fn from_passphrase(
        passphrase: &[u8],
        salt: &[u8],
        cost: Argon2idCost,
    ) -> Result<Kek, ColumnError> {
        pgseal_crypto::check(Service::Argon2id)?;
        let Argon2idCost { memory_kib, passes, lanes } = cost;
        let lengths_ok = (1..=MAX_PASSPHRASE_BYTES).contains(&passphrase.len())
            && (MIN_SALT_BYTES..=MAX_SALT_BYTES).contains(&salt.len());
        if !lengths_ok {
            return Err(ColumnError::KeyLength);
        }
        let cost_ok = (1..=MAX_LANES).contains(&lanes)
            && (1..=MAX_PASSES).contains(&passes)
            && (8 * lanes..=MAX_MEMORY_KIB).contains(&memory_kib);
        if !cost_ok {
            return Err(ColumnError::BadArgument);
        }
        let params = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES))
            .map_err(|_| ColumnError::BadArgument)?;
        let count = params.block_count();
        let mut memory = Vec::new();
        memory.try_reserve_exact(count).map_err(|_| ColumnError::NoMemory)?;
        memory.resize(count, ArgonBlock::default());
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let done = argon.hash_password_into_with_memory(passphrase, salt, &mut *key, &mut memory);
        memory.iter_mut().for_each(Zeroize::zeroize);
        done.map_err(|_| ColumnError::Internal)?;
        Kek::new(&*key)
    }

    /// Wraps a column key for its domain and key version.
    ///
    /// # Errors
    /// [`ColumnError::BadArgument`] for key version 0, [`ColumnError::NoRandom`].
    pub fn wrap(
        &self,
        domain: Domain,
        key_version: u32,
        column_key: &[u8; KEY_BYTES],
    ) -> Result<[u8; WRAPPED_BYTES], ColumnError> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce)?;
        self.wrap_with(nonce, domain, key_version, column_key)
    }

    /// As [`Kek::wrap`], with a given nonce.
    pub(crate) fn wrap_with(
        &self,
        mut nonce: [u8; NONCE_BYTES],
        domain: Domain,
        key_version: u32,
        column_key: &[u8; KEY_BYTES],
    ) -> Result<[u8; WRAPPED_BYTES], ColumnError> {
        if key_version == 0 {
            return Err(ColumnError::BadArgument);
        }
        let mut sealed = [0; KEY_BYTES];
        let associated = associated_data(domain, key_version);
        let tag = self.wrap.seal(&mut nonce, &associated, column_key, &mut sealed)?;
        let parts = [&[FORMAT][..], &self.check, &nonce, &sealed, &tag];
        let mut wrapped = [0; WRAPPED_BYTES];
        for (to, from) in wrapped.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        Ok(wrapped)
    }

    /// Makes a new random column key and wraps it.
    ///
    /// # Errors
    /// As [`Kek::wrap`].
    pub fn wrap_new(
        &self,
        domain: Domain,
        key_version: u32,
    ) -> Result<[u8; WRAPPED_BYTES], ColumnError> {
        let mut column_key = Zeroizing::new([0; KEY_BYTES]);
        fill_random(&mut *column_key)?;
        self.wrap(domain, key_version, &column_key)
    }

    /// Unwraps a column key.
    ///
    /// # Errors
    /// [`ColumnError::WrongKek`] if the key is wrapped under another KEK;
    /// [`ColumnError::WrapDamaged`] if it is wrapped under this KEK but is damaged, or belongs to
    /// another domain or key version; [`ColumnError::WrapFormat`].
    pub fn unwrap(
        &self,
        domain: Domain,
        key_version: u32,
        wrapped: &[u8],
    ) -> Result<Zeroizing<[u8; KEY_BYTES]>, ColumnError> {
        let wrapped: &[u8; WRAPPED_BYTES] =
            wrapped.try_into().map_err(|_| ColumnError::WrapFormat)?;
        let format = || ColumnError::WrapFormat;
        let (version, rest) = wrapped.split_first().ok_or_else(format)?;
        if *version != FORMAT {
            return Err(ColumnError::WrapFormat);
        }
        let (check, rest) = rest.split_first_chunk::<CHECK_BYTES>().ok_or_else(format)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(format)?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or_else(format)?;
        let mut column_key = Zeroizing::new([0; KEY_BYTES]);
        let associated = associated_data(domain, key_version);
        let opened = self.wrap.open(*nonce, &associated, sealed, tag, &mut *column_key);
        match (opened, *check == self.check) {
            (Ok(()), true) => Ok(column_key),
            (Err(_), false) => Err(ColumnError::WrongKek),
            _ => Err(ColumnError::WrapDamaged),
        }
    }

    /// Unwraps a column key with the KEK `from` and wraps it under this KEK.
    ///
    /// # Errors
    /// As [`Kek::unwrap`] and [`Kek::wrap`].
    pub fn rewrap(
        &self,
        from: &Kek,
        domain: Domain,
        key_version: u32,
        wrapped: &[u8],
    ) -> Result<[u8; WRAPPED_BYTES], ColumnError> {
        self.wrap(domain, key_version, &*from.unwrap(domain, key_version, wrapped)?)
    }

    /// Unwraps a column key and makes its key schedules: [`Kek::unwrap`], then [`ColumnKey::new`].
    ///
    /// # Errors
    /// As [`Kek::unwrap`] and [`ColumnKey::new`].
    pub fn column_key(
        &self,
        domain: Domain,
        key_version: u32,
        wrapped: &[u8],
    ) -> Result<ColumnKey, ColumnError> {
        ColumnKey::new(&*self.unwrap(domain, key_version, wrapped)?, domain, key_version)
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek")
    }
}

/// label || domain (u64) || key version (u32).
fn associated_data(domain: Domain, key_version: u32) -> [u8; labels::AAD_WRAP.len() + 12] {
    let mut data = [0; labels::AAD_WRAP.len() + 12];
    let parts = [labels::AAD_WRAP.as_bytes(), &domain.0.to_le_bytes(), &key_version.to_le_bytes()];
    for (to, from) in data.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    data
}
