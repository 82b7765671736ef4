use data_encoding::HEXLOWER;
use proptest::prelude::*;

use super::*;
use crate::argon::Argon2idParams;
use crate::kek::kek;
use crate::slot::Recipient;

fn path() -> &'static Path {
    Path::new("/data/pgseal/keyring")
}

fn sample() -> Keyring {
    let mut ring = Keyring::create(Suite::Aes256Gcm, "env:PGSEAL_KEY", &kek(0xA5)).unwrap();
    ring.add_generation(&kek(0xA5)).unwrap();
    Keyring::parse(&ring.to_bytes(), path()).unwrap()
}

fn content(keys: &KeySet) -> Vec<u8> {
    crate::handover::encode_keys(keys, None, "").to_vec()
}

fn run_of<const N: usize>(first: u8) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, value) in bytes.iter_mut().zip(first..) {
        *byte = value;
    }
    bytes
}

/// The worked example of the specification, with every random value fixed.
fn worked_example() -> (Keyring, Kek) {
    let kek = Kek::init_with(|key| {
        *key = run_of(0x00);
        Ok::<(), ()>(())
    })
    .unwrap();
    let id = KeyringId(run_of(0xA0));
    let mut keyring_key = Secret32::zero();
    *keyring_key = run_of(0x20);
    let wrap_key = wrap::data_wrap_key(&keyring_key, id).unwrap();
    let created = "2026-01-31T12:00:00Z".to_owned();
    let body = Body {
        format: FORMAT.to_owned(),
        version: VERSION,
        keyring_id: id.0,
        created: created.clone(),
        suite: Suite::Aes256Gcm,
        older_suites: Vec::new(),
        provider: "env:PGSEAL_KEY".to_owned(),
        passphrase: None,
        wrapped_kek: None,
        config_lock: None,
        key_check: wrap::key_check(kek.expose(), id).unwrap(),
        keyring_key: wrap::wrap_with_nonce(
            kek.expose(),
            &wrap::keyring_key_aad(id),
            &keyring_key,
            run_of(0x60),
        )
        .unwrap(),
        recipients: Vec::new(),
        generations: vec![GenerationEntry {
            generation: 1,
            created,
            state: GenerationState::Active,
            key: wrap::wrap_with_nonce(
                &wrap_key,
                &wrap::data_key_aad(id, 1),
                &run_of(0x40),
                run_of(0x70),
            )
            .unwrap(),
        }],
    };
    (Keyring::seal(path().to_owned(), body, &keyring_key).unwrap(), kek)
}

#[test]
fn the_worked_example_of_the_specification_holds() {
    let (ring, kek) = worked_example();
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let spec = include_str!("../../../../spec/key-hierarchy.md");
    assert!(spec.contains(&format!("```\n{text}```")), "the specification lacks:\n{text}");
    let keys = Keyring::parse(text.as_bytes(), path()).unwrap().unlock(&kek).unwrap();
    assert_eq!(keys.get(Generation(1)).unwrap().bytes(), &run_of(0x40));
    let frame =
        HEXLOWER.encode(&crate::handover::encode_keys(&keys, Some("PGSEAL_KEY"), "env:PGSEAL_KEY"));
    let listed: String = spec
        .lines()
        .skip_while(|line| !line.starts_with("5047534b455953"))
        .take_while(|line| *line != "```")
        .collect();
    assert_eq!(listed, frame, "frame in the specification");
    let derived = [
        wrap::data_wrap_key(&run_secret(0x20), ring.id()).unwrap(),
        wrap::derive(&run_of(0x20), ring.id(), crate::labels::KDF_KEYRING_MAC).unwrap(),
        wrap::derive(&run_of(0x00), ring.id(), crate::labels::KDF_KEK_CHECK).unwrap(),
    ];
    for key in derived {
        assert!(spec.contains(&HEXLOWER.encode(&key[..])), "{}", HEXLOWER.encode(&key[..]));
    }
}

/// The worked example with a recipient.
#[test]
fn the_worked_example_with_a_recipient_holds() {
    let (plain, kek) = worked_example();
    let other = Kek::init_with(|key| {
        *key = run_of(0xC0);
        Ok::<(), ()>(())
    })
    .unwrap();
    let (id, name) = (plain.id(), "escrow");
    let recipient = Recipient {
        name: name.to_owned(),
        created: "2026-02-28T12:00:00Z".to_owned(),
        provider: "file:/mnt/offline/escrow.key".to_owned(),
        passphrase: None,
        wrapped_kek: None,
        key_check: wrap::key_check(other.expose(), id).unwrap(),
        keyring_key: wrap::wrap_with_nonce(
            other.expose(),
            &wrap::recipient_aad(id, name),
            &run_secret(0x20),
            run_of(0x90),
        )
        .unwrap(),
    };
    let body = Body { recipients: vec![recipient], ..plain.body.clone() };
    let ring = Keyring::seal(path().to_owned(), body, &run_secret(0x20)).unwrap();
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let spec = include_str!("../../../../spec/key-hierarchy.md");
    let from = text.find("  \"recipients\"").unwrap();
    let to = text.find("  \"generations\"").unwrap();
    let member = &text[from..to];
    let mac = text.lines().last().unwrap().strip_prefix("mac: ").unwrap();
    assert!(spec.contains(member) && spec.contains(mac), "the specification lacks:\n{member}{mac}");
    let ring = Keyring::parse(text.as_bytes(), path()).unwrap();
    assert_eq!(content(&ring.unlock(&other).unwrap()), content(&ring.unlock(&kek).unwrap()));
}

/// The worked example under a key store: what the store wrapped is in the body, under the MAC.
#[test]
fn the_worked_example_under_a_key_store_holds() {
    let (plain, kek) = worked_example();
    let body = Body {
        provider: "pkcs11:token=db;object=pgseal?module-path=/usr/lib/m.so&pin-source=/etc/pin"
            .to_owned(),
        wrapped_kek: Some(WrappedKek {
            key: "object pgseal, id 01".to_owned(),
            wrapped: HEXLOWER.encode(&run_of::<32>(0x80)),
        }),
        ..plain.body.clone()
    };
    let ring = Keyring::seal(path().to_owned(), body, &run_secret(0x20)).unwrap();
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let spec = include_str!("../../../../spec/key-hierarchy.md");
    let before = String::from_utf8(plain.to_bytes()).unwrap();
    let new: Vec<&str> = text.lines().filter(|line| !before.contains(line)).collect();
    let (mac, members) = new.split_last().unwrap();
    assert_eq!(members.len(), 4, "{text}");
    for member in members {
        assert!(spec.contains(member), "the specification lacks {member}");
    }
    assert!(spec.contains(mac.strip_prefix("mac: ").unwrap()), "the specification lacks {mac}");
    Keyring::parse(text.as_bytes(), path()).unwrap().unlock(&kek).unwrap();

    // Each change of the wrapped copy is noticed, if not by the store then by the MAC.
    let changed = text.replace("id 01", "id 02");
    let changed = Keyring::parse(changed.as_bytes(), path()).unwrap();
    assert!(changed.unlock(&kek).unwrap_err().to_string().contains("its MAC does not hold"));
    let parsed = |text: String| Keyring::parse(text.as_bytes(), path()).map(|_| ());
    for (from, to) in [
        ("808182", ""),
        ("808182", "80818"),
        ("808182", "80818X"),
        ("id 01", "id\\n01"),
        ("\"key\": \"object", "\"kek\": \"object"),
        ("pkcs11:token", "env:token"),
    ] {
        let bad = parsed(text.replace(from, to));
        let is_shorter = from == "808182" && to.is_empty();
        assert_eq!(bad.is_ok(), is_shorter, "{from} -> {to}");
    }
    let long = text.replace("808182", &"00".repeat(1025));
    assert!(parsed(long).is_err());
    let long = text.replace("id 01", &"x".repeat(513));
    assert!(parsed(long).is_err());
}

fn run_secret(first: u8) -> Secret32 {
    let mut secret = Secret32::zero();
    *secret = run_of(first);
    secret
}

#[test]
fn a_keyring_unlocks_to_the_same_keys_each_time() {
    let ring = sample();
    let keys = ring.unlock(&kek(0xA5)).unwrap();
    assert_eq!(content(&keys), content(&ring.unlock(&kek(0xA5)).unwrap()));
    assert_eq!((keys.keyring_id, keys.active()), (ring.id(), Generation(2)));
    assert_eq!(keys.suite(), Suite::Aes256Gcm);
    let (first, second) = (keys.get(Generation(1)).unwrap(), keys.get(Generation(2)).unwrap());
    assert_ne!(first.bytes(), second.bytes());
    assert_ne!(first.bytes(), &[0; 32]);
    assert_eq!(ring.reencode().unwrap(), ring.to_bytes());
}

#[test]
fn a_wrong_kek_is_reported_as_wrong() {
    let err = sample().unlock(&kek(0xA6)).unwrap_err();
    assert!(matches!(err, KeyError::Wrong { .. }), "{err}");
    assert_eq!(err.exit_code(), 11);
    assert!(sample().rotate_kek(&kek(1), &kek(2), "env:A").is_err());
    assert!(sample().add_generation(&kek(1)).is_err());
}

#[test]
fn every_flipped_byte_is_noticed() {
    let ring = sample();
    let bytes = ring.to_bytes();
    let keys = ring.unlock(&kek(0xA5)).unwrap();
    let secrets = [
        "a5a5a5".to_owned(),
        HEXLOWER.encode(&ring.open(&kek(0xA5)).unwrap()[..]),
        HEXLOWER.encode(keys.get(Generation(1)).unwrap().bytes()),
        HEXLOWER.encode(keys.get(Generation(2)).unwrap().bytes()),
    ];
    for at in 0..bytes.len() {
        // 0x20 changes the case of a letter: hexadecimal must not accept both.
        for mask in [0x01, 0x20, 0x80, 0xFF] {
            let mut bad = bytes.clone();
            bad[at] ^= mask;
            let err = match Keyring::parse(&bad, path()).and_then(|r| r.unlock(&kek(0xA5))) {
                Ok(_) => panic!("byte {at} with mask {mask:#x} went unnoticed"),
                Err(err) => err,
            };
            assert!(matches!(err.exit_code(), 11 | 14), "byte {at}: {err}");
            let shown = format!("{err} {err:?}");
            assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
        }
    }
}

#[test]
fn every_truncation_and_addition_is_noticed() {
    let bytes = sample().to_bytes();
    for len in 0..bytes.len() {
        let err = Keyring::parse(&bytes[..len], path()).unwrap_err();
        assert_eq!(err.exit_code(), 14, "{len}: {err}");
    }
    for extra in [&b"\n"[..], b" ", b"x"] {
        assert!(Keyring::parse(&[&bytes, extra].concat(), path()).is_err());
        let longer = Keyring::parse(&[extra, &bytes].concat(), path());
        assert!(longer.and_then(|r| r.unlock(&kek(0xA5))).is_err());
    }
    let huge = vec![b' '; body::MAX_KEYRING_LEN + 1];
    assert!(Keyring::parse(&huge, path()).unwrap_err().to_string().contains("1 MiB"));
}

#[test]
fn strict_parsing() {
    let text = String::from_utf8(sample().to_bytes()).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Keyring::parse(text.replacen(from, to, 1).as_bytes(), path()).unwrap_err()
    };
    with("\"created\"", "\"surplus\": 1,\n  \"created\"");
    with("\"suite\": \"aes-256-gcm\"", "\"suite\": \"gcm\"");
    with("\"generation\": 1", "\"generation\": 0");
    with("\"generation\": 1", "\"generation\": 2");
    with("\"generation\": 2", "\"generation\": 4294967295");
    with("\"retired\"", "\"active\"");
    with("\"active\"", "\"retired\"");
    with("env:PGSEAL_KEY", "passphrase:");
    with("env:PGSEAL_KEY", "nothing");
    with("Z\"", "+00:00\"");
    with("pgseal-keyring", "pgseal-keysafe");
    let err = with("\"version\": 1", "\"version\": 2");
    assert!(matches!(err, KeyError::KeyringTooNew { version: 2, .. }), "{err}");
    // A keyring may name a provider of a later version of pgseal. It still parses.
    let later = text.replacen("env:PGSEAL_KEY", "kms:somewhere", 1);
    assert!(Keyring::parse(later.as_bytes(), path()).is_ok());
}

#[test]
fn a_data_key_cannot_change_its_generation_or_keyring() {
    let (ring, kek) = worked_example();
    let keyring_key = ring.open(&kek).unwrap();
    let mut body = ring.body.clone();
    body.generations[0].generation = 7;
    let forged = Keyring::seal(path().to_owned(), body, &keyring_key).unwrap();
    assert_eq!(forged.unlock(&kek).unwrap_err().exit_code(), 14);
    let mut body = ring.body.clone();
    body.key_check[0] ^= 1;
    let forged = Keyring::seal(path().to_owned(), body, &keyring_key).unwrap();
    assert!(matches!(forged.unlock(&kek), Err(KeyError::KeyringDamaged { .. })));
}

#[test]
fn a_new_kek_keeps_the_data_keys_and_the_old_kek_no_longer_works() {
    let mut ring = sample();
    let before = content(&ring.unlock(&kek(0xA5)).unwrap());
    let old_keyring_key = *ring.open(&kek(0xA5)).unwrap();
    ring.rotate_kek(&kek(0xA5), &kek(0x5A), "env:OTHER_KEY").unwrap();
    assert_eq!(content(&ring.unlock(&kek(0x5A)).unwrap()), before);
    assert!(matches!(ring.unlock(&kek(0xA5)), Err(KeyError::Wrong { .. })));
    assert_eq!(ring.provider_uri(), "env:OTHER_KEY");
    assert_ne!(*ring.open(&kek(0x5A)).unwrap(), old_keyring_key);
    assert!(ring.rotate_kek(&kek(0x5A), &kek(1), "bogus").is_err());
    assert_eq!(
        content(&ring.unlock(&kek(0x5A)).unwrap()),
        before,
        "a failed change of the KEK changes nothing"
    );
}

#[test]
fn a_passphrase_keyring_holds_its_parameters() {
    let params = Argon2idParams::with_cost(64, 1, 1).unwrap();
    let first = params.derive(b"correct horse").unwrap();
    let ring = Keyring::create(Suite::Aes256Xts, "passphrase:", &first).unwrap();
    let ring = Keyring::parse(&ring.to_bytes(), path()).unwrap();
    let stored = ring.passphrase_params().unwrap();
    assert_eq!(stored, &params);
    ring.unlock(&stored.derive(b"correct horse").unwrap()).unwrap();
    let err = ring.unlock(&stored.derive(b"correct house").unwrap()).unwrap_err();
    assert_eq!(err.exit_code(), 11);
    assert!(Keyring::create(Suite::Aes256Gcm, "env:A", &first).is_err());
    assert!(Keyring::create(Suite::Aes256Gcm, "passphrase:", &kek(1)).is_err());
    // A keyring that an attacker made must not make pgseal take all memory.
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let greedy = text.replacen("\"memory_kib\": 64", "\"memory_kib\": 4294967295", 1);
    assert_eq!(Keyring::parse(greedy.as_bytes(), path()).unwrap_err().exit_code(), 14);
}

#[test]
fn argon2id_known_answer() {
    // Computed with another implementation, OpenSSL.
    let mut params = Argon2idParams::with_cost(64, 2, 1).unwrap();
    params.salt = *b"somesalt12345678";
    let kek = params.derive(b"password").unwrap();
    assert_eq!(HEXLOWER.encode(kek.expose()), ARGON2ID_KNOWN);
}

const ARGON2ID_KNOWN: &str = "d1dd9f4bfa15a408c1ae553f4c84aa83d73afcdb94a3b5b597e8eb201489b96b";

#[test]
fn the_keyring_of_another_cluster_is_refused() {
    let ring = sample();
    ring.expect_id(ring.id()).unwrap();
    let err = ring.expect_id(KeyringId([9; 16])).unwrap_err();
    assert_eq!(err.exit_code(), 15);
    assert!(err.to_string().contains(&ring.id().to_string()), "{err}");
}

#[test]
fn no_debug_output_or_summary_contains_a_key() {
    let ring = sample();
    let kek = kek(0xA5);
    let keys = ring.unlock(&kek).unwrap();
    let data_key = HEXLOWER.encode(keys.get(Generation(1)).unwrap().bytes());
    let summary = serde_json::to_string(&ring.summary()).unwrap();
    for shown in [format!("{kek:?} {keys:?} {ring:?}"), summary] {
        for secret in ["a5a5a5", "165, 165", &data_key] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_form_of_a_key_gives_that_key(raw: [u8; 32], before in "[ \t\r\n]{0,3}") {
        use data_encoding::{BASE64, BASE64_NOPAD, HEXUPPER};
        for encoding in [HEXLOWER, HEXUPPER, BASE64, BASE64_NOPAD] {
            let text = format!("{before}{}\n", encoding.encode(&raw));
            let kek = Kek::from_text(text.as_bytes(), "x").unwrap();
            prop_assert_eq!(kek.expose(), &raw);
        }
    }

    #[test]
    fn other_texts_are_refused_and_not_shown(text in "[0-9a-zA-Z+/=]{20,70}") {
        if let Err(err) = Kek::from_text(text.as_bytes(), "env:X") {
            prop_assert_eq!(err.exit_code(), 13);
            let shown = format!("{err} {err:?}");
            prop_assert!(!shown.contains(&text));
        } else {
            prop_assert!([43, 44, 64].contains(&text.len()));
        }
    }

    #[test]
    fn parsing_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Keyring::parse(&bytes, path());
        let _ = crate::handover::decode(&bytes);
    }

    #[test]
    fn frames_round_trip(ids: [u8; 16], raw in proptest::collection::vec(any::<[u8; 32]>(), 1..9)) {
        let mut keys = KeySet::new(KeyringId(ids), Suite::Aes128Ctr, Generation(1));
        for (bytes, number) in raw.iter().zip(1..) {
            let key = DataKey::init_with(|key| {
                *key = *bytes;
                Ok::<(), ()>(())
            });
            keys.insert(Generation(number), key.unwrap());
        }
        let back = crate::handover::decode(&content(&keys)).unwrap().unlocked().unwrap();
        prop_assert_eq!(content(&back.keys), content(&keys));
    }
}

#[test]
fn retired_data_keys_are_forgotten_and_the_active_one_is_not() {
    let mut ring = sample();
    ring.forget_generations(&kek(0xA5), &[Generation(1), Generation(2), Generation(9)]).unwrap();
    let ring = Keyring::parse(&ring.to_bytes(), path()).unwrap();
    let keys = ring.unlock(&kek(0xA5)).unwrap();
    assert_eq!(keys.generations().collect::<Vec<_>>(), [Generation(2)]);
    assert_eq!(keys.active(), Generation(2));
}

#[test]
fn the_suite_changes_and_nothing_else() {
    let mut ring = sample();
    let before = ring.summary();
    ring.set_suite(&kek(0xA5), Suite::Aes128Xts).unwrap();
    let ring = Keyring::parse(&ring.to_bytes(), path()).unwrap();
    assert_eq!(ring.unlock(&kek(0xA5)).unwrap().suite(), Suite::Aes128Xts);
    assert_eq!(ring.summary().generations, before.generations);
    assert!(ring.clone().set_suite(&kek(1), Suite::Aes256Gcm).is_err());
}

#[test]
fn files_of_the_older_suite_may_stay_until_it_is_forgotten() {
    let key = kek(0xA5);
    let mut ring = sample();
    let plain = ring.to_bytes();
    ring.change_suite(&key, Suite::Aes256Xts).unwrap();
    ring.change_suite(&key, Suite::Aes256Ctr).unwrap();
    let ring = Keyring::parse(&ring.to_bytes(), path()).unwrap();
    assert_eq!(ring.summary().older_suites, ["aes-256-gcm", "aes-256-xts"]);
    assert_eq!(ring.reencode().unwrap(), ring.to_bytes());
    let suites = ring.unlock(&key).unwrap().suites();
    assert_eq!(suites, ring.suites());
    let wanted = [Suite::Aes256Ctr, Suite::Aes256Gcm, Suite::Aes256Xts];
    assert_eq!(suites.all().collect::<Vec<_>>(), wanted);
    // Whoever adds a suite without the key is found.
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        Keyring::parse(text.replacen(from, to, 1).as_bytes(), path())
    };
    let forged = changed("aes-256-xts", "aes-192-ctr").unwrap();
    assert!(matches!(forged.unlock(&key), Err(KeyError::KeyringDamaged { .. })));
    for (from, to) in [
        ("aes-256-xts", "aes-512-gcm"),
        ("aes-256-xts", "aes-256-ctr"),
        ("aes-256-xts", "aes-256-gcm"),
        ("aes-256-xts", "aes-128-gcm"),
    ] {
        assert!(changed(from, to).is_err(), "{to}: unknown, the newest, twice, out of order");
    }
    let mut whole = ring.clone();
    whole.set_suites(&key, Suite::Aes256Gcm.into()).unwrap();
    let count = |bytes: &[u8]| bytes.len();
    assert_eq!(count(&whole.to_bytes()), count(&plain), "no field is left");
}

#[test]
fn a_configuration_lock_stays_with_the_keyring() {
    let (old, new) = (kek(1), kek(2));
    let mut keyring = Keyring::create(Suite::Aes256Gcm, "env:A", &old).unwrap();
    assert_eq!(keyring.config_lock(), None);
    assert!(!String::from_utf8(keyring.to_bytes()).unwrap().contains("config_lock"));
    keyring.set_config_lock(&old, Some(7)).unwrap();
    keyring.rotate_kek(&old, &new, "env:B").unwrap();
    keyring.add_generation(&new).unwrap();
    let bytes = keyring.to_bytes();
    let back = Keyring::parse(&bytes, Path::new("keyring")).unwrap();
    assert_eq!(back.unlock(&new).unwrap().config_lock, 7);
    assert_eq!(back.reencode().unwrap(), bytes);
    // If somebody removes or lowers the number, the MAC no longer fits.
    let text = String::from_utf8(bytes).unwrap();
    for other in ["", "  \"config_lock\": 6,\n"] {
        let text = text.replacen("  \"config_lock\": 7,\n", other, 1);
        let bad = Keyring::parse(text.as_bytes(), Path::new("keyring")).unwrap();
        assert_eq!(bad.unlock(&new).unwrap_err().exit_code(), 14);
    }
    let zero = text.replacen("lock\": 7", "lock\": 0", 1);
    assert!(Keyring::parse(zero.as_bytes(), Path::new("keyring")).is_err());
    keyring.set_config_lock(&new, None).unwrap();
    assert_eq!(keyring.unlock(&new).unwrap().config_lock, 0);
}
