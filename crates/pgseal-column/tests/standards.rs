//! Checks the ciphers with the vectors of their standards.

#![allow(clippy::unwrap_used)]

mod common;

use common::hex;
use pgseal_column::ColumnError;
use pgseal_column::ff1::Ff1;
use pgseal_column::siv::Siv;

const ALPHABET: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

fn numerals(text: &str) -> Vec<u16> {
    text.chars().map(|c| ALPHABET.find(c).unwrap() as u16).collect()
}

/// NIST's "FF1 samples" (CSRC, examples with intermediate values): all nine.
#[test]
fn ff1_samples() {
    let key = hex("2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94");
    let digits = "0123456789";
    let letters = "0123456789abcdefghi";
    let (short, long) = ("39383736353433323130", "3737373770717273373737");
    for (key_len, radix, tweak, plain, sealed) in [
        (16, 10, "", digits, "2433477484"),
        (16, 10, short, digits, "6124200773"),
        (16, 36, long, letters, "a9tv40mll9kdu509eum"),
        (24, 10, "", digits, "2830668132"),
        (24, 10, short, digits, "2496655549"),
        (24, 36, long, letters, "xbj3kv35jrawxv32ysr"),
        (32, 10, "", digits, "6657667009"),
        (32, 10, short, digits, "1001623463"),
        (32, 36, long, letters, "xs8a0azh2avyalyzuwd"),
    ] {
        let ff1 = Ff1::new(&key[..key_len], radix).unwrap();
        let mut text = numerals(plain);
        ff1.encrypt(&hex(tweak), &mut text).unwrap();
        assert_eq!(text, numerals(sealed), "AES-{} radix {radix}", 8 * key_len);
        ff1.decrypt(&hex(tweak), &mut text).unwrap();
        assert_eq!(text, numerals(plain));
    }
}

/// SP 800-38G Revision 1, second draft: at least a million strings.
#[test]
fn ff1_refuses_small_domains() {
    for (radix, shortest) in [(2, 20), (10, 6), (36, 4), (999, 3), (1000, 2), (65536, 2)] {
        let ff1 = Ff1::new(&[1; 32], radix).unwrap();
        assert_eq!(ff1.encrypt(b"", &mut vec![0; shortest - 1]), Err(ColumnError::Domain));
        assert_eq!(ff1.decrypt(b"", &mut vec![0; shortest - 1]), Err(ColumnError::Domain));
        assert_eq!(ff1.encrypt(b"", &mut vec![0; shortest]), Ok(()), "radix {radix}");
    }
    for radix in [0, 1, 65537] {
        assert!(matches!(Ff1::new(&[1; 32], radix), Err(ColumnError::Domain)));
    }
    let ff1 = Ff1::new(&[1; 32], 10).unwrap();
    assert_eq!(ff1.encrypt(b"", &mut [1, 2, 3, 4, 5, 10]), Err(ColumnError::Domain), "a numeral");
    assert_eq!(ff1.encrypt(b"", &mut [1; 72]), Ok(()));
    assert_eq!(ff1.encrypt(b"", &mut [1; 74]), Err(ColumnError::Domain), "half has 123 bits");
    assert_eq!(ff1.encrypt(&[0; 65537], &mut [1; 9]), Err(ColumnError::TooLong));
}

fn siv(key: &str, associated: &[&str], plain: &str, sealed: &str) {
    let siv = Siv::new(&hex(key)).unwrap();
    let strings: Vec<Vec<u8>> = associated.iter().map(|text| hex(text)).collect();
    let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
    let (associated, plain, sealed) = (siv.associate(&strings), hex(plain), hex(sealed));
    let mut body = vec![0; plain.len()];
    let iv = siv.seal(&associated, &plain, &mut body).unwrap();
    assert_eq!([&iv[..], &body].concat(), sealed);
    let mut opened = vec![0xAA; plain.len()];
    siv.open(&associated, &iv, &body, &mut opened).unwrap();
    assert_eq!(opened, plain);
    let mut other = iv;
    other[15] ^= 1;
    let refused = siv.open(&associated, &other, &body, &mut opened);
    assert_eq!(refused, Err(ColumnError::NotAuthentic));
    assert!(opened.iter().all(|byte| *byte == 0));
}

/// RFC 5297, appendix A.
#[test]
fn siv_of_rfc_5297() {
    siv(
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        &["101112131415161718191a1b1c1d1e1f2021222324252627"],
        "112233445566778899aabbccddee",
        "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c",
    );
    siv(
        "7f7e7d7c7b7a79787776757473727170404142434445464748494a4b4c4d4e4f",
        &[
            "00112233445566778899aabbccddeeffdeaddadadeaddadaffeeddccbbaa99887766554433221100",
            "102030405060708090a0",
            "09f911029d74e35bd84156c5635688c0",
        ],
        "7468697320697320736f6d6520706c61696e7465787420746f20656e6372797074207573696e67205349562d414553",
        "7bdb6e3b432667eb06f4d14bff2fbd0fcb900f2fddbe404326601965c889bf17dba77ceb094fa663b7a3f748ba8af829ea64ad544a272e9c485b62a3fd5c0d",
    );
}

/// 256-bit keys, which the RFC has no vectors for: made with pyca/cryptography over OpenSSL.
#[test]
fn siv_with_256_bit_keys() {
    let key: Vec<u8> = (0..64).collect();
    let siv_key = Siv::new(&key).unwrap();
    let associated = siv_key.associate(&[b"associated"]);
    for (len, sealed) in [
        (1, "1a5496cf970cb82f16ea4f000954a349c7"),
        (15, "77fef540b810baec848f7b04b0a5f48c9b78bd567ce5b07da7c89700d9ee2c"),
        (16, "adf5d61b811af535e6ec22ae5a312d6c1c8cb65c9a92108167f9a0fb0640fbfe"),
        (17, "1e3f1807d4f4c11de69c1f94c30404d13e0c63e9ee92de6048e44e402d07118ab9"),
        (
            31,
            "a977073a7f086fca6881096fba81248e2df6c88a0e51001114ee1a5070f060b65db97ee87231f501f30d0196ff4a57",
        ),
        (
            32,
            "d6ff199986dc9cbfd9016306e4e6901c961234af7b8e314109638313eb4a6867899c843c34b555860cfcd5555cc9915d",
        ),
        (
            33,
            "89e01b08586f42c2b76bce98421a18c15452a6a50ced66545c99dd13b9caf94dac7aef28c495aa26c931c727968ac26ccc",
        ),
        (
            48,
            "d35fb46bf73ed1d919b9a6a2bdcc7cc7d5fd54d5373d9e3c049b7504aa0c1cc95a65ad175c62f42fdd5fa50b7110e0bd9779497585fb847a7b51bbdb01f7ac3b",
        ),
        (
            100,
            "e3d457b050f258cf068fd21c19300686e84ed51b91857623e398cdbf4f8ad7afb39515bee90a11808aab71bbda306fb0fa7234a1bf388775f6f4f684451337496329b833da20b4e06d156fbeb8ca860c7f50235c7a142171b21fd03be5415fb91ad227cc03b7b887ff064861a6896343d179144c",
        ),
    ] {
        let plain: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        let mut body = vec![0; plain.len()];
        let iv = siv_key.seal(&associated, &plain, &mut body).unwrap();
        assert_eq!([&iv[..], &body].concat(), hex(sealed), "{len} bytes");
    }
    for len in [0, 31, 63, 65, 128] {
        assert!(matches!(Siv::new(&vec![0; len]), Err(ColumnError::KeyLength)));
    }
}
