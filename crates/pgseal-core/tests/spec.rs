//! Recomputes the worked tables of `spec/sealed-file.md`.

#![allow(clippy::unwrap_used, clippy::panic)]

use pgseal_core::geometry::{
    HEADER_LEN, block_sealed_off, plain_len, sealed_len, tag_entry_off, wal_entry_off,
};
use pgseal_core::{BlockNo, Layout, PlainLen, SealedLen, Suite};

const SPEC: &str = include_str!("../../../spec/sealed-file.md");

/// The rows of the first table under a heading, without the heading of its columns.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, text) = SPEC.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    text.lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

fn layout(name: &str) -> Layout {
    Layout::ALL.into_iter().find(|layout| layout.name() == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn worked_sizes() {
    let rows = rows("### 4.1 Worked sizes");
    assert!(rows.len() > 15);
    for row in rows {
        let (layout, plain, sealed) =
            (layout(row[0]), PlainLen(row[1].parse().unwrap()), SealedLen(row[2].parse().unwrap()));
        assert_eq!(sealed_len(layout, plain), sealed, "{row:?}");
        assert_eq!(plain_len(layout, sealed), plain, "{row:?}");
    }
}

#[test]
fn worked_offsets() {
    let rows = rows("### 4.2 Worked offsets");
    assert!(rows.len() > 8);
    for row in rows {
        let (layout, block) = (layout(row[0]), BlockNo(row[1].parse().unwrap()));
        assert_eq!(block_sealed_off(layout, block).to_string(), row[2], "{row:?}");
        if layout == Layout::Paged {
            assert_eq!(tag_entry_off(block).to_string(), row[3], "{row:?}");
        }
        if layout == Layout::Wal {
            assert_eq!(wal_entry_off(block).to_string(), row[3], "{row:?}");
        }
    }
}

#[test]
fn suites() {
    let rows = rows("The file key is 64 random bytes");
    assert_eq!(rows.len(), Suite::ALL.len());
    for (row, suite) in rows.iter().zip(Suite::ALL) {
        assert_eq!((row[0], row[1]), (suite.id().to_string().as_str(), suite.name()));
        assert_eq!(row[2], suite.key_len().to_string());
        let layouts: Vec<_> = row[3].split(", ").map(layout).collect();
        for all in Layout::ALL {
            assert_eq!(all.carries(suite), layouts.contains(&all), "{suite} {all}");
        }
    }
}

/// The fields of the header leave no gap and end with it.
#[test]
fn header_fields_are_contiguous() {
    let mut next = 0;
    for row in rows("## 3. Header") {
        assert_eq!(row[0].parse::<u64>().unwrap(), next, "{row:?}");
        next += row[1].parse::<u64>().unwrap();
    }
    assert_eq!(next, HEADER_LEN);
}
