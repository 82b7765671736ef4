//! Bytes as lower-case hexadecimal, as members of JSON.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Byte strings of 1 to `MAX` bytes: `#[serde(with = "hex::Limited::<MAX>")]`.
pub(crate) struct Limited<const MAX: usize>;

impl<const MAX: usize> Limited<MAX> {
    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        // Borrowed: hexadecimal needs no escapes.
        let text = <&str>::deserialize(from)?;
        if text.is_empty() || text.len() > 2 * MAX {
            return Err(D::Error::custom("too few or too many bytes"));
        }
        HEXLOWER.decode(text.as_bytes()).map_err(|_| D::Error::custom("not lower-case hexadecimal"))
    }
}

/// Decodes exactly `N` bytes into `out`, and leaves no other copy.
pub(crate) fn fixed<'de, D: Deserializer<'de>, const N: usize>(
    from: D,
    out: &mut [u8; N],
) -> Result<(), D::Error> {
    let text = <&str>::deserialize(from)?;
    let wrong = || D::Error::custom("not lower-case hexadecimal of the right length");
    if HEXLOWER.decode_len(text.len()) != Ok(N) {
        return Err(wrong());
    }
    HEXLOWER.decode_mut(text.as_bytes(), out).map(|_| ()).map_err(|_| wrong())
}

/// Sixteen bytes: the identity of a keyring.
pub(crate) mod id {
    use super::{Deserializer, HEXLOWER, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 16], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 16], D::Error> {
        let mut bytes = [0; 16];
        super::fixed(from, &mut bytes)?;
        Ok(bytes)
    }
}
