//! The measured algorithms: the AES modes of study 1 and newer ones, with their key lengths.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A mode of operation of AES, or ChaCha20-Poly1305, the only AEAD here that does not use AES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Electronic codebook (SP 800-38A, 6.1).
    Ecb,
    /// Cipher block chaining (SP 800-38A, 6.2).
    Cbc,
    /// Cipher feedback with whole blocks (SP 800-38A, 6.3).
    Cfb,
    /// Output feedback (SP 800-38A, 6.4).
    Ofb,
    /// Counter (SP 800-38A, 6.5).
    Ctr,
    /// XTS (IEEE 1619, SP 800-38E).
    Xts,
    /// Galois/counter, authenticated (SP 800-38D).
    Gcm,
    /// GCM-SIV, authenticated, survives a repeated nonce (RFC 8452).
    GcmSiv,
    /// ChaCha20-Poly1305, authenticated (RFC 8439).
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Mode {
    /// All modes, in the order of the tables.
    pub const ALL: [Mode; 9] = [
        Mode::Ecb,
        Mode::Cbc,
        Mode::Cfb,
        Mode::Ofb,
        Mode::Ctr,
        Mode::Xts,
        Mode::Gcm,
        Mode::GcmSiv,
        Mode::ChaCha20Poly1305,
    ];

    /// The key lengths that the mode is defined for, in bits.
    pub fn key_bits(self) -> &'static [u16] {
        match self {
            Mode::Xts | Mode::GcmSiv => &[128, 256],
            Mode::ChaCha20Poly1305 => &[256],
            _ => &[128, 192, 256],
        }
    }

    /// Whether the mode authenticates.
    pub fn is_aead(self) -> bool {
        matches!(self, Mode::Gcm | Mode::GcmSiv | Mode::ChaCha20Poly1305)
    }

    /// Bytes of nonce or IV that the mode reads.
    pub fn iv_len(self) -> usize {
        match self {
            Mode::Ecb => 0,
            mode if mode.is_aead() => 12,
            _ => 16,
        }
    }

    /// The mode's part of an identifier: `gcm-siv`.
    pub fn id(self) -> &'static str {
        match self {
            Mode::Ecb => "ecb",
            Mode::Cbc => "cbc",
            Mode::Cfb => "cfb",
            Mode::Ofb => "ofb",
            Mode::Ctr => "ctr",
            Mode::Xts => "xts",
            Mode::Gcm => "gcm",
            Mode::GcmSiv => "gcm-siv",
            Mode::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The name for reports: `GCM-SIV`.
    pub fn title(self) -> &'static str {
        match self {
            Mode::Ecb => "ECB",
            Mode::Cbc => "CBC",
            Mode::Cfb => "CFB",
            Mode::Ofb => "OFB",
            Mode::Ctr => "CTR",
            Mode::Xts => "XTS",
            Mode::Gcm => "GCM",
            Mode::GcmSiv => "GCM-SIV",
            Mode::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }
}

/// A mode with its key length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Algorithm {
    /// The mode.
    pub mode: Mode,
    /// Bits of the key; for XTS, bits of one of the two keys.
    pub key_bits: u16,
}

impl Algorithm {
    /// Every mode with every key length.
    pub fn all() -> Vec<Algorithm> {
        let of = |mode: Mode| {
            mode.key_bits().iter().map(move |key_bits| Algorithm { mode, key_bits: *key_bits })
        };
        Mode::ALL.into_iter().flat_map(of).collect()
    }

    /// Bytes of key that the algorithm reads; XTS reads two keys.
    pub fn key_len(self) -> usize {
        let one = usize::from(self.key_bits) / 8;
        if self.mode == Mode::Xts { 2 * one } else { one }
    }

    /// The name for reports: `AES-256-GCM`.
    pub fn title(self) -> String {
        match self.mode {
            Mode::ChaCha20Poly1305 => self.mode.title().to_owned(),
            mode => format!("AES-{}-{}", self.key_bits, mode.title()),
        }
    }
}

/// `aes-256-gcm`, which is also OpenSSL's name of the algorithm.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::ChaCha20Poly1305 => f.write_str(self.mode.id()),
            mode => write!(f, "aes-{}-{}", self.key_bits, mode.id()),
        }
    }
}

/// The text names no algorithm of this experiment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: no such algorithm; they are named like aes-256-gcm, and chacha20-poly1305")]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        Algorithm::all()
            .into_iter()
            .find(|algorithm| algorithm.to_string() == text)
            .ok_or_else(|| UnknownAlgorithm(text.to_owned()))
    }
}

/// Encrypting or decrypting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext; verifies the tag if the mode has one.
    Decrypt,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

    /// `encrypt`, `decrypt`.
    pub fn id(self) -> &'static str {
        match self {
            Direction::Encrypt => "encrypt",
            Direction::Decrypt => "decrypt",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        let all = Algorithm::all();
        assert_eq!(all.len(), 6 * 3 + 2 + 2 + 1);
        for algorithm in all {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("aes-192-xts".parse::<Algorithm>().is_err());
        assert_eq!("aes-128-xts".parse::<Algorithm>().map(Algorithm::key_len), Ok(32));
    }
}
