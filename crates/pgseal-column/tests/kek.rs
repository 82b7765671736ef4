//! Wrapping and unwrapping column keys.

#![allow(clippy::unwrap_used)]

mod common;

use common::hex;
use pgseal_column::header::Mode;
use pgseal_column::{
    Argon2idCost, ColumnError, ColumnKey, Domain, Kek, NumberCode, TypeCode, WRAPPED_BYTES,
};

const DOMAIN: Domain = Domain(0x0102_0304_0506_0708);
const SMALL: Argon2idCost = Argon2idCost { memory_kib: 64, passes: 2, lanes: 2 };

#[test]
fn a_key_unwraps_only_for_its_domain_and_version() {
    let kek = Kek::new(&[1; 32]).unwrap();
    let wrapped = kek.wrap(DOMAIN, 3, &[9; 32]).unwrap();
    assert_eq!(*kek.unwrap(DOMAIN, 3, &wrapped).unwrap(), [9; 32]);
    let refused = |kek: &Kek, domain, version| kek.unwrap(domain, version, &wrapped).unwrap_err();
    assert_eq!(refused(&kek, Domain(1), 3), ColumnError::WrapDamaged);
    assert_eq!(refused(&kek, DOMAIN, 4), ColumnError::WrapDamaged);
    assert_eq!(refused(&Kek::new(&[2; 32]).unwrap(), DOMAIN, 3), ColumnError::WrongKek);
    assert_eq!(kek.wrap(DOMAIN, 0, &[9; 32]), Err(ColumnError::BadArgument));
    assert_ne!(kek.wrap(DOMAIN, 3, &[9; 32]).unwrap(), wrapped, "the nonce is random");
}

#[test]
fn damage_in_any_byte_is_reported() {
    let kek = Kek::new(&[1; 32]).unwrap();
    let wrapped = kek.wrap_new(DOMAIN, 1).unwrap();
    for at in 0..WRAPPED_BYTES {
        let mut bad = wrapped;
        bad[at] ^= 0x40;
        let expected = if at == 0 { ColumnError::WrapFormat } else { ColumnError::WrapDamaged };
        assert_eq!(kek.unwrap(DOMAIN, 1, &bad).unwrap_err(), expected, "byte {at}");
    }
    for len in [0, 1, 68] {
        let refused = kek.unwrap(DOMAIN, 1, &wrapped[..len]).unwrap_err();
        assert_eq!(refused, ColumnError::WrapFormat);
    }
    let longer = [&wrapped[..], &[0]].concat();
    assert_eq!(kek.unwrap(DOMAIN, 1, &longer).unwrap_err(), ColumnError::WrapFormat);
}

#[test]
fn another_kek_changes_no_value() {
    let (old, new) = (Kek::new(&[1; 32]).unwrap(), Kek::new(&[2; 32]).unwrap());
    let wrapped = old.wrap_new(DOMAIN, 1).unwrap();
    let rewrapped = new.rewrap(&old, DOMAIN, 1, &wrapped).unwrap();
    let (before, after) = (
        old.column_key(DOMAIN, 1, &wrapped).unwrap(),
        new.column_key(DOMAIN, 1, &rewrapped).unwrap(),
    );
    let bare = ColumnKey::new(&*old.unwrap(DOMAIN, 1, &wrapped).unwrap(), DOMAIN, 1).unwrap();
    let code = TypeCode::new(7).unwrap();
    let mut sealed = [0; 22];
    before.seal(Mode::Deterministic, code, b"hello", &mut sealed).unwrap();
    for key in [after, bare] {
        let mut plain = [0; 5];
        key.open(Mode::Deterministic, code, &sealed, &mut plain).unwrap();
        assert_eq!(&plain, b"hello");
        let int8 = NumberCode::new(2).unwrap();
        assert_eq!(key.encrypt64(int8, 7), before.encrypt64(int8, 7));
    }
    assert_eq!(new.rewrap(&new, DOMAIN, 1, &wrapped), Err(ColumnError::WrongKek));
}

#[test]
fn new_keys_are_random() {
    let kek = Kek::new(&[1; 32]).unwrap();
    let key = || kek.unwrap(DOMAIN, 1, &kek.wrap_new(DOMAIN, 1).unwrap()).unwrap();
    let (one, two) = (key(), key());
    assert!(*one != *two && *one != [0; 32]);
}

/// The KEK of a passphrase is Argon2id's output: compared through a key that it wrapped. The hash
/// was made with pyca/cryptography over OpenSSL.
#[test]
fn passphrases() {
    let kek = Kek::from_passphrase(b"correct horse", b"saltsaltsaltsalt", SMALL).unwrap();
    let wrapped = kek.wrap_new(DOMAIN, 1).unwrap();
    let hash = hex("4a1d4b17a76c6a3a76623963bcbfd3d1393af2549640fdb7da21866dbf906b96");
    assert!(Kek::new(&hash).unwrap().unwrap(DOMAIN, 1, &wrapped).is_ok());
    let other = Kek::from_passphrase(b"Correct horse", b"saltsaltsaltsalt", SMALL).unwrap();
    assert_eq!(other.unwrap(DOMAIN, 1, &wrapped).unwrap_err(), ColumnError::WrongKek);
    let other = Kek::from_passphrase(b"correct horse", b"saltsaltsaltsalT", SMALL).unwrap();
    assert_eq!(other.unwrap(DOMAIN, 1, &wrapped).unwrap_err(), ColumnError::WrongKek);
}

#[test]
fn passphrase_arguments_are_checked() {
    let error = |passphrase: &[u8], salt: &[u8], cost| {
        Kek::from_passphrase(passphrase, salt, cost).unwrap_err()
    };
    let salt = [0; 16];
    assert_eq!(error(b"", &salt, SMALL), ColumnError::KeyLength);
    assert_eq!(error(&[b'x'; 4097], &salt, SMALL), ColumnError::KeyLength);
    assert_eq!(error(b"x", &[0; 7], SMALL), ColumnError::KeyLength);
    assert_eq!(error(b"x", &[0; 65], SMALL), ColumnError::KeyLength);
    for cost in [
        Argon2idCost { lanes: 0, ..SMALL },
        Argon2idCost { lanes: 65, memory_kib: 65536, ..SMALL },
        Argon2idCost { lanes: u32::MAX, ..SMALL },
        Argon2idCost { passes: 0, ..SMALL },
        Argon2idCost { passes: 1025, ..SMALL },
        Argon2idCost { memory_kib: 15, ..SMALL },
        Argon2idCost { memory_kib: u32::MAX, ..SMALL },
    ] {
        assert_eq!(error(b"x", &salt, cost), ColumnError::BadArgument, "{cost:?}");
    }
    assert!(matches!(Kek::new(&[0; 31]), Err(ColumnError::KeyLength)));
}
