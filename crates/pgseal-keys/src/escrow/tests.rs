use std::path::Path;

use pgseal_core::Suite;
use proptest::prelude::*;

use super::*;
use crate::kek::kek;

fn passphrase(text: &str) -> Kek {
    Argon2idParams::with_cost(64, 1, 1).unwrap().derive(text.as_bytes()).unwrap()
}

fn ring(generations: u32) -> Keyring {
    let mut ring = Keyring::create(Suite::Aes256Gcm, "env:PGSEAL_KEY", &kek(1)).unwrap();
    for _ in 1..generations {
        ring.add_generation(&kek(1)).unwrap();
    }
    if generations > 2 {
        ring.change_suite(&kek(1), Suite::Aes256Xts).unwrap();
    }
    ring
}

fn content(keys: &KeySet) -> Vec<u8> {
    crate::handover::encode_keys(keys, None, "").to_vec()
}

fn one(copies: Vec<EscrowCopy>) -> EscrowCopy {
    let mut copies = copies;
    assert_eq!(copies.len(), 1);
    copies.remove(0)
}

fn again(copy: &EscrowCopy) -> EscrowCopy {
    one(read_all(&copy.to_text().unwrap(), "paper").unwrap())
}

/// A copy made from fixed values.
const VECTOR: &str = include_str!("../../../../vectors/escrow/ok-key.txt");

/// A sample of each kind: a passphrase, a key, shares.
fn samples(generations: u32) -> Vec<EscrowCopy> {
    let ring = ring(generations);
    let mut all = make(&ring, &kek(1), Lock::Kek(&passphrase("correct horse"))).unwrap();
    all.extend(make(&ring, &kek(1), Lock::Kek(&kek(9))).unwrap());
    all.extend(make(&ring, &kek(1), Lock::Shares { threshold: 2, limit: 3 }).unwrap());
    all
}

#[test]
fn a_passphrase_gives_the_keys_back() {
    for generations in [1, 2, 30] {
        let ring = ring(generations);
        let truth = ring.unlock(&kek(1)).unwrap();
        let lock = passphrase("correct horse");
        let copy = again(&one(make(&ring, &kek(1), Lock::Kek(&lock)).unwrap()));
        let params = copy.passphrase_params().unwrap();
        let opened = open(&copy, &params.derive(b"correct horse").unwrap()).unwrap();
        assert_eq!(content(opened.keys()), content(&truth));

        // A keyring under another KEK opens the same files.
        let rebuilt = opened.keyring("env:OTHER", &kek(2)).unwrap();
        let rebuilt = Keyring::parse(&rebuilt.to_bytes(), Path::new("rebuilt")).unwrap();
        assert_eq!(content(&rebuilt.unlock(&kek(2)).unwrap()), content(&truth));
        assert!(rebuilt.unlock(&kek(1)).is_err());
        assert_eq!(rebuilt.summary().generations, ring.summary().generations);

        let wrong = open(&copy, &params.derive(b"Correct horse").unwrap()).unwrap_err();
        assert_eq!(wrong.exit_code(), 11, "{wrong}");
        let wrong = open(&copy, &kek(1)).unwrap_err();
        assert_eq!(wrong.exit_code(), 11, "{wrong}");
    }
}

#[test]
fn a_key_gives_the_keys_back() {
    let ring = ring(2);
    let copy = again(&one(make(&ring, &kek(1), Lock::Kek(&kek(9))).unwrap()));
    let opened = open(&copy, &kek(9)).unwrap();
    assert_eq!(content(opened.keys()), content(&ring.unlock(&kek(1)).unwrap()));
    for other in [kek(1), passphrase("x")] {
        assert_eq!(open(&copy, &other).unwrap_err().exit_code(), 11);
    }
}

#[test]
fn enough_shares_give_the_keys_back_and_fewer_do_not() {
    let ring = ring(2);
    let truth = content(&ring.unlock(&kek(1)).unwrap());
    let copies = make(&ring, &kek(1), Lock::Shares { threshold: 3, limit: 5 }).unwrap();
    let copies: Vec<EscrowCopy> = copies.iter().map(again).collect();
    assert_eq!(
        copies.iter().filter_map(EscrowCopy::share_index).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    let pick = |numbers: &[usize]| -> Vec<EscrowCopy> {
        numbers.iter().map(|number| again(&copies[number - 1])).collect()
    };
    for enough in [&[1, 2, 3][..], &[5, 3, 1], &[2, 4, 5], &[1, 2, 3, 4, 5], &[4, 4, 2, 1]] {
        assert_eq!(content(open_shares(&pick(enough)).unwrap().keys()), truth, "{enough:?}");
    }
    for few in [&[1][..], &[1, 2], &[2, 2, 2, 5]] {
        let error = open_shares(&pick(few)).unwrap_err();
        assert_eq!(error.exit_code(), 10, "{error}");
        assert!(error.to_string().contains("of the 3 shares"), "{error}");
    }
    // Shares of another splitting of the same keyring.
    let others = make(&ring, &kek(1), Lock::Shares { threshold: 3, limit: 5 }).unwrap();
    let mut mixed = pick(&[1, 2]);
    mixed.push(again(&others[2]));
    let error = open_shares(&mixed).unwrap_err();
    assert!(error.to_string().contains("from another copy"), "{error}");
    // A share with a changed value, and with checksums that fit the change.
    let mut forged = pick(&[1, 2, 3]);
    forged[1].share.as_mut().unwrap().value[7] ^= 1;
    let error = open_shares(&forged.iter().map(again).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.exit_code(), 11, "{error}");
    for (threshold, limit) in [(1, 1), (1, 3), (4, 3), (0, 0)] {
        assert!(make(&ring, &kek(1), Lock::Shares { threshold, limit }).is_err());
    }
}

/// A single share says nothing about the secret: over many splittings of the same secret, each bit
/// of the share is 0 as often as 1.
#[test]
fn a_share_alone_looks_random() {
    let secret = Secret32::zero();
    let mut ones = [0_u32; 8];
    for _ in 0..2000 {
        let shares = shares::split(&secret, 2, 2).unwrap();
        for (bit, count) in ones.iter_mut().enumerate() {
            *count += u32::from(shares[0].value[3] >> bit & 1);
        }
    }
    // Seven standard deviations of a fair coin are 157: by chance once in 10^10 runs.
    assert!(ones.iter().all(|count| (843..=1157).contains(count)), "{ones:?}");
}

#[test]
fn the_text_says_what_it_is_and_shows_no_key() {
    let ring = ring(3);
    let keys = ring.unlock(&kek(1)).unwrap();
    for copy in samples(3) {
        let text = copy.to_text().unwrap();
        assert!(text.contains("Generations  1-3 (new files: 3)"), "{}", &*text);
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 100), "{}", &*text);
        let debug = format!("{copy:?}");
        let share = copy.share.as_ref().map(|share| data_encoding::HEXLOWER.encode(&*share.value));
        assert!(!share.is_some_and(|share| debug.contains(&share)), "{debug}");
    }
    let copy = one(make(&ring, &kek(1), Lock::Kek(&kek(9))).unwrap());
    let bytes = copy.to_bytes().unwrap();
    for generation in keys.generations() {
        let key = keys.get(generation).unwrap();
        assert!(!bytes.windows(32).any(|window| window == key.bytes()));
        assert_eq!(copy.holds(generation, key).unwrap(), Some(true));
        let next = Generation(generation.0 % 3 + 1);
        assert_eq!(copy.holds(next, key).unwrap(), Some(false));
    }
    assert_eq!(copy.holds(Generation(4), keys.get(Generation(1)).unwrap()).unwrap(), None);
}

#[test]
fn case_spaces_and_similar_letters_do_not_matter() {
    for copy in samples(2) {
        let text = copy.to_text().unwrap().to_string();
        let begin = text.find("-----BEGIN").unwrap();
        let (head, body) = text.split_at(begin);
        let (first, rest) = body.split_once('\n').unwrap();
        let (lines, end) = rest.split_at(rest.find("-----END").unwrap());
        let typed = lines.to_lowercase().replace('0', "o").replace(". ", ".\t");
        // The replacement above also changed the line numbers: restore them.
        let typed: Vec<String> = typed
            .lines()
            .zip(1..)
            .map(|(line, number)| format!("{number}.{}", line.split_once('.').unwrap().1))
            .collect();
        let typed = format!("{head}{first}\r\n\r\n{}\r\n{end}", typed.join("\r\n"));
        let read = one(read_all(&typed, "typed").unwrap());
        assert_eq!(*read.to_bytes().unwrap(), *copy.to_bytes().unwrap());
    }
}

#[test]
fn a_mistyped_line_is_named() {
    // A fixed copy, because the 20 bits of a check let one of a million mistyped lines pass.
    let lines: Vec<&str> = VECTOR.lines().collect();
    let begin = lines.iter().position(|line| line.starts_with("-----BEGIN")).unwrap();
    let count = lines.len() - begin - 2;
    let named = |changed: &[String], number: usize, words: &str| {
        let error = read_all(&changed.join("\n"), "typed.txt").unwrap_err();
        assert_eq!(error.exit_code(), 14, "{error}");
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("typed.txt: line {number} ")), "{shown}");
        assert!(shown.contains(words), "{shown}");
    };
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    for number in 1..=count {
        let at = begin + number;
        // Every place of the line, with another symbol of the alphabet.
        for (place, symbol) in lines[at].char_indices().skip(5).filter(|(_, c)| *c != ' ') {
            let other = if symbol == '7' { '8' } else { '7' };
            let mut changed = own(&lines);
            changed[at].replace_range(place..=place, &other.to_string());
            named(&changed, number, "mistyped");
        }
        for more in ["U", "7", "="] {
            let mut changed = own(&lines);
            changed[at].insert_str(10, more);
            named(&changed, number, "mistyped");
        }
        let mut changed = own(&lines);
        changed.remove(at);
        named(&changed, number, "is missing");
        let mut changed = own(&lines);
        changed.truncate(at);
        named(&changed, number, "is missing");
        if number < count {
            let mut changed = own(&lines);
            changed.swap(at, at + 1);
            named(&changed, number, "another one stands in its place");
            // The swap is noticed even if the lines have no numbers.
            for line in &mut changed[begin + 1..=begin + count] {
                *line = line.split_once('.').unwrap().1.to_owned();
            }
            named(&changed, number, "mistyped");
        }
    }
    let mut changed = own(&lines);
    changed.insert(begin + count + 1, lines[begin + 1].to_owned());
    named(&changed, count + 1, "one too many");
    assert_eq!(read_all("", "typed.txt").unwrap_err().exit_code(), 14);
}

#[test]
fn a_newer_version_is_an_error_of_its_own() {
    let mut bytes = samples(1)[0].to_bytes().unwrap().to_vec();
    bytes[8] = 2;
    let error = EscrowCopy::from_bytes(&bytes, "x").unwrap_err();
    assert!(matches!(error, KeyError::EscrowTooNew { version: 2, .. }), "{error}");
}

/// Fields are checked even if the checksum is right.
#[test]
fn fields_out_of_range_are_refused() {
    let all = samples(2);
    let lock_at = 44 + 2 * 20;
    let last = |copy: &EscrowCopy| copy.to_bytes().unwrap().len() - 37;
    let cases: Vec<(usize, usize, Vec<u8>, &str)> = vec![
        (0, 0, b"X".to_vec(), "start"),
        (0, 8, vec![0], "version"),
        (0, 10, vec![4], "opened by"),
        (0, 11, vec![1], "reserved"),
        (0, 12, vec![0, 0], "number of generations"),
        (0, 12, vec![0, 4], "length"),
        (0, 12, vec![1, 4], "number of generations"),
        (0, 14, vec![99], "suite"),
        (0, 32, vec![9], "active"),
        (0, 36, vec![255; 8], "time"),
        (0, 44, vec![0; 4], "generations out of order"),
        (0, 44, vec![2], "generations out of order"),
        (0, 64, vec![255; 4], "generations out of order"),
        (0, lock_at, vec![0; 4], "Argon2id"),
        (0, lock_at + 3, vec![1], "Argon2id"),
        (2, lock_at, vec![1], "number of shares"),
        (2, lock_at, vec![9], "number of shares"),
        (2, last(&all[2]), vec![0], "number of its share"),
        (2, last(&all[2]), vec![4], "number of its share"),
    ];
    for (sample, at, new, words) in cases {
        let mut bytes = all[sample].to_bytes().unwrap().to_vec();
        bytes[at..at + new.len()].copy_from_slice(&new);
        let body_len = bytes.len() - 4;
        let sum: [u8; 4] = wrap::sha256_start(&[&bytes[..body_len]]).unwrap();
        bytes[body_len..].copy_from_slice(&sum);
        let error = EscrowCopy::from_bytes(&bytes, "x").unwrap_err().to_string();
        assert!(error.contains(words), "{at}: {error}");
    }
}

/// The unencrypted fields are authenticated as well: nobody can change a date or a generation.
#[test]
fn the_unencrypted_fields_are_authenticated() {
    let ring = ring(1);
    let copy = one(make(&ring, &kek(1), Lock::Kek(&kek(9))).unwrap());
    let changes: [fn(&mut EscrowCopy); 4] = [
        |copy| copy.made = "2020-01-01T00:00:00Z".to_owned(),
        |copy| copy.generations[0].fingerprint[0] ^= 1,
        |copy| copy.suites = Suite::Aes128Gcm.into(),
        |copy| copy.sealed[0] ^= 1,
    ];
    for change in changes {
        let mut forged = again(&copy);
        change(&mut forged);
        assert_eq!(open(&again(&forged), &kek(9)).unwrap_err().exit_code(), 11);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_makes_the_reader_panic(text in "(-----BEGIN PGSEAL ESCROW COPY-----\n)?([ 0-9A-Z.-]{0,60}\n){0,9}") {
        let _ = read_all(&text, "any");
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = EscrowCopy::from_bytes(&bytes, "any");
    }
}

#[test]
fn a_flipped_bit_is_noticed() {
    for text in [
        VECTOR,
        include_str!("../../../../vectors/escrow/ok-passphrase.txt"),
        include_str!("../../../../vectors/escrow/ok-shares.txt"),
    ] {
        let copies = read_all(text, "vector").unwrap();
        let bytes = copies[0].to_bytes().unwrap();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(EscrowCopy::from_bytes(&changed, "any").is_err(), "bit {at}");
        }
    }
}
