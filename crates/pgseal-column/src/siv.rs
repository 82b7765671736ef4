//! Deterministic authenticated encryption: AES-SIV (RFC 5297).

use core::fmt;

use zeroize::Zeroize;

use crate::aes::{Aes, BLOCK_BYTES, Block, xor};
use crate::error::ColumnError;

/// AES-SIV under one key.
pub struct Siv {
    mac: Aes,
    ctr: Aes,
    /// The sub-keys of CMAC (SP 800-38B): for a whole last block, and for a padded one.
    whole: Block,
    padded: Block,
    /// CMAC of the zero block, where S2V begins.
    start: Block,
}

/// The result of S2V over the associated data, which is computed once for many values.
#[derive(Clone, Copy, Debug)]
pub struct Associated(Block);

impl Zeroize for Associated {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Siv {
    /// Makes the key schedules for a key of 32, 48 or 64 bytes: the key of S2V, then the key of
    /// CTR.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`].
    pub fn new(key: &[u8]) -> Result<Siv, ColumnError> {
        let (mac, ctr) = key.split_at(key.len() / 2);
        let (mac, ctr) = (Aes::new(mac)?, Aes::new(ctr)?);
        let whole = double(&mac.encrypt(&[0; BLOCK_BYTES]));
        let padded = double(&whole);
        let start = mac.encrypt(&whole);
        Ok(Siv { mac, ctr, whole, padded, start })
    }

    /// S2V over all strings of associated data, in their order.
    #[must_use]
    pub fn associate(&self, strings: &[&[u8]]) -> Associated {
        let d = strings.iter().fold(self.start, |d, string| xor(&double(&d), &self.cmac(string)));
        Associated(d)
    }

    /// Seals `plain` into `sealed`, which has the same length. Returns the synthetic IV.
    ///
    /// # Errors
    /// [`ColumnError::Internal`] if the lengths differ.
    pub fn seal(
        &self,
        associated: &Associated,
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<Block, ColumnError> {
        let iv = self.s2v(associated, plain);
        self.crypt(&iv, plain, sealed)?;
        Ok(iv)
    }

    /// Opens `sealed` into `plain`, which has the same length. If the value is not authentic,
    /// `plain` is zeroed.
    ///
    /// # Errors
    /// [`ColumnError::NotAuthentic`]; [`ColumnError::Internal`] when the lengths differ.
    pub fn open(
        &self,
        associated: &Associated,
        iv: &Block,
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), ColumnError> {
        self.crypt(iv, sealed, plain)?;
        if equal(iv, &self.s2v(associated, plain)) {
            return Ok(());
        }
        plain.zeroize();
        Err(ColumnError::NotAuthentic)
    }

    /// The last step of S2V, with the plaintext.
    fn s2v(&self, associated: &Associated, plain: &[u8]) -> Block {
        let d = &associated.0;
        match plain.split_last_chunk::<BLOCK_BYTES>() {
            Some(([], last)) => self.mac.encrypt(&xor(&xor(last, d), &self.whole)),
            Some(_) => self.cmac_xorend(plain, d),
            None => self.mac.encrypt(&xor(&xor(&double(d), &pad(plain)), &self.whole)),
        }
    }

    /// AES-CMAC (RFC 4493, SP 800-38B).
    fn cmac(&self, message: &[u8]) -> Block {
        let (blocks, rest) = last_block(message);
        let chain = self.chain(blocks);
        let last = match <&Block>::try_from(rest) {
            Ok(block) => xor(block, &self.whole),
            Err(_) => xor(&pad(rest), &self.padded),
        };
        self.mac.encrypt(&xor(&chain, &last))
    }

    /// CMAC of a message of more than 16 bytes whose last 16 bytes are xored with `d`.
    fn cmac_xorend(&self, message: &[u8], d: &Block) -> Block {
        let (blocks, rest) = last_block(message);
        // `d` covers the end of the last whole block and the incomplete block after it.
        let split = BLOCK_BYTES - rest.len();
        let mut tail = [0; 2 * BLOCK_BYTES];
        let (front, last_whole) =
            if rest.len() == BLOCK_BYTES { (blocks, None) } else { split_last(blocks) };
        let mut chain = self.chain(front);
        if let Some(block) = last_whole {
            tail[rest.len()..BLOCK_BYTES].copy_from_slice(&d[..split]);
            let d_front: Block = core::array::from_fn(|at| tail[at]);
            chain = self.mac.encrypt(&xor(&xor(&chain, block), &d_front));
        }
        let mut last = [0; BLOCK_BYTES];
        last[..rest.len()].copy_from_slice(&d[split..]);
        let last = match <&Block>::try_from(rest) {
            Ok(block) => xor(&xor(block, &last), &self.whole),
            Err(_) => xor(&xor(&pad(rest), &last), &self.padded),
        };
        self.mac.encrypt(&xor(&chain, &last))
    }

    /// CBC-MAC of whole blocks.
    fn chain(&self, blocks: &[u8]) -> Block {
        self.mac.chain(&[0; BLOCK_BYTES], blocks.as_chunks().0)
    }

    fn crypt(&self, iv: &Block, input: &[u8], output: &mut [u8]) -> Result<(), ColumnError> {
        // RFC 5297, section 2.6: the 31st and 63rd bit from the right are cleared.
        let mut counter = *iv;
        counter[8] &= 0x7F;
        counter[12] &= 0x7F;
        if input.len() > BLOCK_BYTES {
            return self.ctr.ctr(&counter, input, output);
        }
        if input.len() != output.len() {
            return Err(ColumnError::Internal);
        }
        let stream = self.ctr.encrypt(&counter);
        for ((out, byte), key) in output.iter_mut().zip(input).zip(stream) {
            *out = byte ^ key;
        }
        Ok(())
    }
}

impl Drop for Siv {
    fn drop(&mut self) {
        self.whole.zeroize();
        self.padded.zeroize();
        self.start.zeroize();
    }
}

impl fmt::Debug for Siv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AES-SIV key")
    }
}

/// Splits off the last block, which may be incomplete. It is empty only if the message is empty.
fn last_block(message: &[u8]) -> (&[u8], &[u8]) {
    let blocks = message.len().saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
    message.split_at(blocks)
}

fn split_last(blocks: &[u8]) -> (&[u8], Option<&Block>) {
    match blocks.split_last_chunk() {
        Some((front, last)) => (front, Some(last)),
        None => (blocks, None),
    }
}

/// Multiplication by x (RFC 5297, section 2.3), without a branch on the bits.
fn double(block: &Block) -> Block {
    let x = u128::from_be_bytes(*block);
    ((x << 1) ^ ((x >> 127) * 0x87)).to_be_bytes()
}

/// Pads fewer than 16 bytes with a 1 bit and zeros.
fn pad(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().zip(bytes.iter().chain(core::iter::once(&0x80))) {
        *to = *from;
    }
    block
}

/// Compares two blocks in constant time.
fn equal(a: &Block, b: &Block) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}
