//! The native FF1 gives the same results as the general one over bit strings.

#![allow(clippy::unwrap_used)]

use pgseal_column::ColumnError;
use pgseal_column::ff1::{Ff1, Ff1Native, TWEAK_BYTES};
use proptest::prelude::*;

fn bits(number: u64, count: u32) -> Vec<u16> {
    (0..count).rev().map(|bit| ((number >> bit) & 1) as u16).collect()
}

fn number(bits: &[u16]) -> u64 {
    bits.iter().fold(0, |number, bit| (number << 1) | u64::from(*bit))
}

type Call<'a> = &'a dyn Fn(u64) -> u64;

fn check(general: &Ff1, tweak: &[u8], count: u32, plain: u64, encrypt: Call, decrypt: Call) {
    let mut string = bits(plain, count);
    general.encrypt(tweak, &mut string).unwrap();
    let sealed = encrypt(plain);
    assert_eq!(sealed, number(&string), "{count} bits");
    assert_eq!(decrypt(sealed), plain, "{count} bits");
    // Every number is also a ciphertext, so decryption comes first here.
    general.decrypt(tweak, &mut string).unwrap();
    assert_eq!(number(&string), plain);
}

fn check_all(key: &[u8], tweak: &[u8; TWEAK_BYTES], plain: u64) {
    let (general, native) = (Ff1::new(key, 2).unwrap(), Ff1Native::new(key).unwrap());
    let (plain32, plain60) = (plain as u32, plain >> 4);
    check(&general, tweak, 64, plain, &|x| native.encrypt64(tweak, x), &|x| {
        native.decrypt64(tweak, x)
    });
    check(&general, tweak, 60, plain60, &|x| native.encrypt60(tweak, x).unwrap(), &|x| {
        native.decrypt60(tweak, x).unwrap()
    });
    let narrow = |x: u64| u32::try_from(x).unwrap();
    check(
        &general,
        tweak,
        32,
        u64::from(plain32),
        &|x| u64::from(native.encrypt32(tweak, narrow(x))),
        &|x| u64::from(native.decrypt32(tweak, narrow(x))),
    );
}

proptest! {
    #[test]
    fn native_equals_general(
        key in any::<[u8; 32]>(),
        key_len in prop_oneof![Just(16_usize), Just(24), Just(32)],
        tweak in any::<[u8; TWEAK_BYTES]>(),
        plain in any::<u64>(),
    ) {
        check_all(&key[..key_len], &tweak, plain);
    }

    #[test]
    fn general_round_trips(
        key in any::<[u8; 16]>(),
        tweak in proptest::collection::vec(any::<u8>(), 0..40),
        radix in prop_oneof![Just(2_u32), Just(3), Just(10), Just(26), Just(36), Just(256), Just(65536), 2..=65536_u32],
        seed in proptest::collection::vec(any::<u16>(), 1..60),
    ) {
        let ff1 = Ff1::new(&key, radix).unwrap();
        let plain: Vec<u16> = seed.iter().map(|x| (u32::from(*x) % radix) as u16).collect();
        let mut text = plain.clone();
        match ff1.encrypt(&tweak, &mut text) {
            Ok(()) => {
                prop_assert!(text.iter().all(|numeral| u32::from(*numeral) < radix));
                ff1.decrypt(&tweak, &mut text).unwrap();
                prop_assert_eq!(text, plain);
            }
            Err(error) => {
                prop_assert_eq!(error, ColumnError::Domain);
                let bits = f64::from(radix).log2() * plain.len() as f64;
                prop_assert!(!(20.0..=220.0).contains(&bits), "{bits} bits refused");
            }
        }
    }
}

#[test]
fn native_equals_general_at_the_edges() {
    for plain in [0, 1, 0xFFFF, 0x1_0000, 0xFFFF_FFFF, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX] {
        for tweak in [[0; TWEAK_BYTES], [0xFF; TWEAK_BYTES]] {
            check_all(&[0; 32], &tweak, plain);
        }
    }
    let native = Ff1Native::new(&[0; 32]).unwrap();
    for large in [1 << 60, u64::MAX] {
        assert_eq!(native.encrypt60(&[0; TWEAK_BYTES], large), Err(ColumnError::Domain));
        assert_eq!(native.decrypt60(&[0; TWEAK_BYTES], large), Err(ColumnError::Domain));
    }
}

/// The ciphertexts of consecutive numbers have no order, and differ in half of their bits.
#[test]
fn no_order_and_no_pattern() {
    let native = Ff1Native::new(&[9; 32]).unwrap();
    let sealed: Vec<u32> = (0..2000).map(|x| native.encrypt32(&[0; TWEAK_BYTES], x)).collect();
    let ascents = sealed.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((850..1150).contains(&ascents), "{ascents} of 1999 neighbours ascend");
    let flips: u32 = sealed.windows(2).map(|pair| (pair[0] ^ pair[1]).count_ones()).sum();
    assert!((30_000..34_000).contains(&flips), "{flips} of 63968 bits flip");
    let other = Ff1Native::new(&[8; 32]).unwrap();
    let same = (0..2000).filter(|x| {
        let plain = *x as u32;
        let here = sealed[*x as usize];
        here == native.encrypt32(&[1; TWEAK_BYTES], plain)
            || here == other.encrypt32(&[0; 9], plain)
    });
    assert_eq!(same.count(), 0);
}
