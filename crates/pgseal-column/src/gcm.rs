//! Randomised authenticated encryption: AES-256-GCM (SP 800-38D).

use core::fmt;

use pgseal_crypto::GcmError;
use zeroize::Zeroize;

use crate::error::ColumnError;
use crate::header::{NONCE_BYTES, TAG_BYTES};

/// Bytes of a key of AES-256.
const KEY_BYTES: usize = 32;

/// AES-256-GCM under one key.
pub(crate) struct Gcm(pgseal_crypto::Gcm);

impl Gcm {
    /// Makes the key schedule for a key of 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Gcm, ColumnError> {
        if key.len() != KEY_BYTES {
            return Err(ColumnError::KeyLength);
        }
        pgseal_crypto::Gcm::new(key).map(Gcm).map_err(|error| match error {
            GcmError::OutOfMemory => ColumnError::NoMemory,
            _ => ColumnError::KeyLength,
        })
    }

    /// Seals `plain` into `sealed`, which has the same length. Returns the tag. In a FIPS build,
    /// `nonce` is replaced.
    pub(crate) fn seal(
        &self,
        nonce: &mut [u8; NONCE_BYTES],
        associated: &[u8],
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], ColumnError> {
        self.0.seal_between(nonce, associated, plain, sealed).map_err(|_| ColumnError::Internal)
    }

    /// Opens `sealed` into `plain`, which has the same length. If the value is not authentic,
    /// `plain` is zeroed.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_BYTES],
        plain: &mut [u8],
    ) -> Result<(), ColumnError> {
        let opened = self.0.open_between(&nonce, associated, (sealed, tag), plain);
        opened.map_err(|_| {
            plain.zeroize();
            ColumnError::NotAuthentic
        })
    }
}

impl fmt::Debug for Gcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AES-256-GCM key")
    }
}
