//! The AES instructions of ARMv8 (the cryptographic extension), and NEON, which every processor of
//! this architecture under Linux has.

use core::arch::aarch64::{
    uint8x16_t, vaddq_u64, vaeseq_u8, vaesmcq_u8, vandq_u8, vcombine_u64, vcreate_u64, vdupq_n_u8,
    vdupq_n_u32, veorq_u8, vgetq_lane_u32, vgetq_lane_u64, vqtbl1q_u8, vreinterpretq_u8_u32,
    vreinterpretq_u8_u64, vreinterpretq_u32_u8, vreinterpretq_u64_u8, vsubq_u64,
};

pub(super) type Vector = uint8x16_t;

/// Whether this processor has the instructions: they are optional in ARMv8.
pub(super) fn are_there() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// The rounds of FIPS 197 after the first AddRoundKey, on independent blocks at the same time.
/// `AESE` is AddRoundKey, SubBytes and ShiftRows, and so begins each round with the key of the one
/// before; that of the first round is already added.
/// Loops and no `map`: as for x86-64.
#[inline]
#[target_feature(enable = "aes")]
pub(super) fn encipher<const N: usize>(mut states: [Vector; N], keys: &[Vector]) -> [Vector; N] {
    let Some(([middle @ .., before], last)) = keys.split_last().map(|(last, rest)| (rest, last))
    else {
        return states;
    };
    let nothing = vdupq_n_u8(0);
    for state in &mut states {
        *state = vaesmcq_u8(vaeseq_u8(*state, nothing));
    }
    for key in middle {
        for state in &mut states {
            *state = vaesmcq_u8(vaeseq_u8(*state, *key));
        }
    }
    for state in &mut states {
        *state = veorq_u8(vaeseq_u8(*state, *before), *last);
    }
    states
}

/// SubWord, FIPS 197, section 5.2: ShiftRows changes nothing where all columns are the same.
#[target_feature(enable = "aes")]
pub(super) fn sub_word(word: u32) -> u32 {
    let words = vreinterpretq_u8_u32(vdupq_n_u32(word));
    vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(words, vdupq_n_u8(0))))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn pair(low: u64, high: u64) -> Vector {
    vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn low(numbers: Vector) -> u64 {
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(numbers))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn xor(a: Vector, b: Vector) -> Vector {
    veorq_u8(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn and(a: Vector, b: Vector) -> Vector {
    vandq_u8(a, b)
}

/// Adds the numbers, modulo 2^64.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add(a: Vector, b: Vector) -> Vector {
    vreinterpretq_u8_u64(vaddq_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)))
}

/// Subtracts the numbers, modulo 2^64.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn sub(a: Vector, b: Vector) -> Vector {
    vreinterpretq_u8_u64(vsubq_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)))
}

/// The bytes of `from` that `order` numbers; zero for the number 0x80.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn shuffle(from: Vector, order: Vector) -> Vector {
    vqtbl1q_u8(from, order)
}
