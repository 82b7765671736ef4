//! What a wrapped key looks like.
//!
//! ```text
//! 1 byte    1, the version of this form
//! 16 bytes  initialization vector
//! 48 bytes  32 random bytes, which the store's key encrypted: AES-CBC, padding of PKCS #5
//! 48 bytes  the key, and the tag: AES-256-GCM under HKDF-SHA-256 of the random bytes and the context
//! ```
//!
//! AES-CBC is what each KMIP server from 1.2 on has; its GCM came later, and not everywhere. What
//! CBC does not do, authenticate and bind to a context, the second step does: other random bytes, or
//! another context, give another key of GCM. That key seals once, so its nonce is zero.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use pgseal_plugin::{Failure, Fault, Secret, configuration, random};
use zeroize::Zeroizing;

use crate::id::Id;
use crate::message::BLOCK_LEN;
use crate::session::Session;

const VERSION: u8 = 1;
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
    sealed: &'a [u8; SEALED_LEN],
}

impl<'a> Wrapped<'a> {
    /// The parts; what this plugin never made is refused.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Wrapped<'a>, Failure<'static>> {
        let parts = |bytes: &'a [u8]| {
            let (iv, rest) = bytes.strip_prefix(&[VERSION])?.split_first_chunk()?;
            let (encrypted, sealed) = rest.split_first_chunk()?;
            Some(Wrapped { iv, encrypted, sealed: sealed.try_into().ok()? })
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
    let mut bytes = Zeroizing::new([0; 32]);
    random(&mut iv)?;
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
        .seal_in_place_separate_tag(nonce(), Aad::empty(), &mut *text)
        .map_err(|_| configuration("AES-GCM fails"))?;
    Ok([&[VERSION][..], &iv, &encrypted, &*text, tag.as_ref()].concat())
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
    let mut text = Zeroizing::new(wrapped.sealed.to_vec());
    match cipher(bytes, context)?.open_in_place(nonce(), Aad::empty(), &mut text) {
        Ok(opened) => Secret::init_with(|out| match opened.len() == out.len() {
            true => {
                out.copy_from_slice(opened);
                Ok(())
            }
            false => Err(not_opened),
        }),
        Err(_) => Err(not_opened),
    }
}

fn cipher(bytes: &[u8; 32], context: &[u8; 16]) -> Result<LessSafeKey, Failure<'static>> {
    let derived = Salt::new(HKDF_SHA256, &[]).extract(bytes);
    match derived.expand(&[LABEL, context], &AES_256_GCM) {
        Ok(key) => Ok(LessSafeKey::new(UnboundKey::from(key))),
        Err(_) => Err(configuration("HKDF fails")),
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_or_made_by_others_is_refused() {
        let mut bytes = vec![7; 1 + BLOCK_LEN + ENCRYPTED_LEN + SEALED_LEN];
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
        let sealed = |bytes: &[u8; 32], context: &[u8; 16]| {
            let mut text = [0; 32];
            cipher(bytes, context)
                .ok()
                .and_then(|key| {
                    key.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut text).ok()
                })
                .map(|_| text)
        };
        let one = sealed(&[1; 32], &[1; 16]);
        assert!(one.is_some() && one == sealed(&[1; 32], &[1; 16]));
        assert_ne!(one, sealed(&[1; 32], &[2; 16]));
        assert_ne!(one, sealed(&[2; 32], &[1; 16]));
    }
}
