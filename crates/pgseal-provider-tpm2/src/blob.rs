//! What a wrapped key looks like, and what the TPM seals in it.
//!
//! ```text
//! 1 byte    1, the version of this form
//! 2 bytes   length of the public area, big endian
//! n bytes   public area of the sealed data object (TPMT_PUBLIC; Part 2, section 12.2.4)
//! 2 bytes   length of the private area, big endian
//! n bytes   private area, encrypted by the TPM (Part 2, section 12.3.7)
//!
//! sealed:   "pgseal/tpm2/v1", the context (16 bytes), the key (32 bytes)
//! ```
//!
//! The two lengths with their areas are TPM2B_PUBLIC and TPM2B_PRIVATE, as tpm2-tools write them.

use pgseal_plugin::{Failure, Fault, MAX_WRAPPED_LEN, Secret};
use zeroize::Zeroizing;

const VERSION: u8 = 1;
/// What makes a sealed key one of this plugin.
const LABEL: &[u8; 14] = b"pgseal/tpm2/v1";
const CONTEXT_LEN: usize = 16;
const KEY_LEN: usize = 32;
/// What the TPM seals, in bytes. A TPM seals at most 128.
pub(crate) const SEALED_LEN: usize = LABEL.len() + CONTEXT_LEN + KEY_LEN;

/// `TPM_ALG_KEYEDHASH`, then `TPM_ALG_SHA256` for the name (Part 2, section 6.3).
const TYPE_AND_NAME: [u8; 4] = [0x00, 0x08, 0x00, 0x0b];
/// `TPM_ALG_NULL`: the object signs nothing.
const NO_SCHEME: [u8; 2] = [0x00, 0x10];
const DIGEST_LEN: usize = 32;

/// The attributes of a sealed key (Part 2, section 8.3), and their names for `tpm2_create`.
pub(crate) struct Attributes {
    bits: u32,
    pub names: &'static str,
}

/// `fixedtpm` and `fixedparent`: only this TPM opens it. `noda`: the object has no authorization
/// value that could be guessed, and wrong values of other objects must not keep a server from
/// starting.
pub(crate) const OPEN: Attributes =
    Attributes { bits: 0x0452, names: "fixedtpm|fixedparent|userwithauth|noda" };
/// The policy, and nothing else, gives access.
pub(crate) const POLICY: Attributes =
    Attributes { bits: 0x0492, names: "fixedtpm|fixedparent|adminwithpolicy|noda" };

/// A sealed key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Blob<'a> {
    /// TPM2B_PUBLIC.
    pub public: &'a [u8],
    /// TPM2B_PRIVATE.
    pub private: &'a [u8],
    /// Whether a policy must hold to unseal it.
    pub has_policy: bool,
}

/// Makes a wrapped key of the files that `tpm2_create` wrote.
pub(crate) fn encoded(public: &[u8], private: &[u8]) -> Result<Vec<u8>, Failure<'static>> {
    let wrapped = [&[VERSION], public, private].concat();
    match decoded(&wrapped) {
        Ok(blob) if blob.public == public => Ok(wrapped),
        _ => Err(Failure::new(
            Fault::Configuration,
            "the tools did not make the object that was asked for; this plugin knows tpm2-tools 5",
        )),
    }
}

/// Parses a wrapped key: only an object as [`encoded`] takes it.
pub(crate) fn decoded(wrapped: &[u8]) -> Result<Blob<'_>, Failure<'static>> {
    let parse = || {
        let rest = match wrapped {
            [VERSION, rest @ ..] if wrapped.len() <= MAX_WRAPPED_LEN => rest,
            _ => return None,
        };
        let (public, area, rest) = sized(rest)?;
        let (private, _, rest) = sized(rest)?;
        let has_policy = has_policy(area)?;
        rest.is_empty().then_some(Blob { public, private, has_policy })
    };
    parse().ok_or_else(|| Failure::new(Fault::Wrong, "no key that this plugin wrapped"))
}

/// Splits off a length of two bytes and as many bytes: both together, the bytes, and the rest.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, _) = bytes.split_first_chunk::<2>()?;
    let (both, rest) = bytes.split_at_checked(2 + usize::from(u16::from_be_bytes(*len)))?;
    Some((both, both.get(2..)?, rest))
}

/// Whether a public area has a policy; `None` if it is not that of a key sealed by this plugin.
fn has_policy(area: &[u8]) -> Option<bool> {
    let rest = area.strip_prefix(&TYPE_AND_NAME)?;
    let (bits, rest) = rest.split_first_chunk::<4>()?;
    let (_, policy, rest) = sized(rest)?;
    let (_, unique, rest) = sized(rest.strip_prefix(&NO_SCHEME)?)?;
    let has_policy = match (u32::from_be_bytes(*bits), policy.len()) {
        (bits, 0) if bits == OPEN.bits => false,
        (bits, DIGEST_LEN) if bits == POLICY.bits => true,
        _ => return None,
    };
    (unique.len() == DIGEST_LEN && rest.is_empty()).then_some(has_policy)
}

/// What the TPM seals.
pub(crate) fn sealed(context: &[u8; CONTEXT_LEN], secret: &Secret) -> Zeroizing<[u8; SEALED_LEN]> {
    let mut sealed = Zeroizing::new([0; SEALED_LEN]);
    let parts = LABEL.iter().chain(context).chain(secret.expose());
    for (to, from) in sealed.iter_mut().zip(parts) {
        *to = *from;
    }
    sealed
}

/// The key in what the TPM unsealed, if it was sealed for this context.
pub(crate) fn opened(
    context: &[u8; CONTEXT_LEN],
    unsealed: &[u8],
) -> Result<Secret, Failure<'static>> {
    let wrong = |what: &str| Failure::new(Fault::Wrong, what);
    let rest = unsealed.strip_prefix(LABEL).filter(|_| unsealed.len() == SEALED_LEN);
    let rest = rest.ok_or_else(|| wrong("what the TPM unsealed is no key of pgseal"))?;
    let key = rest.strip_prefix(context);
    let key = key.ok_or_else(|| wrong("it was sealed for another keyring"))?;
    let key: &[u8; KEY_LEN] =
        key.try_into().map_err(|_| wrong("the sealed key is not one of 32 bytes"))?;
    Secret::init_with(|out| {
        out.copy_from_slice(key);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// An object as tpm2-tools 5.4 wrote it, with and without a policy.
    fn public(attributes: &Attributes, policy: &[u8]) -> Vec<u8> {
        let policy_len = u16::try_from(policy.len()).unwrap().to_be_bytes();
        let bits = attributes.bits.to_be_bytes();
        let area = [&TYPE_AND_NAME[..], &bits, &policy_len, policy, &NO_SCHEME, &[0, 32], &[7; 32]];
        let area = area.concat();
        [&u16::try_from(area.len()).unwrap().to_be_bytes()[..], &area].concat()
    }

    fn private() -> Vec<u8> {
        [&[0, 158][..], &[9; 158]].concat()
    }

    #[test]
    fn wrapped_keys_round_trip() {
        for (attributes, policy, has_policy) in [(OPEN, &[][..], false), (POLICY, &[5; 32], true)] {
            let (public, private) = (public(&attributes, policy), private());
            let wrapped = encoded(&public, &private).unwrap();
            let wanted = Blob { public: &public, private: &private, has_policy };
            assert_eq!(decoded(&wrapped).unwrap(), wanted);
            assert!(wrapped.len() < 260, "{}", wrapped.len());
        }
        let plain = public(&OPEN, &[]);
        assert_eq!(plain.get(..12).unwrap(), [0, 46, 0, 8, 0, 11, 0, 0, 4, 0x52, 0, 0]);
    }

    #[test]
    fn other_objects_are_no_wrapped_keys() {
        let weaker = Attributes { bits: 0x0440, names: "userwithauth|noda" };
        let both = Attributes { bits: 0x04d2, names: "userwithauth and a policy" };
        for bad in [
            public(&weaker, &[]),
            public(&POLICY, &[]),
            public(&OPEN, &[5; 32]),
            public(&both, &[5; 32]),
            public(&POLICY, &[5; 20]),
            [public(&OPEN, &[]), vec![0]].concat(),
        ] {
            assert_eq!(encoded(&bad, &private()).unwrap_err().kind, Fault::Configuration);
        }
    }

    /// Every cut and every added byte is refused, and so is every change of a constant byte.
    #[test]
    fn changed_lengths_and_constants_are_refused() {
        let whole = encoded(&public(&POLICY, &[5; 32]), &private()).unwrap();
        for len in 0..whole.len() {
            assert_eq!(decoded(whole.get(..len).unwrap()).unwrap_err().kind, Fault::Wrong, "{len}");
        }
        assert!(decoded(&[&whole[..], &[0]].concat()).is_err());
        let free = (13..45).chain(49..81).chain(83..whole.len());
        let free: Vec<usize> = free.collect();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.clone();
                *bad.get_mut(at).unwrap() ^= 1 << bit;
                assert_eq!(decoded(&bad).is_ok(), free.contains(&at), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_key_opens_for_its_keyring_only() {
        let secret = Secret::init_with(|out| {
            out.fill(0x5a);
            Ok::<(), ()>(())
        });
        let secret = secret.unwrap();
        let sealed = sealed(&[1; 16], &secret);
        assert!(sealed.len() <= 128);
        assert_eq!(opened(&[1; 16], &*sealed).unwrap().expose(), secret.expose());
        let other = opened(&[2; 16], &*sealed).unwrap_err();
        assert!(other.kind == Fault::Wrong && other.message.contains("another keyring"));
        for len in 0..sealed.len() {
            assert!(opened(&[1; 16], sealed.get(..len).unwrap()).is_err(), "{len}");
        }
        let longer = [&sealed[..], &[0]].concat();
        assert!(opened(&[1; 16], &longer).is_err() && opened(&[1; 16], &[1; 62]).is_err());
    }
}
