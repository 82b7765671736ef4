//! Randomised authenticated encryption: AES-256-GCM (SP 800-38D).

use core::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::error::ColumnError;
use crate::header::{NONCE_BYTES, TAG_BYTES};

/// AES-256-GCM under one key.
pub(crate) struct Gcm(LessSafeKey);

impl Gcm {
    /// Makes the key schedule for a key of 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Gcm, ColumnError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| ColumnError::KeyLength)?;
        Ok(Gcm(LessSafeKey::new(key)))
    }

    /// Seals `plain` into `sealed`, which has the same length. Returns the tag.
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], ColumnError> {
        let mut tag = [0; TAG_BYTES];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_out_of_place_scatter(nonce, Aad::from(associated), plain, sealed, &[], &mut tag)
            .map_err(|_| ColumnError::Internal)?;
        Ok(tag)
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
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.0.open_separate_gather(nonce, Aad::from(associated), sealed, tag, plain);
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
