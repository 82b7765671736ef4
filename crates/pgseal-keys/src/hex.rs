//! Byte arrays of a fixed length as lower-case hexadecimal, also as fields of JSON
//! (`#[serde(with = "crate::hex")]`).

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Decodes into `out`. Fails unless the text is lower-case hexadecimal for exactly that many bytes.
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> Result<(), ()> {
    if HEXLOWER.decode_len(text.len()) != Ok(out.len()) {
        return Err(());
    }
    HEXLOWER.decode_mut(text, out).map(|_| ()).map_err(|_| ())
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&HEXLOWER.encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
    from: D,
) -> Result<[u8; N], D::Error> {
    let text = String::deserialize(from)?;
    let mut bytes = [0; N];
    decode(text.as_bytes(), &mut bytes)
        .map_err(|()| D::Error::custom("not lower-case hexadecimal of the right length"))?;
    Ok(bytes)
}
