//! AES-NI and SSSE3.

use core::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128,
    _mm_and_si128, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi32,
    _mm_shuffle_epi8, _mm_sub_epi64, _mm_xor_si128,
};

pub(super) type Vector = __m128i;

/// Whether this processor has the instructions.
pub(super) fn are_there() -> bool {
    is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3")
}

/// The rounds of FIPS 197 after the first AddRoundKey, on independent blocks at the same time.
/// Loops and no `map`: a closure with these instructions is not inlined into a function without
/// them, and each round of each block would be a call.
#[inline]
#[target_feature(enable = "aes")]
pub(super) fn encipher<const N: usize>(mut states: [Vector; N], keys: &[Vector]) -> [Vector; N] {
    let Some((last, middle)) = keys.split_last() else { return states };
    for key in middle {
        for state in &mut states {
            *state = _mm_aesenc_si128(*state, *key);
        }
    }
    for state in &mut states {
        *state = _mm_aesenclast_si128(*state, *last);
    }
    states
}

/// SubWord, FIPS 197, section 5.2.
#[target_feature(enable = "aes")]
pub(super) fn sub_word(word: u32) -> u32 {
    let words = _mm_set1_epi32(word as i32);
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(words)) as u32
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn pair(low: u64, high: u64) -> Vector {
    _mm_set_epi64x(high as i64, low as i64)
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn low(numbers: Vector) -> u64 {
    _mm_cvtsi128_si64(numbers) as u64
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn and(a: Vector, b: Vector) -> Vector {
    _mm_and_si128(a, b)
}

/// Adds the numbers, modulo 2^64.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn add(a: Vector, b: Vector) -> Vector {
    _mm_add_epi64(a, b)
}

/// Subtracts the numbers, modulo 2^64.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn sub(a: Vector, b: Vector) -> Vector {
    _mm_sub_epi64(a, b)
}

/// The bytes of `from` that `order` numbers; zero for the number 0x80.
#[inline]
#[target_feature(enable = "ssse3")]
pub(super) fn shuffle(from: Vector, order: Vector) -> Vector {
    _mm_shuffle_epi8(from, order)
}
