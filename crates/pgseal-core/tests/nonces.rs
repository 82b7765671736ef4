//! No nonce is used twice in a file.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;

use common::Handle;
use pgseal_core::geometry::tag_entry_off;
use pgseal_core::storage::Storage as _;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{self, keys};
use pgseal_core::{BlockNo, Layout};

#[test]
fn a_hundred_thousand_writes_have_as_many_nonces() {
    let keys = keys();
    for suite in testing::suites().filter(|suite| Layout::Paged.carries(*suite)) {
        let storage = MemStorage::default();
        let mut handle = Handle::create(&storage, suite, Layout::Paged, &keys);
        let mut seen = HashSet::new();
        let pages = vec![7; 10 * 8192];
        for _ in 0..10_000 {
            handle.write(&storage, &pages, 0).unwrap();
            for block in 0..10 {
                let mut nonce = vec![0; suite.nonce_len()];
                storage.read_at(&mut nonce, tag_entry_off(BlockNo(block))).unwrap();
                assert!(seen.insert(nonce), "{suite}: nonce repeated after {}", seen.len());
            }
        }
        assert_eq!(seen.len(), 100_000);
    }
}
