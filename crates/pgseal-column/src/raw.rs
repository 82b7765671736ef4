//! Raw AES, compatible with pgcrypto's `encrypt` and `decrypt`, for reading existing data. It has
//! no integrity protection.

use zeroize::{Zeroize, Zeroizing};

use crate::aes::{Aes, AesInverse, BLOCK_BYTES, Block};
use crate::error::ColumnError;

/// The modes and paddings of pgcrypto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawMode {
    /// `aes`, `aes-cbc`: CBC, padding of PKCS #7 (RFC 5652, section 6.3).
    Cbc,
    /// `aes-ecb`: ECB, the same padding.
    Ecb,
    /// `aes-cbc/pad:none`: whole blocks only.
    CbcNoPad,
    /// `aes-ecb/pad:none`: whole blocks only.
    EcbNoPad,
}

impl RawMode {
    /// The mode with this number in the C interface.
    #[must_use]
    pub fn from_number(number: i32) -> Option<RawMode> {
        match number {
            0 => Some(RawMode::Cbc),
            1 => Some(RawMode::Ecb),
            2 => Some(RawMode::CbcNoPad),
            3 => Some(RawMode::EcbNoPad),
            _ => None,
        }
    }

    /// The number of the C interface.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Parses a cipher name of pgcrypto, `algorithm[-mode][/pad:padding]...`, ignoring case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<RawMode> {
        let is = |text: &str, known: &[&str]| known.iter().any(|k| text.eq_ignore_ascii_case(k));
        let mut parts = name.split('/');
        let cipher = parts.next()?;
        let cbc = is(cipher, &["aes", "aes-cbc", "rijndael", "rijndael-cbc"]);
        if !cbc && !is(cipher, &["aes-ecb", "rijndael-ecb"]) {
            return None;
        }
        let padded = parts.try_fold(true, |_, option| match option {
            pad if is(pad, &["pad:pkcs"]) => Some(true),
            pad if is(pad, &["pad:none"]) => Some(false),
            _ => None,
        })?;
        Some(match (cbc, padded) {
            (true, true) => RawMode::Cbc,
            (false, true) => RawMode::Ecb,
            (true, false) => RawMode::CbcNoPad,
            (false, false) => RawMode::EcbNoPad,
        })
    }

    fn is_cbc(self) -> bool {
        matches!(self, RawMode::Cbc | RawMode::CbcNoPad)
    }

    fn is_padded(self) -> bool {
        matches!(self, RawMode::Cbc | RawMode::Ecb)
    }
}

/// A raw AES key with both schedules.
#[derive(Debug)]
pub struct RawKey {
    mode: RawMode,
    encrypt: Aes,
    decrypt: AesInverse,
}

impl RawKey {
    /// Makes a key from bytes of any length: zeros are appended up to 16, 24 or 32 bytes, and bytes
    /// after the first 32 are ignored.
    ///
    /// # Errors
    /// [`ColumnError::Internal`].
    pub fn new(key: &[u8], mode: RawMode) -> Result<RawKey, ColumnError> {
        pgseal_crypto::check(pgseal_crypto::Service::RawAes)?;
        let mut filled = Zeroizing::new([0; 32]);
        for (to, from) in filled.iter_mut().zip(key) {
            *to = *from;
        }
        let len = key.len().clamp(1, 32).div_ceil(8).max(2) * 8;
        let key = filled.get(..len).ok_or(ColumnError::Internal)?;
        Ok(RawKey { mode, encrypt: Aes::new(key)?, decrypt: AesInverse::new(key)? })
    }

    /// Enciphers into the beginning of `out`. Returns the number of bytes written. Zeros are
    /// appended to a short `iv`, and a long one is truncated.
    ///
    /// # Errors
    /// [`ColumnError::BufferTooSmall`]; [`ColumnError::BadRaw`] if the mode has no padding and
    /// `plain` does not consist of whole blocks.
    pub fn encrypt(&self, iv: &[u8], plain: &[u8], out: &mut [u8]) -> Result<usize, ColumnError> {
        let (blocks, rest) = plain.as_chunks::<BLOCK_BYTES>();
        let whole = blocks.as_flattened();
        if !self.mode.is_padded() && !rest.is_empty() {
            return Err(ColumnError::BadRaw);
        }
        let len = whole.len() + if self.mode.is_padded() { BLOCK_BYTES } else { 0 };
        let out = out.get_mut(..len).ok_or(ColumnError::BufferTooSmall)?;
        let (out_whole, out_last) = out.split_at_mut(whole.len());
        let mut chain = if self.mode.is_cbc() { fill_iv(iv) } else { [0; BLOCK_BYTES] };
        if self.mode.is_cbc() {
            self.encrypt.cbc_encrypt(&mut chain, whole, out_whole)?;
        } else {
            for (to, block) in out_whole.as_chunks_mut().0.iter_mut().zip(blocks) {
                *to = self.encrypt.encrypt(block);
            }
        }
        if let Some(to) = out_last.first_chunk_mut::<BLOCK_BYTES>() {
            let mut last = [(BLOCK_BYTES - rest.len()) as u8; BLOCK_BYTES];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            let mixed = u128::from_be_bytes(last) ^ u128::from_be_bytes(chain);
            *to = self.encrypt.encrypt(&mixed.to_be_bytes());
        }
        Ok(len)
    }

    /// Deciphers into the beginning of `out`, which is at least as long as `cipher`. Returns the
    /// length of the plain value. If the padding is wrong, the bytes written are zeroed.
    ///
    /// # Errors
    /// [`ColumnError::BufferTooSmall`], [`ColumnError::BadRaw`].
    pub fn decrypt(&self, iv: &[u8], cipher: &[u8], out: &mut [u8]) -> Result<usize, ColumnError> {
        let (blocks, rest) = cipher.as_chunks::<BLOCK_BYTES>();
        if !rest.is_empty() || (blocks.is_empty() && self.mode.is_padded()) {
            return Err(ColumnError::BadRaw);
        }
        let out = out.get_mut(..cipher.len()).ok_or(ColumnError::BufferTooSmall)?;
        if self.mode.is_cbc() {
            self.decrypt.cbc_decrypt(&fill_iv(iv), cipher, out)?;
        } else {
            for (to, block) in out.as_chunks_mut().0.iter_mut().zip(blocks) {
                *to = self.decrypt.decrypt(block);
            }
        }
        if !self.mode.is_padded() {
            return Ok(cipher.len());
        }
        let last = out.last_chunk::<BLOCK_BYTES>().ok_or(ColumnError::Internal)?;
        match padding(last) {
            Some(padding) => Ok(cipher.len() - padding),
            None => {
                out.zeroize();
                Err(ColumnError::BadRaw)
            }
        }
    }
}

/// The length of the padding; `None` if it is wrong. Only the final result decides a branch.
fn padding(last: &Block) -> Option<usize> {
    let count = last[BLOCK_BYTES - 1];
    let mut wrong = u8::from(count == 0) | u8::from(usize::from(count) > BLOCK_BYTES);
    for (at, byte) in last.iter().enumerate() {
        let inside = u8::from(usize::from(count) + at >= BLOCK_BYTES);
        wrong |= inside & u8::from(*byte != count);
    }
    (wrong == 0).then_some(usize::from(count))
}

fn fill_iv(iv: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    block.iter_mut().zip(iv).for_each(|(to, from)| *to = *from);
    block
}
