//! AES with the instructions of x86-64 (AES-NI), inline. A Feistel network with one block for each
//! round, or a CBC-MAC, would spend as much time on calling a library for each block as on the
//! block itself. Tests compare the results with those of AWS-LC.
//!
//! Timing does not depend on data: no table, no branch on a key or a block.

use core::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128,
    _mm_and_si128, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi32,
    _mm_set1_epi64x, _mm_shuffle_epi8, _mm_sub_epi64, _mm_xor_si128,
};

use zeroize::Zeroize;

use super::{BLOCK_BYTES, Block, Feistel};

const MAX_ROUNDS: usize = 14;
/// Number of key stream blocks that are computed at the same time.
const LANES: usize = 4;

/// The round keys of FIPS 197, on a processor that has the instructions; wiped when dropped.
pub(super) struct RoundKeys {
    keys: [__m128i; MAX_ROUNDS + 1],
    rounds: usize,
}

impl RoundKeys {
    /// Expands a key of 16, 24 or 32 bytes; `None` on a processor without the instructions.
    pub(super) fn new(key: &[u8]) -> Option<Box<RoundKeys>> {
        let able = is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3");
        if !able || !matches!(key.len(), 16 | 24 | 32) {
            return None;
        }
        let keys = [load(&[0; BLOCK_BYTES]); MAX_ROUNDS + 1];
        let mut round_keys = Box::new(RoundKeys { keys, rounds: key.len() / 4 + 6 });
        // SAFETY: the processor has the instructions.
        unsafe { round_keys.expand(key) };
        Some(round_keys)
    }

    /// KeyExpansion, FIPS 197, section 5.2.
    #[target_feature(enable = "aes,ssse3")]
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
            let pair = |low: u32, high: u32| (u64::from(low) | (u64::from(high) << 32)) as i64;
            *key = _mm_set_epi64x(pair(four[2], four[3]), pair(four[0], four[1]));
        }
        words.zeroize();
    }

    /// The rounds after the first AddRoundKey.
    #[inline]
    #[target_feature(enable = "aes,ssse3")]
    fn rounds(&self, mut state: __m128i) -> __m128i {
        let (last, middle) = (self.keys[self.rounds], &self.keys[1..self.rounds]);
        for key in middle {
            state = _mm_aesenc_si128(state, *key);
        }
        _mm_aesenclast_si128(state, last)
    }

    /// Enciphers one block.
    #[inline]
    pub(super) fn encrypt(&self, block: &Block) -> Block {
        // SAFETY: the processor has the instructions, or there would be no round keys.
        unsafe { self.encrypt_block(block) }
    }

    #[target_feature(enable = "aes,ssse3")]
    fn encrypt_block(&self, block: &Block) -> Block {
        store(self.rounds(_mm_xor_si128(load(block), self.keys[0])))
    }

    /// CBC-MAC: enciphers `chain` xored with the first block, and so on.
    pub(super) fn chain(&self, chain: &Block, blocks: &[Block]) -> Block {
        // SAFETY: as in `encrypt`.
        unsafe { self.chain_blocks(chain, blocks) }
    }

    #[target_feature(enable = "aes,ssse3")]
    fn chain_blocks(&self, chain: &Block, blocks: &[Block]) -> Block {
        let mut state = load(chain);
        for block in blocks {
            let input = _mm_xor_si128(load(block), self.keys[0]);
            state = self.rounds(_mm_xor_si128(state, input));
        }
        store(state)
    }

    /// CTR mode with a big-endian counter; both buffers have the same length.
    pub(super) fn ctr(&self, counter: &Block, input: &[u8], output: &mut [u8]) {
        // SAFETY: as in `encrypt`.
        unsafe { self.ctr_lanes(counter, input, output) };
    }

    #[target_feature(enable = "aes,ssse3")]
    fn ctr_lanes(&self, first: &Block, input: &[u8], output: &mut [u8]) {
        let mut counter = u128::from_be_bytes(*first);
        let (from, from_rest) = input.as_chunks::<BLOCK_BYTES>();
        let (to, to_rest) = output.as_chunks_mut::<BLOCK_BYTES>();
        for (from, to) in from.chunks(LANES).zip(to.chunks_mut(LANES)) {
            let stream = self.stream(counter);
            counter = counter.wrapping_add(LANES as u128);
            for ((to, from), key) in to.iter_mut().zip(from).zip(stream) {
                *to = store(_mm_xor_si128(load(from), key));
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
    #[target_feature(enable = "aes,ssse3")]
    fn stream(&self, counter: u128) -> [__m128i; LANES] {
        let (last, middle) = (self.keys[self.rounds], &self.keys[1..self.rounds]);
        let mut lanes: [__m128i; LANES] = core::array::from_fn(|lane| {
            let block = counter.wrapping_add(lane as u128).to_be_bytes();
            _mm_xor_si128(load(&block), self.keys[0])
        });
        for key in middle {
            lanes = lanes.map(|state| _mm_aesenc_si128(state, *key));
        }
        lanes.map(|state| _mm_aesenclast_si128(state, last))
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

    #[target_feature(enable = "aes,ssse3")]
    fn feistel_forward(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        let vectors = Vectors::new(shape, self.keys[0]);
        let (mut a, mut b) = (half(a), half(b));
        for i in 0..shape.rounds {
            let y = vectors.number(self.rounds(vectors.block(i, b)));
            (a, b) = (b, _mm_and_si128(_mm_add_epi64(a, y), vectors.mask));
        }
        (_mm_cvtsi128_si64(a) as u64, _mm_cvtsi128_si64(b) as u64)
    }

    #[target_feature(enable = "aes,ssse3")]
    fn feistel_backward(&self, shape: &Feistel, a: u64, b: u64) -> (u64, u64) {
        let vectors = Vectors::new(shape, self.keys[0]);
        let (mut a, mut b) = (half(a), half(b));
        for i in (0..shape.rounds).rev() {
            let y = vectors.number(self.rounds(vectors.block(i, a)));
            (a, b) = (_mm_and_si128(_mm_sub_epi64(b, y), vectors.mask), a);
        }
        (_mm_cvtsi128_si64(a) as u64, _mm_cvtsi128_si64(b) as u64)
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
    base: __m128i,
    round_shift: u32,
    mask: __m128i,
    /// Shuffles that move a number (little-endian, in the low half of a register) to the end of a
    /// block, and a number at the start of a block back to the low half of a register.
    to_block: __m128i,
    to_number: __m128i,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "aes,ssse3")]
    fn new(shape: &Feistel, first_key: __m128i) -> Vectors {
        const REVERSED: i64 = 0x0001_0203_0405_0607;
        const NOTHING: i64 = i64::from_le_bytes([0x80; 8]);
        Vectors {
            base: _mm_xor_si128(load(&shape.chain.to_be_bytes()), first_key),
            round_shift: shape.half_bits.div_ceil(8) * 8,
            mask: _mm_set1_epi64x(((1_u64 << shape.half_bits) - 1) as i64),
            to_block: _mm_set_epi64x(REVERSED, NOTHING),
            to_number: _mm_set_epi64x(NOTHING, REVERSED),
        }
    }

    /// The block of round `i`: its last bytes are the round and the half.
    #[inline]
    #[target_feature(enable = "aes,ssse3")]
    fn block(&self, i: u64, half: __m128i) -> __m128i {
        let round = _mm_set_epi64x((i << self.round_shift).swap_bytes() as i64, 0);
        let constant = _mm_xor_si128(self.base, round);
        _mm_xor_si128(constant, _mm_shuffle_epi8(half, self.to_block))
    }

    /// NUM of the first 8 bytes of a block.
    #[inline]
    #[target_feature(enable = "aes,ssse3")]
    fn number(&self, block: __m128i) -> __m128i {
        _mm_shuffle_epi8(block, self.to_number)
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn half(number: u64) -> __m128i {
    _mm_set_epi64x(0, number as i64)
}

/// SubWord, FIPS 197, section 5.2.
#[target_feature(enable = "aes")]
fn sub_word(word: u32) -> u32 {
    let words = _mm_set1_epi32(word as i32);
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(words)) as u32
}

#[inline]
fn load(block: &Block) -> __m128i {
    // SAFETY: both are 16 bytes without invalid values.
    unsafe { core::mem::transmute::<Block, __m128i>(*block) }
}

#[inline]
fn store(state: __m128i) -> Block {
    // SAFETY: both are 16 bytes without invalid values.
    unsafe { core::mem::transmute::<__m128i, Block>(state) }
}
