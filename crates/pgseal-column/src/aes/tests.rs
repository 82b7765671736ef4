//! AES against FIPS 197, and the instructions against AWS-LC.

use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// FIPS 197, appendix C: the examples for each key size.
#[test]
fn blocks_of_fips_197() {
    let key: Vec<u8> = (0..32).collect();
    let plain: Block = hex("00112233445566778899aabbccddeeff").try_into().unwrap();
    for (len, sealed) in [
        (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (32, "8ea2b7ca516745bfeafc49904b496089"),
    ] {
        let sealed: Block = hex(sealed).try_into().unwrap();
        assert_eq!(Aes::new(&key[..len]).unwrap().encrypt(&plain), sealed);
        assert_eq!(Aes::by_library(&key[..len]).unwrap().encrypt(&plain), sealed);
        assert_eq!(AesInverse::new(&key[..len]).unwrap().decrypt(&sealed), plain);
    }
    assert!(matches!(Aes::new(&key[..20]), Err(ColumnError::KeyLength)));
}

/// If the instructions were not used, the properties below would compare AWS-LC with itself.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn the_instructions_are_used_if_the_processor_has_them() {
    #[cfg(target_arch = "x86_64")]
    let has_them = is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_them = std::arch::is_aarch64_feature_detected!("aes");
    let aes = Aes::new(&[0; 32]).unwrap();
    assert_eq!(aes.instructions.is_some(), has_them);
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(16), Just(24), Just(32)]
        .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len))
}

proptest! {
    #[test]
    fn instructions_and_library_agree(
        key in key(),
        block in any::<Block>(),
        blocks in proptest::collection::vec(any::<Block>(), 0..9),
        text in proptest::collection::vec(any::<u8>(), 0..300),
        halves in any::<(u64, u64)>(),
        half_bits in 1_u32..=32,
        chain in any::<u128>(),
    ) {
        let (ours, theirs) = (Aes::new(&key).unwrap(), Aes::by_library(&key).unwrap());
        prop_assert_eq!(ours.encrypt(&block), theirs.encrypt(&block));
        prop_assert_eq!(ours.chain(&block, &blocks), theirs.chain(&block, &blocks));
        // As in AES-SIV: the counter begins 2^31 blocks before its low 32 bits overflow.
        let mut counter = block;
        counter[8] &= 0x7F;
        counter[12] &= 0x7F;
        let (mut a, mut b) = (vec![0; text.len()], vec![1; text.len()]);
        ours.ctr(&counter, &text, &mut a).unwrap();
        theirs.ctr(&counter, &text, &mut b).unwrap();
        prop_assert_eq!(a, b);
        let shape = Feistel { chain, half_bits, rounds: 10 };
        let (x, y) = (halves.0 & shape.mask(), halves.1 & shape.mask());
        let sealed = ours.feistel(&shape, x, y);
        prop_assert_eq!(sealed, theirs.feistel(&shape, x, y));
        prop_assert_eq!(ours.feistel_inverse(&shape, sealed.0, sealed.1), (x, y));
        prop_assert_eq!(theirs.feistel_inverse(&shape, sealed.0, sealed.1), (x, y));
    }
}
