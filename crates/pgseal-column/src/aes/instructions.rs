//! AES with the processor's own instructions (AES-NI of x86-64, the AES instructions of ARMv8),
//! inline. A Feistel network with one block for each round, or a CBC-MAC, would spend as much time
//! on calling a library for each block as on the block itself. Tests compare the results with those
//! of AWS-LC.
//!
//! What differs between the processors is in a module for each of them. A vector is a block, or two
//! numbers of 64 bits of which the low one comes first.
//!
//! Timing does not depend on data: no table, no branch on a key or a block.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use zeroize::Zeroize;

#[cfg(target_arch = "aarch64")]
use aarch64::{Vector, add, and, are_there, encipher, low, pair, shuffle, sub, sub_word, xor};
#[cfg(target_arch = "x86_64")]
use x86_64::{Vector, add, and, are_there, encipher, low, pair, shuffle, sub, sub_word, xor};

use super::{BLOCK_BYTES, Block, Feistel};

const MAX_ROUNDS: usize = 14;
/// Number of key stream blocks that are computed at the same time.
const LANES: usize = 4;

/// The round keys of FIPS 197, on a processor that has the instructions; wiped when dropped.
pub(super) struct RoundKeys {
    keys: [Vector; MAX_ROUNDS + 1],
    rounds: usize,
}

impl RoundKeys {
    /// Expands a key of 16, 24 or 32 bytes; `None` on a processor without the instructions.
    pub(super) fn new(key: &[u8]) -> Option<Box<RoundKeys>> {
        if !are_there() || !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        let keys = [load(&[0; BLOCK_BYTES]); MAX_ROUNDS + 1];
        let mut round_keys = Box::new(RoundKeys { keys, rounds: key.len() / 4 + 6 });
        // SAFETY: the processor has the instructions.
        unsafe { round_keys.expand(key) };
        Some(round_keys)
    }

    /// KeyExpansion, FIPS 197, section 5.2.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn expand(&mut self, key: &[u8]) {
        let mut words = [0_u32; 4 * (MAX_ROUNDS + 1)];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let (key_words, mut constant) = (key.len() / 4, 1_u8);
        for at in key_words..4 * (self.rounds + 1) {
            let mut word = words[at - 1];
            if at % key_words == 0 {
                word = sub_word(word).rotate_right(8) ^ u32::from(constant);
                constant = (constant << 1) ^ ((constant >> 7) * 0x1B);
            } else if key_words == 8 && at % 8 == 4 {
                word = sub_word(word);
            }
            words[at] = words[at - key_words] ^ word;
        }
        for (key, four) in self.keys.iter_mut().zip(words.as_chunks::<4>().0) {
            let joined = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
            *key = pair(joined(four[0], four[1]), joined(four[2], four[3]));
        }
        words.zeroize();
    }

    /// The rounds after the first AddRoundKey.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn rounds(&self, state: Vector) -> Vector {
        let [state] = encipher([state], &self.keys[1..=self.rounds]);
        state
    }

    /// Enciphers one block.
    #[inline]
    pub(super) fn encrypt(&self, block: &Block) -> Block {
        // SAFETY: the processor has the instructions, or there would be no round keys.
        unsafe { self.encrypt_block(block) }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn encrypt_block(&self, block: &Block) -> Block {
        store(self.rounds(xor(load(block), self.keys[0])))
    }

    /// CBC-MAC: enciphers `chain` xored with the first block, and so on.
    pub(super) fn chain(&self, chain: &Block, blocks: &[Block]) -> Block {
        // SAFETY: as in `encrypt`.
        unsafe { self.chain_blocks(chain, blocks) }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn chain_blocks(&self, chain: &Block, blocks: &[Block]) -> Block {
        let mut state = load(chain);
        for block in blocks {
            let input = xor(load(block), self.keys[0]);
            state = self.rounds(xor(state, input));
        }
        store(state)
    }

    /// CTR mode with a big-endian counter; both buffers have the same length.
    pub(super) fn ctr(&self, counter: &Block, input: &[u8], output: &mut [u8]) {
        // SAFETY: as in `encrypt`.
        unsafe { self.ctr_lanes(counter, input, output) };
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn ctr_lanes(&self, first: &Block, input: &[u8], output: &mut [u8]) {
        let mut counter = u128::from_be_bytes(*first);
        let (from, from_rest) = input.as_chunks::<BLOCK_BYTES>();
        let (to, to_rest) = output.as_chunks_mut::<BLOCK_BYTES>();
        for (from, to) in from.chunks(LANES).zip(to.chunks_mut(LANES)) {
            let stream = self.stream(counter);
            counter = counter.wrapping_add(LANES as u128);
            for ((to, from), key) in to.iter_mut().zip(from).zip(stream) {
                *to = store(xor(load(from), key));
            }
        }
        if !from_rest.is_empty() {
            let counter = u128::from_be_bytes(*first).wrapping_add(from.len() as u128);
            let stream = self.encrypt_block(&counter.to_be_bytes());
            for ((to, from), key) in to_rest.iter_mut().zip(from_rest).zip(stream) {
                *to = from ^ key;
            }
        }
    }

    /// The key stream of the next blocks.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn stream(&self, counter: u128) -> [Vector; LANES] {
        let lanes: [Vector; LANES] = core::array::from_fn(|lane| {
            let block = counter.wrapping_add(lane as u128).to_be_bytes();
            xor(load(&block), self.keys[0])
        });
        encipher(lanes, &self.keys[1..=self.rounds])
    }

    /// FF1's rounds forward: the halves A and B.
    pub(super) fn feistel(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        // SAFETY: as in `encrypt`.
        unsafe { self.feistel_forward(shape, a, b) }
    }

    /// FF1's rounds backward.
    pub(super) fn feistel_inverse(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        // SAFETY: as in `encrypt`.
        unsafe { self.feistel_backward(shape, a, b) }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn feistel_forward(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        let vectors = Vectors::new(shape, self.keys[0]);
        let (mut a, mut b) = (pair(a, 0), pair(b, 0));
        for i in 0..shape.rounds {
            let y = vectors.number(self.rounds(vectors.block(i, b)));
            (a, b) = (b, and(add(a, y), vectors.mask));
        }
        (low(a), low(b))
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn feistel_backward(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        let vectors = Vectors::new(shape, self.keys[0]);
        let (mut a, mut b) = (pair(a, 0), pair(b, 0));
        for i in (0..shape.rounds).rev() {
            let y = vectors.number(self.rounds(vectors.block(i, a)));
            (a, b) = (and(sub(b, y), vectors.mask), a);
        }
        (low(a), low(b))
    }
}

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// The constants of a Feistel network, in registers.
struct Vectors {
    /// The constant part of each block (all but the round number and the half), after AddRoundKey.
    base: Vector,
    round_shift: u32,
    mask: Vector,
    /// Shuffles that move a number (little-endian, in the low half of a register) to the end of a
    /// block, and a number at the start of a block back to the low half of a register.
    to_block: Vector,
    to_number: Vector,
}

impl Vectors {
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn new(shape: &Feistel, first_key: Vector) -> Vectors {
        const REVERSED: u64 = 0x0001_0203_0405_0607;
        // No byte of a vector has this number: the result is zero.
        const NOTHING: u64 = u64::from_le_bytes([0x80; 8]);
        Vectors {
            base: xor(load(&shape.chain.to_be_bytes()), first_key),
            round_shift: shape.half_bits.div_ceil(8) * 8,
            mask: pair(shape.mask(), shape.mask()),
            to_block: pair(NOTHING, REVERSED),
            to_number: pair(REVERSED, NOTHING),
        }
    }

    /// The block of round `i`: its last bytes are the round and the half.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn block(&self, i: u64, half: Vector) -> Vector {
        let round = pair(0, (i << self.round_shift).swap_bytes());
        let constant = xor(self.base, round);
        xor(constant, shuffle(half, self.to_block))
    }

    /// NUM of the first 8 bytes of a block.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "aes,ssse3"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "aes"))]
    fn number(&self, block: Vector) -> Vector {
        shuffle(block, self.to_number)
    }
}

#[inline]
fn load(block: &Block) -> Vector {
    // SAFETY: both are 16 bytes without invalid values.
    unsafe { core::mem::transmute::<Block, Vector>(*block) }
}

#[inline]
fn store(state: Vector) -> Block {
    // SAFETY: both are 16 bytes without invalid values.
    unsafe { core::mem::transmute::<Vector, Block>(state) }
}
