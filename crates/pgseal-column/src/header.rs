//! The first bytes of an authenticated value: mode and key version (`spec/column-cipher.md`,
//! section 3).

use crate::error::ColumnError;

/// The longest plain value, in bytes: that of PostgreSQL's varlena.
pub const MAX_PLAIN_BYTES: usize = (1 << 30) - 1;
/// The longest header, in bytes.
pub const MAX_HEADER_BYTES: usize = 5;
/// Bytes of an authentication tag, or of the synthetic IV.
pub const TAG_BYTES: usize = 16;
/// Bytes of the nonce of a randomised value.
pub const NONCE_BYTES: usize = 12;

const MODE_SHIFT: u32 = 5;
const VERSION_MASK: u8 = 0x1F;
/// In place of the key version: the version follows as a u32.
const VERSION_FOLLOWS: u8 = 0x1F;

/// The mode of an authenticated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// AES-SIV.
    Deterministic = 1,
    /// AES-256-GCM with a random nonce.
    Randomised = 2,
}

impl Mode {
    /// How many bytes a sealed value of this mode has in addition to its header and plain bytes.
    #[must_use]
    pub const fn overhead_bytes(self) -> usize {
        match self {
            Mode::Deterministic => TAG_BYTES,
            Mode::Randomised => NONCE_BYTES + TAG_BYTES,
        }
    }
}

/// The header of an authenticated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The mode.
    pub mode: Mode,
    /// The version of the column key, from 1.
    pub key_version: u32,
}

/// A header in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderBytes {
    bytes: [u8; MAX_HEADER_BYTES],
    len: usize,
}

impl HeaderBytes {
    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Header {
    /// The header in bytes: 1 byte for key versions below 31, or else 5.
    #[must_use]
    pub fn to_bytes(self) -> HeaderBytes {
        let mode = (self.mode as u8) << MODE_SHIFT;
        let version = self.key_version.to_le_bytes();
        match u8::try_from(self.key_version) {
            Ok(small) if small < VERSION_FOLLOWS => {
                HeaderBytes { bytes: [mode | small, 0, 0, 0, 0], len: 1 }
            }
            _ => {
                let [a, b, c, d] = version;
                HeaderBytes { bytes: [mode | VERSION_FOLLOWS, a, b, c, d], len: 5 }
            }
        }
    }

    /// Parses the header of a sealed value. Returns the header and the bytes that follow it.
    ///
    /// # Errors
    /// [`ColumnError::NotSealed`] if the bytes cannot be a sealed value: the mode is unknown, the
    /// key version is 0 or has the long form though the short form exists, or the value is too
    /// short or too long.
    pub fn parse(sealed: &[u8]) -> Result<(Header, &[u8]), ColumnError> {
        let (first, rest) = sealed.split_first().ok_or(ColumnError::NotSealed)?;
        let mode = match first >> MODE_SHIFT {
            1 => Mode::Deterministic,
            2 => Mode::Randomised,
            _ => return Err(ColumnError::NotSealed),
        };
        let (key_version, body) = match first & VERSION_MASK {
            0 => return Err(ColumnError::NotSealed),
            VERSION_FOLLOWS => {
                let (bytes, body) = rest.split_first_chunk().ok_or(ColumnError::NotSealed)?;
                let version = u32::from_le_bytes(*bytes);
                if version < u32::from(VERSION_FOLLOWS) {
                    return Err(ColumnError::NotSealed);
                }
                (version, body)
            }
            small => (u32::from(small), rest),
        };
        let plain_len = body.len().checked_sub(mode.overhead_bytes());
        match plain_len {
            Some(0..=MAX_PLAIN_BYTES) => Ok((Header { mode, key_version }, body)),
            _ => Err(ColumnError::NotSealed),
        }
    }
}
