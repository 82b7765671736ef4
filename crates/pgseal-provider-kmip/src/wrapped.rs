//! What a wrapped key looks like.
//!
//! ```text
//! 1 byte    2, the version of this form
//! 16 bytes  initialization vector
//! 48 bytes  32 random bytes, which the store's key encrypted: AES-CBC, padding of PKCS #5
//! 12 bytes  nonce of AES-256-GCM
//! 48 bytes  the key, and the tag: AES-256-GCM under HKDF-SHA-256 of the random bytes and the
//! context
//! ```
//!
//! AES-CBC is what each KMIP server from 1.2 on has; its GCM came later, and not everywhere. What
//! CBC does not do, authenticate and bind to a context, the second step does: other random bytes,
//! or another context, give another key of GCM.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use pgseal_crypto::{Gcm, NONCE_LEN};
use pgseal_plugin::{Failure, Fault, Secret, configuration, random};
use zeroize::Zeroizing;

use crate::id::Id;
use crate::message::BLOCK_LEN;
use crate::session::Session;

const VERSION: u8 = 2;
/// The information for HKDF, before the context.
const LABEL: &[u8] = b"pgseal/kmip/v1";
/// The random bytes and one block of padding.
const ENCRYPTED_LEN: usize = 32 + BLOCK_LEN;
/// The key and its tag.
const SEALED_LEN: usize = 32 + 16;

/// The parts of a wrapped key.
pub(crate) struct Wrapped<'a> {
    iv: &'a [u8; BLOCK_LEN],
    encrypted: &'a [u8; ENCRYPTED_LEN],
    nonce: &'a [u8; NONCE_LEN],
    sealed: &'a [u8; SEALED_LEN],
}

impl<'a> Wrapped<'a> {
    /// The parts; what this plugin never made is refused.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Wrapped<'a>, Failure<'static>> {
        let parts = |bytes: &'a [u8]| {
            let (iv, rest) = bytes.strip_prefix(&[VERSION])?.split_first_chunk()?;
            let (encrypted, rest) = rest.split_first_chunk()?;
            let (nonce, sealed) = rest.split_first_chunk()?;
            Some(Wrapped { iv, encrypted, nonce, sealed: sealed.try_into().ok()? })
        };
        parts(bytes).ok_or_else(|| Failure::new(Fault::Wrong, "no key that this plugin wrapped"))
    }
}

/// Wraps a key.
pub(crate) fn wrap(
    session: &mut Session,
    key: &Id,
    context: &[u8; 16],
    secret: &Secret,
) -> Result<Vec<u8>, Failure<'static>> {
    let mut iv = [0; BLOCK_LEN];
    let mut nonce = [0; NONCE_LEN];
    let mut bytes = Zeroizing::new([0; 32]);
    random(&mut iv)?;
    random(&mut nonce)?;
    random(&mut *bytes)?;
    let encrypted = session.encrypt(key, &iv, &bytes)?;
    if encrypted.len() != ENCRYPTED_LEN {
        return Err(configuration(format!(
            "the store returns {} bytes instead of {ENCRYPTED_LEN}: it does not encrypt with \
             AES-CBC and the padding of PKCS #5",
            encrypted.len()
        )));
    }
    let mut text = Zeroizing::new(*secret.expose());
    let tag = cipher(&bytes, context)?
        .seal(&mut nonce, &[], &mut *text)
        .map_err(|_| configuration("AES-GCM fails"))?;
    Ok([&[VERSION][..], &iv, &encrypted, &nonce, &*text, &tag].concat())
}

/// Unwraps a key.
pub(crate) fn unwrap(
    session: &mut Session,
    key: &Id,
    context: &[u8; 16],
    wrapped: &Wrapped<'_>,
) -> Result<Secret, Failure<'static>> {
    let wrong = || {
        Failure::new(
            Fault::Wrong,
            format!("{}: key {key} does not open this, or not for this keyring", session.store()),
        )
    };
    let not_opened = wrong();
    let bytes = session.decrypt(key, wrapped.iv, wrapped.encrypted)?;
    let bytes: &[u8; 32] = match (&**bytes).try_into() {
        Ok(bytes) => bytes,
        Err(_) => return Err(not_opened),
    };
    let Some((sealed, tag)) = wrapped.sealed.split_first_chunk::<32>() else {
        return Err(not_opened);
    };
    let key = cipher(bytes, context)?;
    Secret::init_with(|out| {
        key.open_between(wrapped.nonce, &[], (sealed, tag), out).map_err(|_| not_opened)
    })
}

fn cipher(bytes: &[u8; 32], context: &[u8; 16]) -> Result<Gcm, Failure<'static>> {
    struct Len32;
    impl KeyType for Len32 {
        fn len(&self) -> usize {
            32
        }
    }
    let mut key = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, &[])
        .extract(bytes)
        .expand(&[LABEL, context], Len32)
        .and_then(|okm| okm.fill(&mut *key))
        .map_err(|_| configuration("HKDF fails"))?;
    Gcm::new(&*key).map_err(|_| configuration("AES-GCM fails"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_or_made_by_others_is_refused() {
        let mut bytes = vec![7; 1 + BLOCK_LEN + ENCRYPTED_LEN + NONCE_LEN + SEALED_LEN];
        assert!(Wrapped::parse(&bytes).is_err(), "another version");
        bytes[0] = VERSION;
        assert!(Wrapped::parse(&bytes).is_ok());
        for len in 0..bytes.len() {
            assert!(Wrapped::parse(&bytes[..len]).is_err(), "{len}");
        }
        bytes.push(7);
        assert!(Wrapped::parse(&bytes).is_err(), "too long");
    }

    #[test]
    fn each_context_has_its_key() {
        let opens = |bytes: &[u8; 32], context: &[u8; 16]| {
            let (mut nonce, mut text) = ([0; NONCE_LEN], [0; 32]);
            let tag = cipher(&[1; 32], &[1; 16]).unwrap().seal(&mut nonce, &[], &mut text).unwrap();
            cipher(bytes, context).unwrap().open(&nonce, &[], &tag, &mut text).is_ok()
        };
        assert!(opens(&[1; 32], &[1; 16]));
        assert!(!opens(&[1; 32], &[2; 16]));
        assert!(!opens(&[2; 32], &[1; 16]));
    }
}
