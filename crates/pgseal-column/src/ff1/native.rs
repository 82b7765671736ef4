//! FF1 with radix 2 over all numbers of 32 or 64 bits, for a 9-byte tweak, one AES block a round.
//!
//! With n = 32 or 64 bits and t = 9 bytes, P || Q of SP 800-38G, algorithm 7, is two blocks: P is constant, so that
//! its cipher block is kept; Q holds the tweak, zeros, the round and the half B. NUM and STR of bit strings are
//! what the processor does anyway, and the modulus is that of its registers.

use crate::aes::Aes;
use crate::error::ColumnError;

/// Bytes of the tweak.
pub const TWEAK_BYTES: usize = 9;
const ROUNDS: u128 = 10;

/// FF1 over 32- and 64-bit numbers under one key.
#[derive(Debug)]
pub struct Ff1Native {
    aes: Aes,
    /// CIPH(P) for n = 32 and n = 64, as big-endian numbers.
    p32: u128,
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
        let (p32, p64) = (p(32), p(64));
        Ok(Ff1Native { aes, p32, p64 })
    }

    /// The first block of the chain with everything of Q that does not change, as a number.
    #[inline]
    fn start(p: u128, tweak: &[u8; TWEAK_BYTES]) -> u128 {
        let mut block = [0; 16];
        block[..TWEAK_BYTES].copy_from_slice(tweak);
        p ^ u128::from_be_bytes(block)
    }

    /// The low 64 bits of NUM(S): S is the first 8 bytes of the block.
    #[inline]
    fn round(&self, block: u128) -> u64 {
        (u128::from_be_bytes(self.aes.encrypt(&block.to_be_bytes())) >> 64) as u64
    }

    /// Enciphers a 64-bit number.
    #[must_use]
    pub fn encrypt64(&self, tweak: &[u8; TWEAK_BYTES], plain: u64) -> u64 {
        let start = Ff1Native::start(self.p64, tweak);
        let (mut a, mut b) = ((plain >> 32) as u32, plain as u32);
        for i in 0..ROUNDS {
            let y = self.round(start ^ (i << 32) ^ u128::from(b));
            (a, b) = (b, a.wrapping_add(y as u32));
        }
        (u64::from(a) << 32) | u64::from(b)
    }

    /// Deciphers a 64-bit number.
    #[must_use]
    pub fn decrypt64(&self, tweak: &[u8; TWEAK_BYTES], sealed: u64) -> u64 {
        let start = Ff1Native::start(self.p64, tweak);
        let (mut a, mut b) = ((sealed >> 32) as u32, sealed as u32);
        for i in (0..ROUNDS).rev() {
            let y = self.round(start ^ (i << 32) ^ u128::from(a));
            (a, b) = (b.wrapping_sub(y as u32), a);
        }
        (u64::from(a) << 32) | u64::from(b)
    }

    /// Enciphers a 32-bit number.
    #[must_use]
    pub fn encrypt32(&self, tweak: &[u8; TWEAK_BYTES], plain: u32) -> u32 {
        let start = Ff1Native::start(self.p32, tweak);
        let (mut a, mut b) = ((plain >> 16) as u16, plain as u16);
        for i in 0..ROUNDS {
            let y = self.round(start ^ (i << 16) ^ u128::from(b));
            (a, b) = (b, a.wrapping_add(y as u16));
        }
        (u32::from(a) << 16) | u32::from(b)
    }

    /// Deciphers a 32-bit number.
    #[must_use]
    pub fn decrypt32(&self, tweak: &[u8; TWEAK_BYTES], sealed: u32) -> u32 {
        let start = Ff1Native::start(self.p32, tweak);
        let (mut a, mut b) = ((sealed >> 16) as u16, sealed as u16);
        for i in (0..ROUNDS).rev() {
            let y = self.round(start ^ (i << 16) ^ u128::from(a));
            (a, b) = (b.wrapping_sub(y as u16), a);
        }
        (u32::from(a) << 16) | u32::from(b)
    }
}
