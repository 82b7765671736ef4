//! Reads into several parts, as `preadv(2)`: how often the storage is asked, and damage.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use core::sync::atomic::Ordering;

use common::{Counted, Handle, pattern};
use pgseal_core::geometry::block_sealed_off;
use pgseal_core::storage::Storage;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{keys, suites};
use pgseal_core::{BlockNo, Layout, OnDamage, PlainOff, ReadOutcome, Suite};

const BLOCK: usize = 8192;

type Counting = Counted<MemStorage>;

/// Reads pages, each into a part of its own; the parts lie in memory in the reverse order.
fn read_pages(
    handle: &mut Handle,
    storage: &Counting,
    first: u64,
    pages: &mut [u8],
    on_damage: OnDamage,
) -> ReadOutcome {
    let mut parts: Vec<&mut [u8]> = pages.chunks_mut(BLOCK).rev().collect();
    let off = PlainOff(first * BLOCK as u64);
    handle.file.read_parts_at(storage, &mut handle.scratch, &mut parts, off, on_damage).unwrap()
}

/// The pages as [`read_pages`] leaves them.
fn reversed(pages: &[u8]) -> Vec<u8> {
    pages.chunks(BLOCK).rev().flatten().copied().collect()
}

#[test]
fn sixteen_pages_in_parts_are_one_read_of_pages_and_one_of_tags() {
    for suite in suites().filter(|suite| Layout::Paged.carries(*suite)) {
        let (storage, keys) = (Counting::default(), keys());
        let mut handle = Handle::create(&storage, suite, Layout::Paged, &keys);
        let bytes = pattern(300 * BLOCK, 7);
        handle.write(&storage, &bytes, 0).unwrap();
        // Within a group, over its end, beyond the end of the file.
        for (first, most) in [(3, 2), (250, 4), (292, 2)] {
            // Another process, which knows no tag yet.
            let mut handle = Handle::open(&storage, &keys);
            let mut pages = vec![0xEE; 16 * BLOCK];
            storage.reads.store(0, Ordering::Relaxed);
            let read = read_pages(&mut handle, &storage, first, &mut pages, OnDamage::Fail);
            let want = &bytes[first as usize * BLOCK..];
            let want = &want[..want.len().min(pages.len())];
            assert_eq!(read.len, want.len(), "{suite} {first}");
            assert_eq!(reversed(&pages)[..read.len], *want, "{suite} {first}");
            let reads = storage.reads.load(Ordering::Relaxed);
            assert!(reads <= most, "{suite} {first}: {reads} reads");
        }
    }
}

#[test]
fn a_damaged_page_among_parts_is_the_only_one() {
    let (storage, keys) = (Counting::default(), keys());
    let mut handle = Handle::create(&storage, Suite::Aes256Gcm, Layout::Paged, &keys);
    let bytes = pattern(16 * BLOCK, 3);
    handle.write(&storage, &bytes, 0).unwrap();
    let at = block_sealed_off(Layout::Paged, BlockNo(5));
    let mut page = vec![0; BLOCK];
    storage.read_at(&mut page, at).unwrap();
    page[100] ^= 1;
    storage.write_at(&page, at).unwrap();
    let mut pages = vec![0xEE; 16 * BLOCK];
    let read = read_pages(&mut handle, &storage, 0, &mut pages, OnDamage::ZeroPage);
    assert_eq!(
        (read.len, read.damaged_blocks, read.first_damaged),
        (bytes.len(), 1, Some(BlockNo(5)))
    );
    let mut want = bytes.clone();
    want[5 * BLOCK..6 * BLOCK].fill(0);
    assert!(reversed(&pages) == want);
    // The page is whole again: it was a writer between page and tag.
    page[100] ^= 1;
    storage.write_at(&page, at).unwrap();
    let read = read_pages(&mut handle, &storage, 0, &mut pages, OnDamage::Fail);
    assert_eq!((read.len, read.damaged_blocks), (bytes.len(), 0));
    assert!(reversed(&pages) == bytes);
}
