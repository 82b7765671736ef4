use pgseal_core::{DataKey, Suite};

use super::*;

const ID: KeyringId = KeyringId([0x11; 16]);

fn keys(id: KeyringId, byte: u8) -> KeySet {
    let mut keys = KeySet::new(id, Suite::Aes256Gcm, Generation(2));
    for (generation, byte) in [(1, byte), (2, byte + 1)] {
        let key = DataKey::init_with(|key| {
            key.fill(byte);
            Ok::<(), ()>(())
        });
        keys.insert(Generation(generation), key.unwrap());
    }
    keys
}

fn entry(number: u32) -> Entry {
    Entry {
        time: format!("2026-11-24T21:00:{:02}Z", number % 60),
        host: "db1".to_owned(),
        user: "postgres".to_owned(),
        uid: 110,
        pid: 4711,
        command: "helper keys".to_owned(),
        program: Some("postgres".to_owned()),
        event: "unlock".to_owned(),
        cluster: Some(ID.to_string()),
        path: Some("/srv/postgres/data".to_owned()),
        key: Some(KeyName {
            provider: "file:/etc/pgseal/main.key".to_owned(),
            ..KeyName::default()
        }),
        generation: Some(2),
        ..Entry::default()
    }
}

/// A chain in which each line has a MAC but the third.
fn chain(keys: &KeySet) -> Vec<String> {
    let key = AuditKey::active(keys).unwrap();
    let mut last = Link::START;
    let mut lines = Vec::new();
    for number in 1..=5 {
        let line = entry(number).chained(&last, Some(&key).filter(|_| number != 3)).unwrap();
        last = Link::to(line.as_bytes());
        assert_eq!(last.number, u64::from(number));
        lines.push(line);
    }
    lines
}

fn findings(lines: &[String], keys: Option<&KeySet>) -> Vec<u64> {
    let mut check = Check::new(keys);
    lines.iter().for_each(|line| check.take(line.as_bytes()).unwrap());
    check.findings.iter().map(|(line, _)| *line).collect()
}

#[test]
fn a_whole_chain_is_authentic() {
    let keys = keys(ID, 1);
    let lines = chain(&keys);
    let mut check = Check::new(Some(&keys));
    lines.iter().for_each(|line| check.take(line.as_bytes()).unwrap());
    assert_eq!((check.lines, check.macs, check.authentic_up_to), (5, 4, 5));
    assert_eq!((check.findings.len(), check.unchecked_macs), (0, 0));
    assert_eq!(check.first.as_deref(), Some("2026-11-24T21:00:01Z"));
    // Without the keys, or with those of another cluster, the MACs are not judged.
    let others = self::keys(KeyringId([0x22; 16]), 1);
    for keys in [None, Some(&others)] {
        let mut check = Check::new(keys);
        lines.iter().for_each(|line| check.take(line.as_bytes()).unwrap());
        assert_eq!((check.findings.len(), check.macs, check.unchecked_macs), (0, 0, 4));
    }
}

/// Whatever is done to a line is found; a change of the last line without a MAC excepted.
#[test]
fn every_change_of_a_line_is_found() {
    let keys = keys(ID, 1);
    let lines = chain(&keys);
    for at in 0..lines.len() {
        for (from, to) in [("postgres", "nobody00"), ("db1", "db2"), ("unlock", "backup")] {
            let mut changed = lines.clone();
            changed[at] = changed[at].replace(from, to);
            assert!(!findings(&changed, Some(&keys)).is_empty(), "line {at}: {from}");
        }
        let mut removed = lines.clone();
        removed.remove(at);
        let is_last = at + 1 == lines.len();
        assert_eq!(findings(&removed, Some(&keys)).is_empty(), is_last, "line {at} is gone");
        let mut twice = lines.clone();
        twice.insert(at, lines[at].clone());
        assert!(!findings(&twice, None).is_empty(), "line {at} twice");
    }
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    assert!(!findings(&swapped, None).is_empty());
    assert_eq!(findings(&[vec!["nonsense".to_owned()], lines.clone()].concat(), None), [1, 2, 2]);
}

/// Somebody without the data key writes a whole new chain: only the MACs show it.
#[test]
fn a_forged_chain_has_wrong_macs() {
    let (keys, others) = (keys(ID, 1), keys(ID, 7));
    let forged = chain(&others);
    assert!(findings(&forged, None).is_empty());
    assert_eq!(findings(&forged, Some(&keys)), [1, 2, 4, 5]);
}

#[test]
fn a_line_is_never_longer_than_the_limit() {
    for filling in ["\u{1}", "\"", "x", "\u{20ac}"] {
        let long = filling.repeat(5000);
        let some = || Some(long.clone());
        let key = || Some(KeyName { provider: long.clone(), name: some(), recipient: some() });
        let entry = Entry {
            time: long.clone(),
            host: long.clone(),
            user: long.clone(),
            uid: u32::MAX,
            login_uid: Some(u32::MAX),
            pid: u32::MAX,
            command: long.clone(),
            program: some(),
            event: long.clone(),
            exit: Some(255),
            cluster: some(),
            path: some(),
            key: key(),
            new_key: key(),
            generation: Some(u32::MAX),
            detail: some(),
            error: some(),
            ..Entry::default()
        };
        let keys = keys(ID, 1);
        let last = Link { number: u64::MAX - 1, digest: [0xff; 32] };
        let line = entry.chained(&last, Some(&AuditKey::active(&keys).unwrap())).unwrap();
        assert!(line.len() <= MAX_LINE && !line.contains('\n'), "{}", line.len());
        assert_eq!(Link::to(line.as_bytes()).number, u64::MAX);
    }
    assert_eq!(cut("a\"b", 4), "a\"b");
    assert_eq!(cut("a\"bcde", 6), "a\"...");
}

/// `vectors/audit/ok.jsonl`: data key 2 of keyring 1111... is 32 bytes of 0x02.
#[test]
fn the_vector_is_what_this_code_writes() {
    let keys = keys(ID, 1);
    let vector = include_str!("../../../../vectors/audit/ok.jsonl");
    let lines: Vec<&str> = vector.lines().collect();
    assert_eq!(lines, chain(&keys));
    let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    assert_eq!(findings(&lines, Some(&keys)), [0; 0]);
    let bad = include_str!("../../../../vectors/audit/bad-changed.jsonl");
    let bad: Vec<String> = bad.lines().map(str::to_owned).collect();
    assert_eq!(findings(&bad, None), [3]);
    assert_eq!(findings(&bad, Some(&keys)), [2, 3]);
}
