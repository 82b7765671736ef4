//! FF1 as SP 800-38G defines it, for numeral strings of any radix and any tweak.

use crate::aes::{Aes, BLOCK_BYTES, Block};
use crate::error::ColumnError;

/// The smallest domain: radix^length must be at least this (SP 800-38G Revision 1, second draft).
pub const MIN_DOMAIN: u128 = 1_000_000;
/// The most bits of half a string, as a number.
const MAX_HALF_BITS: u32 = 120;
const MAX_TWEAK_BYTES: usize = 1 << 16;
const ROUNDS: u8 = 10;

/// FF1 under one key and radix.
#[derive(Debug)]
pub struct Ff1 {
    aes: Aes,
    radix: u32,
}

/// The values that depend on the length of the string, named as in SP 800-38G, algorithm 7.
struct Shape {
    u: usize,
    v: usize,
    /// radix^u and radix^v.
    modulus_u: u128,
    modulus_v: u128,
    /// Bytes of NUM(B).
    b: usize,
    /// Bytes of S.
    d: usize,
    p: Block,
}

impl Ff1 {
    /// Makes a cipher from an AES key of 16, 24 or 32 bytes and a radix from 2 to 65536.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`], [`ColumnError::Domain`] for the radix.
    pub fn new(key: &[u8], radix: u32) -> Result<Ff1, ColumnError> {
        if !(2..=1 << 16).contains(&radix) {
            return Err(ColumnError::Domain);
        }
        Ok(Ff1 { aes: Aes::new(key)?, radix })
    }

    /// Enciphers a numeral string in place.
    ///
    /// # Errors
    /// [`ColumnError::Domain`] when radix^length is below a million, half the string has more than
    /// 120 bits, or a numeral is not below the radix; [`ColumnError::TooLong`] for a tweak above
    /// 65536 bytes.
    pub fn encrypt(&self, tweak: &[u8], numerals: &mut [u16]) -> Result<(), ColumnError> {
        let shape = self.shape(tweak, numerals)?;
        let (left, right) = numerals.split_at_mut(shape.u);
        let (mut a, mut b) = (self.num(left), self.num(right));
        for i in 0..ROUNDS {
            let modulus = if i % 2 == 0 { shape.modulus_u } else { shape.modulus_v };
            let y = self.round(&shape, tweak, i, b, modulus);
            (a, b) = (b, (a + y) % modulus);
        }
        self.store(a, left);
        self.store(b, right);
        Ok(())
    }

    /// Deciphers a numeral string in place.
    ///
    /// # Errors
    /// As [`Ff1::encrypt`].
    pub fn decrypt(&self, tweak: &[u8], numerals: &mut [u16]) -> Result<(), ColumnError> {
        let shape = self.shape(tweak, numerals)?;
        let (left, right) = numerals.split_at_mut(shape.u);
        let (mut a, mut b) = (self.num(left), self.num(right));
        for i in (0..ROUNDS).rev() {
            let modulus = if i % 2 == 0 { shape.modulus_u } else { shape.modulus_v };
            let y = self.round(&shape, tweak, i, a, modulus);
            (a, b) = ((b + modulus - y) % modulus, a);
        }
        self.store(a, left);
        self.store(b, right);
        Ok(())
    }

    fn shape(&self, tweak: &[u8], numerals: &[u16]) -> Result<Shape, ColumnError> {
        if tweak.len() > MAX_TWEAK_BYTES {
            return Err(ColumnError::TooLong);
        }
        let n = numerals.len();
        let (u, v) = (n / 2, n - n / 2);
        let power = |length: usize| {
            let length = u32::try_from(length).ok()?;
            u128::from(self.radix).checked_pow(length).filter(|m| *m <= 1 << MAX_HALF_BITS)
        };
        let modulus_v = power(v).ok_or(ColumnError::Domain)?;
        let modulus_u = power(u).ok_or(ColumnError::Domain)?;
        let large = modulus_u.saturating_mul(modulus_v) >= MIN_DOMAIN;
        if !large || numerals.iter().any(|numeral| u32::from(*numeral) >= self.radix) {
            return Err(ColumnError::Domain);
        }
        // ceil(v log2(radix)) is the number of bits of radix^v - 1.
        let bits = u128::BITS - (modulus_v - 1).leading_zeros();
        let b = bits.div_ceil(8) as usize;
        let d = 4 * b.div_ceil(4) + 4;
        let [_, r2, r1, r0] = self.radix.to_be_bytes();
        let [n3, n2, n1, n0] = (n as u32).to_be_bytes();
        let [t3, t2, t1, t0] = (tweak.len() as u32).to_be_bytes();
        let p = [1, 2, 1, r2, r1, r0, ROUNDS, u as u8, n3, n2, n1, n0, t3, t2, t1, t0];
        Ok(Shape { u, v, modulus_u, modulus_v, b, d, p })
    }

    /// NUM_radix(X), SP 800-38G, algorithm 1.
    fn num(&self, numerals: &[u16]) -> u128 {
        numerals.iter().fold(0, |x, numeral| x * u128::from(self.radix) + u128::from(*numeral))
    }

    /// STR^m_radix(x), SP 800-38G, algorithm 3.
    fn store(&self, mut x: u128, numerals: &mut [u16]) {
        for numeral in numerals.iter_mut().rev() {
            *numeral = (x % u128::from(self.radix)) as u16;
            x /= u128::from(self.radix);
        }
    }

    /// Steps 6.i to 6.iv and 6.vi of algorithm 7: NUM(S) modulo `modulus`.
    fn round(&self, shape: &Shape, tweak: &[u8], i: u8, half: u128, modulus: u128) -> u128 {
        let mut r = self.prf(shape, tweak, i, half);
        // S is the first d bytes of R || CIPH(R xor [1]) || ...; modulus is at most 2^120.
        let (first, mut y, mut done, mut next) = (r, 0_u128, 0, 0_u128);
        while done < shape.d {
            let count = (shape.d - done).min(BLOCK_BYTES);
            for byte in r.iter().take(count) {
                y = ((y << 8) | u128::from(*byte)) % modulus;
            }
            done += count;
            next += 1;
            r = self.aes.encrypt(&(u128::from_be_bytes(first) ^ next).to_be_bytes());
        }
        y
    }

    /// The CBC-MAC of P || Q, SP 800-38G, algorithm 6.
    fn prf(&self, shape: &Shape, tweak: &[u8], i: u8, half: u128) -> Block {
        let mut chain = self.aes.encrypt(&shape.p);
        let mut at = 0;
        let mut put = |byte: u8| {
            chain[at] ^= byte;
            at += 1;
            if at == BLOCK_BYTES {
                chain = self.aes.encrypt(&chain);
                at = 0;
            }
        };
        let tail = tweak.len() + shape.b + 1;
        tweak.iter().for_each(|byte| put(*byte));
        (0..tail.next_multiple_of(BLOCK_BYTES) - tail).for_each(|_| put(0));
        put(i);
        half.to_be_bytes().iter().skip(16 - shape.b).for_each(|byte| put(*byte));
        debug_assert!(shape.v >= shape.u);
        chain
    }
}
