//! Key derivation, check values, key wrapping and MACs, each with its label.
//!
//! AES-256-GCM (SP 800-38D), HKDF-SHA-256 (RFC 5869) and HMAC-SHA-256 (FIPS 198-1) of AWS-LC.

use std::ops::{Deref, DerefMut};

#[cfg(feature = "escrow")]
use aws_lc_rs::digest;
use aws_lc_rs::{constant_time, hkdf, hmac, rand};
use pgseal_core::KeyringId;
use pgseal_crypto::Gcm;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::error::KeyError;
use crate::labels;

/// A 32-byte secret that never leaves this crate: the keyring key, or a key derived from it. It is
/// boxed so that moving it leaves no copy on the stack.
pub(crate) struct Secret32(Box<[u8; 32]>);

impl Secret32 {
    pub(crate) fn zero() -> Secret32 {
        Secret32(Box::new([0; 32]))
    }
}

impl Deref for Secret32 {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl DerefMut for Secret32 {
    fn deref_mut(&mut self) -> &mut [u8; 32] {
        &mut self.0
    }
}

impl Drop for Secret32 {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key wrapped with AES-256-GCM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wrapped {
    #[serde(with = "crate::hex")]
    pub nonce: [u8; 12],
    #[serde(with = "crate::hex")]
    pub wrapped: [u8; 32],
    #[serde(with = "crate::hex")]
    pub tag: [u8; 16],
}

/// The wrapped key does not authenticate.
pub(crate) struct NotAuthentic;

/// Fills `bytes` with random bytes of AWS-LC's generator, which reseeds after `fork`.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), KeyError> {
    rand::fill(bytes).map_err(|_| KeyError::Internal("the random number generator"))
}

/// A new random secret.
pub(crate) fn random_secret() -> Result<Secret32, KeyError> {
    let mut secret = Secret32::zero();
    random(&mut secret[..])?;
    Ok(secret)
}

struct Len32;

impl hkdf::KeyType for Len32 {
    fn len(&self) -> usize {
        32
    }
}

/// HKDF-SHA-256 with the keyring id as salt and the label as info.
pub(crate) fn derive(
    ikm: &[u8; 32],
    keyring_id: KeyringId,
    label: &str,
) -> Result<Secret32, KeyError> {
    let mut out = Secret32::zero();
    hkdf::Salt::new(hkdf::HKDF_SHA256, &keyring_id.0)
        .extract(ikm)
        .expand(&[label.as_bytes()], Len32)
        .and_then(|okm| okm.fill(&mut out[..]))
        .map_err(|_| KeyError::Internal("HKDF"))?;
    Ok(out)
}

/// The key check value of a KEK, which distinguishes a wrong KEK from a damaged keyring.
pub(crate) fn key_check(kek: &[u8; 32], keyring_id: KeyringId) -> Result<[u8; 8], KeyError> {
    check_value(kek, keyring_id, labels::KDF_KEK_CHECK, labels::MAC_KEK_CHECK)
}

/// The fingerprint of a data key, by which two copies can be compared without opening them.
#[cfg(feature = "escrow")]
pub(crate) fn fingerprint(key: &[u8; 32], keyring_id: KeyringId) -> Result<[u8; 8], KeyError> {
    check_value(key, keyring_id, labels::KDF_KEY_FINGERPRINT, labels::MAC_KEY_FINGERPRINT)
}

fn check_value(
    key: &[u8; 32],
    keyring_id: KeyringId,
    kdf_label: &str,
    mac_label: &str,
) -> Result<[u8; 8], KeyError> {
    let key = derive(key, keyring_id, kdf_label)?;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), mac_label.as_bytes());
    let first = tag.as_ref().first_chunk::<8>();
    first.copied().ok_or(KeyError::Internal("HMAC"))
}

/// Whether two key check values are the same, in constant time.
pub(crate) fn same(a: &[u8; 8], b: &[u8; 8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// The associated data of the keyring key.
pub(crate) fn keyring_key_aad(keyring_id: KeyringId) -> Vec<u8> {
    [labels::AAD_KEYRING_KEY.as_bytes(), &keyring_id.0].concat()
}

/// The associated data of the keyring key under the KEK of a recipient.
pub(crate) fn recipient_aad(keyring_id: KeyringId, name: &str) -> Vec<u8> {
    [labels::AAD_RECIPIENT.as_bytes(), &keyring_id.0, name.as_bytes()].concat()
}

/// The associated data of a data key.
pub(crate) fn data_key_aad(keyring_id: KeyringId, generation: u32) -> Vec<u8> {
    [labels::AAD_DATA_KEY.as_bytes(), &keyring_id.0, &generation.to_le_bytes()].concat()
}

/// The key that wraps data keys.
pub(crate) fn data_wrap_key(keyring_key: &[u8; 32], id: KeyringId) -> Result<Secret32, KeyError> {
    derive(keyring_key, id, labels::KDF_DATA_KEY_WRAP)
}

fn gcm(key: &[u8; 32]) -> Result<Gcm, KeyError> {
    Gcm::new(key).map_err(|_| KeyError::Internal("AES-GCM"))
}

/// Wraps `secret` under `key` with a fresh random nonce.
pub(crate) fn wrap(key: &[u8; 32], aad: &[u8], secret: &[u8; 32]) -> Result<Wrapped, KeyError> {
    let mut nonce = [0; 12];
    random(&mut nonce)?;
    wrap_with_nonce(key, aad, secret, nonce)
}

/// Wraps with a given nonce: only for [`wrap`] and for the worked example of the specification.
pub(crate) fn wrap_with_nonce(
    key: &[u8; 32],
    aad: &[u8],
    secret: &[u8; 32],
    mut nonce: [u8; 12],
) -> Result<Wrapped, KeyError> {
    // Encrypted in place. Zeroizing: if the primitive fails, the secret may still be here.
    let mut in_out = Zeroizing::new(*secret);
    let tag = gcm(key)?
        .seal(&mut nonce, aad, &mut in_out[..])
        .map_err(|_| KeyError::Internal("AES-GCM"))?;
    Ok(Wrapped { nonce, wrapped: *in_out, tag })
}

/// Unwraps a key into `out`.
pub(crate) fn unwrap_into(
    key: &[u8; 32],
    aad: &[u8],
    wrapped: &Wrapped,
    out: &mut [u8; 32],
) -> Result<(), NotAuthentic> {
    gcm(key)
        .map_err(|_| NotAuthentic)?
        .open_between(&wrapped.nonce, aad, (&wrapped.wrapped, &wrapped.tag), &mut out[..])
        .map_err(|_| NotAuthentic)
}

/// Encrypts any number of bytes in place and returns the tag.
#[cfg(feature = "escrow")]
pub(crate) fn seal_bytes(
    key: &[u8; 32],
    aad: &[u8],
    nonce: &mut [u8; 12],
    bytes: &mut [u8],
) -> Result<[u8; 16], KeyError> {
    gcm(key)?.seal(nonce, aad, bytes).map_err(|_| KeyError::Internal("AES-GCM"))
}

/// The reverse of [`seal_bytes`], into `out`, which is as long as `sealed`.
#[cfg(feature = "escrow")]
pub(crate) fn open_bytes(
    key: &[u8; 32],
    aad: &[u8],
    nonce: [u8; 12],
    (sealed, tag): (&[u8], &[u8; 16]),
    out: &mut [u8],
) -> Result<(), NotAuthentic> {
    gcm(key)
        .map_err(|_| NotAuthentic)?
        .open_between(&nonce, aad, (sealed, tag), out)
        .map_err(|_| NotAuthentic)
}

/// The first `N` bytes of the SHA-256 of the concatenated parts.
#[cfg(feature = "escrow")]
pub(crate) fn sha256_start<const N: usize>(parts: &[&[u8]]) -> Result<[u8; N], KeyError> {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().first_chunk::<N>().copied().ok_or(KeyError::Internal("SHA-256"))
}

/// The MAC over the exact bytes of a keyring's body.
pub(crate) fn body_mac(
    keyring_key: &[u8; 32],
    keyring_id: KeyringId,
    body: &[u8],
) -> Result<[u8; 32], KeyError> {
    let key = derive(keyring_key, keyring_id, labels::KDF_KEYRING_MAC)?;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), body);
    tag.as_ref().first_chunk::<32>().copied().ok_or(KeyError::Internal("HMAC"))
}

/// Whether `mac` is the MAC of the body, compared in constant time.
pub(crate) fn body_mac_holds(
    keyring_key: &[u8; 32],
    keyring_id: KeyringId,
    body: &[u8],
    mac: &[u8; 32],
) -> Result<bool, KeyError> {
    let key = derive(keyring_key, keyring_id, labels::KDF_KEYRING_MAC)?;
    Ok(hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), body, mac).is_ok())
}
