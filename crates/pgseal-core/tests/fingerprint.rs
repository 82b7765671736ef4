//! The fingerprint of a file (`spec/manifest.md`, section 2): each write, truncation and exchange
//! changes it, and a read does not.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, pattern};
use pgseal_core::geometry::{GROUP_LEN, HEADER_LEN, tag_entry_off};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{BlockNo, Fingerprint, Form, Layout, Suite};

const BLOCK: usize = 8192;

fn of(storage: &MemStorage) -> Fingerprint {
    Fingerprint::of(storage).unwrap()
}

fn file(suite: Suite, layout: Layout, blocks: usize) -> (MemStorage, Handle) {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut file = Handle::create_as(&storage, &Form::anywhere(suite, layout), &keys);
    file.write(&storage, &pattern(blocks * BLOCK, 1), 0).unwrap();
    (storage, file)
}

#[test]
fn each_write_changes_the_fingerprint_and_a_read_does_not() {
    for (suite, layout) in [
        (Suite::Aes256Gcm, Layout::Paged),
        (Suite::Aes256Ctr, Layout::Paged),
        (Suite::Aegis256X2, Layout::Paged),
        (Suite::Aes256Gcm, Layout::Stream),
        (Suite::Aes256Gcm, Layout::Sectored),
    ] {
        if suite.check_approved().is_err() {
            continue;
        }
        let blocks = if layout == Layout::Paged { 600 } else { 5 };
        let (storage, mut file) = file(suite, layout, blocks);
        let before = of(&storage);
        file.read(&storage, 0, BLOCK).unwrap();
        assert_eq!(of(&storage), before, "{layout}");
        // The same content again: a new nonce.
        for block in [0, blocks - 1] {
            let before = of(&storage);
            let page = pattern(blocks * BLOCK, 1)[block * BLOCK..][..BLOCK].to_vec();
            file.write(&storage, &page, (block * BLOCK) as u64).unwrap();
            let after = of(&storage);
            assert_ne!(after.digest, before.digest, "{layout}, block {block}");
            assert_eq!((after.sealed_len, after.file_id), (before.sealed_len, before.file_id));
        }
    }
}

#[test]
fn an_older_page_with_its_tag_is_noticed_in_each_group() {
    let (storage, mut file) = file(Suite::Aes256Gcm, Layout::Paged, 600);
    let older = storage.bytes().clone();
    for block in [0_u64, 255, 256, 599] {
        let page = pattern(BLOCK, 9);
        file.write(&storage, &page, block * BLOCK as u64).unwrap();
    }
    let now = of(&storage);
    for block in [0_u64, 255, 256, 599] {
        let changed = MemStorage::with(storage.bytes().clone());
        let at = tag_entry_off(BlockNo(block)).0 as usize;
        changed.bytes()[at..at + 32].copy_from_slice(&older[at..at + 32]);
        assert_ne!(of(&changed).digest, now.digest, "block {block}");
    }
    let zeroed = MemStorage::with(storage.bytes().clone());
    let at = tag_entry_off(BlockNo(300)).0 as usize;
    zeroed.bytes()[at..at + 32].fill(0);
    assert_ne!(of(&zeroed).digest, now.digest);
}

#[test]
fn a_cut_and_another_file_are_noticed() {
    let (storage, _) = file(Suite::Aes256Gcm, Layout::Paged, 600);
    let now = of(&storage);
    assert!(!now.is_empty());
    let cut = MemStorage::with(storage.bytes()[..(HEADER_LEN + GROUP_LEN) as usize].to_vec());
    assert_ne!(of(&cut).digest, now.digest);
    assert_eq!(of(&cut).file_id, now.file_id);
    let (other, _) = file(Suite::Aes256Gcm, Layout::Paged, 600);
    assert_ne!(of(&other).file_id, now.file_id);
    let empty = of(&MemStorage::default());
    assert!(empty.is_empty() && empty.file_id == [0; 16]);
    assert_eq!(Fingerprint::decode(&now.encode()), now);
}

/// WAL is in XTS, but each write draws nonces for the entries of its pages.
#[test]
fn of_wal_every_write_counts() {
    let (storage, mut file) = file(Suite::Aes256Xts, Layout::Wal, 5);
    let before = of(&storage);
    file.write(&storage, &pattern(BLOCK, 9), BLOCK as u64).unwrap();
    assert_ne!(of(&storage), before);
}

/// XTS has neither nonces nor tags: only identity and length are noticed. The threat model says so.
#[test]
fn of_a_file_in_xts_only_head_and_length_count() {
    let (storage, mut file) = file(Suite::Aes256Xts, Layout::InPlace, 5);
    let before = of(&storage);
    file.write(&storage, &pattern(BLOCK, 9), BLOCK as u64).unwrap();
    assert_eq!(of(&storage), before);
    file.write(&storage, &pattern(BLOCK, 9), 5 * BLOCK as u64).unwrap();
    assert_ne!(of(&storage), before);
}
