//! FF1 with radix 2 over all numbers of 32, 60 or 64 bits, for a 9-byte tweak, one AES block a
//! round.
//!
//! With n bits and t = 9 bytes, P || Q of SP 800-38G, algorithm 7, is two blocks. P is constant, so
//! CIPH(P) is computed once. Q holds the tweak, zeros, the round and the half B. NUM and STR of bit
//! strings are machine integers, and the modulus is a mask.

use crate::aes::{Aes, Feistel};
use crate::error::ColumnError;

/// Bytes of the tweak.
pub const TWEAK_BYTES: usize = 9;
const ROUNDS: u64 = 10;

/// FF1 over numbers of 32, 60 and 64 bits under one key.
#[derive(Debug)]
pub struct Ff1Native {
    aes: Aes,
    /// CIPH(P) for each n, as big-endian numbers.
    p32: u128,
    p60: u128,
    p64: u128,
}

impl Ff1Native {
    /// From an AES key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`].
    pub fn new(key: &[u8]) -> Result<Ff1Native, ColumnError> {
        let aes = Aes::new(key)?;
        let p = |bits: u8| {
            let t = TWEAK_BYTES as u8;
            let block = [1, 2, 1, 0, 0, 2, 10, bits / 2, 0, 0, 0, bits, 0, 0, 0, t];
            u128::from_be_bytes(aes.encrypt(&block))
        };
        let (p32, p60, p64) = (p(32), p(60), p(64));
        Ok(Ff1Native { aes, p32, p60, p64 })
    }

    /// Enciphers a 64-bit number.
    #[must_use]
    pub fn encrypt64(&self, tweak: &[u8; TWEAK_BYTES], plain: u64) -> u64 {
        self.encrypt::<64>(self.p64, tweak, plain)
    }

    /// Deciphers a 64-bit number.
    #[must_use]
    pub fn decrypt64(&self, tweak: &[u8; TWEAK_BYTES], sealed: u64) -> u64 {
        self.decrypt::<64>(self.p64, tweak, sealed)
    }

    /// Enciphers a number below 2^60.
    ///
    /// # Errors
    /// [`ColumnError::Domain`] for any other.
    pub fn encrypt60(&self, tweak: &[u8; TWEAK_BYTES], plain: u64) -> Result<u64, ColumnError> {
        below_60_bits(plain)?;
        Ok(self.encrypt::<60>(self.p60, tweak, plain))
    }

    /// Deciphers a number below 2^60.
    ///
    /// # Errors
    /// [`ColumnError::Domain`] for any other.
    pub fn decrypt60(&self, tweak: &[u8; TWEAK_BYTES], sealed: u64) -> Result<u64, ColumnError> {
        below_60_bits(sealed)?;
        Ok(self.decrypt::<60>(self.p60, tweak, sealed))
    }

    /// Enciphers a 32-bit number.
    #[must_use]
    pub fn encrypt32(&self, tweak: &[u8; TWEAK_BYTES], plain: u32) -> u32 {
        self.encrypt::<32>(self.p32, tweak, u64::from(plain)) as u32
    }

    /// Deciphers a 32-bit number.
    #[must_use]
    pub fn decrypt32(&self, tweak: &[u8; TWEAK_BYTES], sealed: u32) -> u32 {
        self.decrypt::<32>(self.p32, tweak, u64::from(sealed)) as u32
    }

    #[inline]
    fn encrypt<const N: u32>(&self, p: u128, tweak: &[u8; TWEAK_BYTES], x: u64) -> u64 {
        let half_mask = (1 << (N / 2)) - 1;
        let (a, b) = self.aes.feistel(&shape::<N>(p, tweak), x >> (N / 2), x & half_mask);
        (a << (N / 2)) | b
    }

    #[inline]
    fn decrypt<const N: u32>(&self, p: u128, tweak: &[u8; TWEAK_BYTES], x: u64) -> u64 {
        let half_mask = (1 << (N / 2)) - 1;
        let (a, b) = self.aes.feistel_inverse(&shape::<N>(p, tweak), x >> (N / 2), x & half_mask);
        (a << (N / 2)) | b
    }
}

/// The parameters of the Feistel network for N bits. Q begins with the tweak.
#[inline]
fn shape<const N: u32>(p: u128, tweak: &[u8; TWEAK_BYTES]) -> Feistel {
    let mut block = [0; 16];
    block[..TWEAK_BYTES].copy_from_slice(tweak);
    Feistel { chain: p ^ u128::from_be_bytes(block), half_bits: N / 2, rounds: ROUNDS }
}

fn below_60_bits(x: u64) -> Result<(), ColumnError> {
    if x >> 60 == 0 { Ok(()) } else { Err(ColumnError::Domain) }
}
