//! What a FIPS build says it is, and what it refuses by name (`docs/fips.md`). The ordinary build
//! refuses nothing of it.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Answer, Fixture};
use pgseal_crypto::FIPS;

const PASS: &str = "passphrase:command=echo correct horse";

#[track_caller]
fn refused_by_name(answer: &Answer, name: &str) {
    if FIPS {
        answer.fails_with(2, name);
        answer.fails_with(2, "no approved algorithm");
    } else {
        assert_eq!(answer.code, 0, "{answer:?}");
    }
}

#[test]
fn the_program_says_what_it_is() {
    let fixture = Fixture::sealed();
    assert_eq!(fixture.ok(&["--version"]).contains("FIPS module of AWS-LC"), FIPS);
    let library = if FIPS { "AWS-LC FIPS module" } else { "AWS-LC" };
    assert_eq!(fixture.on_data(&["status", "--json"]).json()["cryptography"], library);
    assert_eq!(fixture.on_data(&["status"]).out.contains("AWS-LC FIPS module"), FIPS);
}

#[test]
fn what_is_not_approved_is_refused_by_name() {
    let fixture = Fixture::sealed();
    let keyring = fs::read(fixture.file("pgseal/keyring")).unwrap();
    let backup = |args: &[&str]| fixture.on_data(&[&["key", "backup"], args].concat());
    refused_by_name(&backup(&["--lock", PASS, "-o", "by-passphrase"]), "Argon2id");
    refused_by_name(&backup(&["--shares", "2-of-3", "-o", "share"]), "secret sharing");
    fixture.ok(&["key", "new", "-o", "lock.key"]);
    let lock = format!("file:{}", fixture.path("lock.key").display());
    assert_eq!(backup(&["--lock", &lock, "-o", "by-key"]).code, 0);
    let rotated = fixture.on_data(&["key", "rotate", "-K", PASS]);
    refused_by_name(&rotated, "Argon2id");
    assert_eq!(FIPS, fs::read(fixture.file("pgseal/keyring")).unwrap() == keyring);
}

#[test]
fn aegis_and_suites_of_128_bits_are_no_approved_suites() {
    let fixture = Fixture::plain();
    let data = fixture.data();
    for (suite, name) in [
        ("aes-128-gcm", "XTS-AES-128"),
        ("aes-128-xts", "XTS-AES-128"),
        ("aes-128-ctr", "XTS-AES-128"),
        ("aegis-256x2", "AEGIS-256X2"),
        ("aegis", "AEGIS-256X2"),
    ] {
        let check = ["encrypt", data.to_str().unwrap(), "--check", "--suite", suite];
        let answer = fixture.run(&check);
        assert_eq!(FIPS, answer.err.contains(name), "{answer:?}");
        assert_eq!(FIPS, answer.code == 2, "{answer:?}");
    }
}
