//! Compares `spec/column-cipher.md` with the code.

#![allow(clippy::unwrap_used)]

mod common;

use common::to_hex;
use pgseal_column::header::{MAX_PLAIN_BYTES, Mode};
use pgseal_column::{ColumnKey, Domain, NumberCode, TypeCode, WRAPPED_BYTES, labels};

const SPEC: &str = include_str!("../../../spec/column-cipher.md");
const HEADER: &str = include_str!("../include/pgseal_column.h");

#[test]
fn the_labels_are_those_of_the_specification() {
    let listed: Vec<&str> = SPEC
        .lines()
        .filter_map(|line| line.strip_prefix("| `pgseal/v1/"))
        .filter_map(|rest| rest.split('`').next())
        .collect();
    let known: Vec<&str> =
        labels::ALL.iter().map(|label| label.strip_prefix("pgseal/v1/").unwrap()).collect();
    assert_eq!(listed, known);
}

/// The labels of the keyring are included, because one KEK may be used for both.
#[test]
fn no_label_is_a_prefix_of_another() {
    let hierarchy = include_str!("../../../spec/key-hierarchy.md");
    let others = hierarchy.split('`').filter(|text| text.starts_with("pgseal/v1/"));
    let others: std::collections::BTreeSet<&str> = others.collect();
    assert!(others.len() >= 6, "{others:?}");
    for label in labels::ALL {
        for other in labels::ALL.into_iter().chain(others.iter().copied()) {
            assert!(label == other || !other.starts_with(label) && !label.starts_with(other));
        }
        assert!(!others.contains(label));
    }
}

#[test]
fn the_type_codes_are_those_of_the_header() {
    let text = SPEC.split_whitespace().collect::<Vec<_>>().join(" ");
    let listed = text.split("stored nowhere. ").nth(1).unwrap().split(". ").next().unwrap();
    let mut count = 0;
    for pair in listed.split([',']) {
        let (name, code) = pair.trim().split_once(' ').unwrap();
        let line = format!("PGSEAL_COLUMN_TYPE_{} = {code},", name.to_uppercase());
        assert!(HEADER.contains(&line), "{line}");
        count += 1;
    }
    let given = |line: &&str| line.contains("PGSEAL_COLUMN_TYPE_") && line.contains(" = ");
    assert_eq!(count, HEADER.lines().filter(given).count() - 1, "all but MAX");
}

#[test]
fn sizes_and_examples() {
    assert!(SPEC.contains(&format!("{WRAPPED_BYTES} bytes, under a key-encryption key")));
    assert_eq!(MAX_PLAIN_BYTES, (1 << 30) - 1);
    let key = ColumnKey::new(&(0..32).collect::<Vec<u8>>(), Domain(1), 1).unwrap();
    let code = |code| TypeCode::new(code).unwrap();
    let short = |code| NumberCode::new(code).unwrap();
    assert_eq!(key.sealed_len(Mode::Deterministic, 0), 17);
    assert_eq!(key.sealed_len(Mode::Randomised, 0), 29);
    let row = |start: &str| {
        let line = SPEC.lines().find(|line| line.starts_with(start)).unwrap();
        line.split(" | ").last().unwrap().trim_end_matches(" |").trim_matches('`').to_owned()
    };
    assert_eq!(row("| 42 | int4"), (key.encrypt32(short(1), 42) as i32).to_string());
    assert_eq!(row("| 42 | int8"), (key.encrypt64(short(2), 42) as i64).to_string());
    for (start, plain) in [("| empty | text", ""), ("| `a` | text", "a")] {
        let mut sealed = vec![0; 17 + plain.len()];
        key.seal(Mode::Deterministic, code(7), plain.as_bytes(), &mut sealed).unwrap();
        assert_eq!(row(start), to_hex(&sealed));
    }
    let mut plain = [0];
    let sealed = common::hex(&row("| `a` (nonce"));
    assert_eq!(sealed[1..13], [0xA1; 12]);
    assert_eq!(key.open(Mode::Randomised, code(8), &sealed, &mut plain), Ok(1));
    assert_eq!(&plain, b"a");
}
