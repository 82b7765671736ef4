//! AEGIS-256X2 (RFC 10032) with tags of 128 bits, from libaegis.
//!
//! The cipher has no key schedule: each call takes the key from where the caller keeps it. Nothing
//! is taken from the heap.

use core::hint::black_box;

use ::aegis::aegis256x2::Aegis256X2;

use crate::gcm::{TAG_LEN, TagBytes};
use crate::module::{NotApproved, Service, check};

/// A key of AEGIS-256X2.
pub type AegisKey = [u8; 32];
/// A nonce of AEGIS-256X2.
pub type AegisNonce = [u8; 32];

/// Bytes of the stack that are wiped after each call. What is called below uses less than that;
/// `tests/stack.rs` looks for what is left.
const WIPED: usize = 2048;

/// AEGIS did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AegisError {
    /// The buffers differ in length.
    Length,
    /// This is a FIPS build.
    NotApproved(NotApproved),
    /// The tag does not fit.
    NotAuthentic,
}

impl From<NotApproved> for AegisError {
    fn from(why: NotApproved) -> AegisError {
        AegisError::NotApproved(why)
    }
}

/// Seals `plain` into `sealed`, which has the same length; returns the tag. The nonce must never
/// have been used with this key.
///
/// # Errors
/// [`AegisError::Length`], [`AegisError::NotApproved`].
pub fn seal_aegis(
    key: &AegisKey,
    nonce: &AegisNonce,
    associated: &[u8],
    plain: &[u8],
    sealed: &mut [u8],
) -> Result<TagBytes, AegisError> {
    check(Service::Aegis)?;
    if plain.len() != sealed.len() {
        return Err(AegisError::Length);
    }
    let tag = seal(key, nonce, associated, plain, sealed);
    wipe_stack();
    Ok(tag)
}

/// Opens `bytes` in place. On failure they are zeros.
///
/// # Errors
/// [`AegisError::NotAuthentic`], [`AegisError::NotApproved`].
pub fn open_aegis(
    key: &AegisKey,
    nonce: &AegisNonce,
    associated: &[u8],
    tag: &TagBytes,
    bytes: &mut [u8],
) -> Result<(), AegisError> {
    check(Service::Aegis)?;
    let opened = open(key, nonce, associated, tag, bytes);
    wipe_stack();
    opened
}

// The two functions below are not inlined, so that their frames, which hold a copy of the key, lie
// where `wipe_stack` wipes.

#[inline(never)]
fn seal(
    key: &AegisKey,
    nonce: &AegisNonce,
    associated: &[u8],
    plain: &[u8],
    sealed: &mut [u8],
) -> TagBytes {
    let mut sealing = Aegis256X2::<TAG_LEN>::new(key, nonce).encryptor(associated);
    sealing.update(plain, sealed);
    sealing.finalize()
}

#[inline(never)]
fn open(
    key: &AegisKey,
    nonce: &AegisNonce,
    associated: &[u8],
    tag: &TagBytes,
    bytes: &mut [u8],
) -> Result<(), AegisError> {
    let opening = Aegis256X2::<TAG_LEN>::new(key, nonce);
    opening.decrypt_in_place(bytes, tag, associated).map_err(|_| AegisError::NotAuthentic)
}

/// Overwrites the stack below the frame of the caller: the binding copies keys and states through
/// it, and neither the binding nor libaegis wipes all of that.
#[inline(never)]
fn wipe_stack() {
    let zeros = [0_u8; WIPED];
    black_box(&zeros);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    /// RFC 10032, appendix A.6: AEGIS-256X2.
    #[test]
    fn vectors_of_the_rfc() {
        let key = core::array::from_fn(|i| i as u8);
        let nonce = core::array::from_fn(|i| 0x10 + i as u8);
        let long = "04050607".repeat(30);
        let sealed = concat!(
            "72120c2ea8236180d67859001f4729077b7064c414384fe3a7b52f1571f4f8a7",
            "d0f01e18db4f3bc0adb150702e5d147a8d36522132761b994c1bd395589e2ccf",
            "0790dfe2a3d12d61cd666b2859827739db4037dd3124c78424459376f6cac08e",
            "1a7223a2a43e398ce6385cd654a19f481cba3b8f25910b42",
        );
        for (associated, plain, sealed, tag) in [
            ("", "", "", "62cdbab084c83dacdb945bb446f049c8"),
            ("0102030401020304", &long[..], sealed, "635d391828520bf1512763f0c8f5cdbd"),
        ] {
            let (associated, plain, sealed) = (bytes(associated), bytes(plain), bytes(sealed));
            let mut made = vec![0; plain.len()];
            let made_tag = seal_aegis(&key, &nonce, &associated, &plain, &mut made);
            if crate::FIPS {
                assert!(matches!(made_tag, Err(AegisError::NotApproved(_))));
                continue;
            }
            let made_tag = made_tag.unwrap();
            assert_eq!((&made, &made_tag[..]), (&sealed, &bytes(tag)[..]));
            open_aegis(&key, &nonce, &associated, &made_tag, &mut made).unwrap();
            assert_eq!(made, plain);
        }
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let (key, nonce) = ([7; 32], [9; 32]);
        let mut sealed = [0; 100];
        let tag = match seal_aegis(&key, &nonce, b"aad", &[5; 100], &mut sealed) {
            Err(AegisError::NotApproved(_)) if crate::FIPS => return,
            tag => tag.unwrap(),
        };
        let opens = |nonce: &_, aad: &[u8], tag: &_, mut sealed: [u8; 100]| {
            let opened = open_aegis(&key, nonce, aad, tag, &mut sealed).is_ok();
            assert_eq!(sealed, if opened { [5; 100] } else { [0; 100] });
            opened
        };
        assert!(opens(&nonce, b"aad", &tag, sealed));
        assert!(!opens(&nonce, b"aae", &tag, sealed));
        for at in 0..100 {
            let (mut other, mut other_tag, mut changed) = (nonce, tag, sealed);
            changed[at] ^= 1;
            other[at % 32] ^= 0x80;
            other_tag[at % 16] ^= 0x10;
            assert!(!opens(&nonce, b"aad", &tag, changed));
            assert!(!opens(&other, b"aad", &tag, sealed));
            assert!(!opens(&nonce, b"aad", &other_tag, sealed));
        }
        let lengths = seal_aegis(&key, &nonce, b"", &[5; 100], &mut [0; 99]);
        assert_eq!(lengths, Err(AegisError::Length));
    }
}
