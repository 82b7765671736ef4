//! AES-GCM (SP 800-38D) with tags of 128 bits and nonces of 96 bits.

use core::fmt;

#[cfg(feature = "fips")]
use aws_lc_rs::aead::RandomizedNonceKey;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// A nonce of 96 bits.
pub type NonceBytes = [u8; NONCE_LEN];
/// A tag of 128 bits.
pub type TagBytes = [u8; TAG_LEN];

/// AES-GCM did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcmError {
    /// The key has neither 16 nor 32 bytes.
    KeyLength,
    /// There is no memory for the key schedule.
    OutOfMemory,
    /// The tag does not fit.
    NotAuthentic,
    /// The library refuses to seal.
    Internal,
}

/// The ready key schedule of a key of 16 or 32 bytes.
///
/// Who seals draws a nonce (SP 800-38D, section 8.2.2) and hands it in. A FIPS build overwrites it
/// with one that the module drew, because the module counts no other sealing as approved
/// (FIPS 140-3 IG C.H, scenario 2). So each caller must store the nonce that it has *after* the
/// call.
pub struct Gcm {
    key: LessSafeKey,
    #[cfg(feature = "fips")]
    sealing: RandomizedNonceKey,
}

impl Gcm {
    /// Makes the key schedule.
    ///
    /// # Errors
    /// [`GcmError::KeyLength`], [`GcmError::OutOfMemory`].
    pub fn new(key: &[u8]) -> Result<Gcm, GcmError> {
        let algorithm: &'static Algorithm = match key.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            _ => return Err(GcmError::KeyLength),
        };
        // The length is right, so the only possible cause is a lack of memory.
        Ok(Gcm {
            key: UnboundKey::new(algorithm, key)
                .map(LessSafeKey::new)
                .map_err(|_| GcmError::OutOfMemory)?,
            #[cfg(feature = "fips")]
            sealing: RandomizedNonceKey::new(algorithm, key).map_err(|_| GcmError::OutOfMemory)?,
        })
    }

    /// Seals `bytes` in place; returns the tag. A FIPS build writes the module's nonce to `nonce`.
    ///
    /// # Errors
    /// [`GcmError::Internal`].
    pub fn seal(
        &self,
        nonce: &mut NonceBytes,
        associated: &[u8],
        bytes: &mut [u8],
    ) -> Result<TagBytes, GcmError> {
        let associated = Aad::from(associated);
        #[cfg(not(feature = "fips"))]
        let sealed = {
            let nonce = Nonce::assume_unique_for_key(*nonce);
            self.key.seal_in_place_separate_tag(nonce, associated, bytes)
        };
        #[cfg(feature = "fips")]
        let sealed =
            self.sealing.seal_in_place_separate_tag(associated, bytes).map(|(drawn, tag)| {
                *nonce = *drawn.as_ref();
                tag
            });
        let tag = sealed.map_err(|_| GcmError::Internal)?;
        tag.as_ref().try_into().map_err(|_| GcmError::Internal)
    }

    /// Seals `plain` into `sealed`, which has the same length; returns the tag.
    ///
    /// # Errors
    /// [`GcmError::Internal`], also if the lengths differ.
    #[inline]
    pub fn seal_between(
        &self,
        nonce: &mut NonceBytes,
        associated: &[u8],
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<TagBytes, GcmError> {
        if cfg!(feature = "fips") {
            // The module has no such call for a nonce of its own.
            if plain.len() != sealed.len() {
                return Err(GcmError::Internal);
            }
            sealed.copy_from_slice(plain);
            let tag = self.seal(nonce, associated, sealed);
            if tag.is_err() {
                sealed.zeroize();
            }
            return tag;
        }
        let mut tag = [0; TAG_LEN];
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(associated), plain, sealed, &[], &mut tag)
            .map_err(|_| GcmError::Internal)?;
        Ok(tag)
    }

    /// Opens `bytes` in place. On failure their content is unspecified.
    ///
    /// # Errors
    /// [`GcmError::NotAuthentic`].
    #[inline]
    pub fn open(
        &self,
        nonce: &NonceBytes,
        associated: &[u8],
        tag: &TagBytes,
        bytes: &mut [u8],
    ) -> Result<(), GcmError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.key
            .open_in_place_separate_tag(nonce, Aad::from(associated), tag, bytes)
            .map(|_| ())
            .map_err(|_| GcmError::NotAuthentic)
    }

    /// Opens `sealed` into `plain`, which has the same length. On failure the content of `plain` is
    /// unspecified.
    ///
    /// # Errors
    /// [`GcmError::NotAuthentic`].
    #[inline]
    pub fn open_between(
        &self,
        nonce: &NonceBytes,
        associated: &[u8],
        (sealed, tag): (&[u8], &[u8]),
        plain: &mut [u8],
    ) -> Result<(), GcmError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.key
            .open_separate_gather(nonce, Aad::from(associated), sealed, tag, plain)
            .map_err(|_| GcmError::NotAuthentic)
    }
}

impl fmt::Debug for Gcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gcm(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_the_nonce_after_the_call() {
        for len in [16, 32] {
            let key = Gcm::new(&vec![7; len]).unwrap();
            let (mut nonce, mut other) = ([1; NONCE_LEN], [1; NONCE_LEN]);
            let mut bytes = *b"sixteen bytes ok";
            let tag = key.seal(&mut nonce, b"aad", &mut bytes).unwrap();
            let mut sealed = [0; 16];
            let tag_between =
                key.seal_between(&mut other, b"aad", b"sixteen bytes ok", &mut sealed).unwrap();
            // The module never takes the caller's nonce; AWS-LC takes no other.
            assert_eq!(cfg!(feature = "fips"), nonce != [1; NONCE_LEN] && nonce != other);
            assert_eq!(!cfg!(feature = "fips"), sealed == bytes && tag == tag_between);
            key.open(&nonce, b"aad", &tag, &mut bytes).unwrap();
            assert_eq!(&bytes, b"sixteen bytes ok");
            let mut plain = [0; 16];
            key.open_between(&other, b"aad", (&sealed, &tag_between), &mut plain).unwrap();
            assert_eq!(&plain, b"sixteen bytes ok");
            assert!(key.open(&other, b"", &tag_between, &mut sealed).is_err());
        }
        assert_eq!(Gcm::new(&[0; 24]).err(), Some(GcmError::KeyLength));
    }
}
