//! A file that gets another file key while processes read and write it
//! (`spec/sealed-file.md`, section 6.1).

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::{Handle, combinations, pattern};
use pgseal_core::geometry::{BLOCK_LEN, HEAD_LEN, tag_entry_off};
use pgseal_core::header::{self, Kind, Stage};
use pgseal_core::random::{LibraryRandom, Random};
use pgseal_core::storage::Storage;
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::crash::CrashStorage;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{FixedRandom, keys};
use pgseal_core::{
    BlockNo, Fingerprint, HeaderFault, KeySet, Layout, OnDamage, Opened, PlainOff, SealError,
    SealedFile, SealedOff, Suite,
};

const HEAD: usize = HEAD_LEN as usize;
const BLOCK: usize = BLOCK_LEN as usize;

/// Every suite of the paged layout.
fn paged() -> impl Iterator<Item = Suite> {
    combinations().filter(|(_, layout)| *layout == Layout::Paged).map(|(suite, _)| suite)
}

/// Writes the head of the next stage.
fn advance(storage: &impl Storage, keys: &KeySet, random: &dyn Random) -> Stage {
    let mut head = [0; HEAD];
    storage.read_at(&mut head, SealedOff(0)).unwrap();
    let Ok(Kind::Sealed(header)) = header::classify(&head) else { panic!("not sealed") };
    let head = header::advance(&head, &header, keys, random).unwrap();
    storage.write_at(&head, SealedOff(0)).unwrap();
    header.stage.next()
}

/// Processes that opened the file at any stage read and write it at each later one.
#[test]
fn every_process_follows_whatever_it_knew_when_it_opened_the_file() {
    for suite in paged() {
        let (keys, random) = (keys(), LibraryRandom::new());
        let storage = Accelerated::new(MemStorage::default());
        let mut plain = pattern(300 * BLOCK, 1);
        let mut open = vec![Handle::create(&storage, suite, Layout::Paged, &keys)];
        open[0].write(&storage, &plain, 0).unwrap();
        let sealed_len = storage.len().unwrap();
        for round in 0..6_u32 {
            let stage = advance(&storage, &keys, &random);
            open.push(Handle::open(&storage, &keys));
            // The last one writes; the others learn of the new key when they meet it.
            let seals_newer = stage != Stage::Announced;
            let writer = open.last_mut().unwrap();
            let at = if stage == Stage::Moving { 0 } else { round as usize * 7 };
            let new = pattern(if stage == Stage::Moving { 300 * BLOCK } else { BLOCK }, 50 + round);
            plain[at * BLOCK..at * BLOCK + new.len()].copy_from_slice(&new);
            writer.write(&storage, &new, (at * BLOCK) as u64).unwrap();
            let census = writer.file.census(&storage).unwrap();
            assert_eq!(census.newest + census.others, 300, "{suite} {stage:?}");
            assert_eq!(census.others, if seals_newer { 0 } else { 300 }, "{suite} {stage:?}");
            for (number, handle) in open.iter_mut().enumerate() {
                let read = handle.all(&storage);
                if handle.file.lacked_key() {
                    assert!(read.is_err(), "{suite} {number}");
                    assert!(handle.file.refresh(&storage, &keys).unwrap(), "{suite} {number}");
                    assert!(handle.all(&storage).unwrap() == plain, "{suite} {number}");
                    assert!(!handle.file.lacked_key());
                } else {
                    assert!(read.unwrap() == plain, "{suite} {number} {stage:?}");
                }
                let _ = handle.file.refresh(&storage, &keys).unwrap();
                assert_eq!(handle.file.header().stage, stage);
            }
        }
        assert_eq!(open[0].file.header().key_number, 3);
        assert_eq!(storage.len().unwrap(), sealed_len);
    }
}

/// With a number of one byte, the key of 256 keys ago looks like the newest.
#[test]
fn a_process_that_missed_256_keys_reads_the_head_again() {
    for suite in paged().filter(|suite| suite.authenticates()) {
        let (keys, random) = (keys(), LibraryRandom::new());
        let storage = MemStorage::default();
        let mut old = Handle::create(&storage, suite, Layout::Paged, &keys);
        old.write(&storage, &pattern(BLOCK, 1), 0).unwrap();
        for _ in 0..3 * 256 {
            advance(&storage, &keys, &random);
        }
        Handle::open(&storage, &keys).write(&storage, &pattern(BLOCK, 2), 0).unwrap();
        let census = old.file.census(&storage).unwrap();
        assert_eq!(census.newest, u64::from(suite == Suite::Aegis256X2), "{suite}");
        assert!(old.all(&storage).is_err(), "{suite}");
        assert!(old.file.lacked_key() && old.file.refresh(&storage, &keys).unwrap(), "{suite}");
        assert!(old.all(&storage).unwrap() == pattern(BLOCK, 2), "{suite}");
        assert!(!old.file.lacked_key());
    }
}

/// The keys and the stage belong to what a manifest lists, the wrapping does not.
#[test]
fn each_stage_has_another_fingerprint() {
    let (keys, random, storage) = (keys(), LibraryRandom::new(), MemStorage::default());
    let mut handle = Handle::create(&storage, Suite::Aes256Gcm, Layout::Paged, &keys);
    handle.write(&storage, &pattern(BLOCK, 1), 0).unwrap();
    let mut seen = vec![Fingerprint::of(&storage).unwrap()];
    for _ in 0..3 {
        advance(&storage, &keys, &random);
        let found = Fingerprint::of(&storage).unwrap();
        assert!(!seen.contains(&found));
        seen.push(found);
        let head: [u8; HEAD] = *storage.bytes().first_chunk().unwrap();
        let Ok(Kind::Sealed(header)) = header::classify(&head) else { panic!("not sealed") };
        let rewrapped = header::rewrap(&head, &header, &keys, &random).unwrap();
        assert_ne!(rewrapped, head);
        storage.bytes()[..HEAD].copy_from_slice(&rewrapped);
        assert_eq!(Fingerprint::of(&storage).unwrap(), found);
    }
}

#[test]
fn a_file_does_not_take_a_head_of_another_file_or_an_older_one() {
    let (keys, random, storage) = (keys(), LibraryRandom::new(), MemStorage::default());
    let mut handle = Handle::create(&storage, Suite::Aes256Gcm, Layout::Paged, &keys);
    let mut heads: Vec<[u8; HEAD]> = Vec::new();
    for _ in 0..4 {
        heads.push(*storage.bytes().first_chunk().unwrap());
        advance(&storage, &keys, &random);
    }
    for (number, head) in heads.iter().enumerate() {
        storage.bytes()[..HEAD].copy_from_slice(head);
        assert_eq!(handle.file.refresh(&storage, &keys).unwrap(), number > 0);
        for older in &heads[..number] {
            storage.bytes()[..HEAD].copy_from_slice(older);
            let refused = handle.file.refresh(&storage, &keys);
            assert!(
                matches!(refused, Err(SealError::Header(HeaderFault::Replaced))),
                "{refused:?}"
            );
        }
    }
    let other = MemStorage::default();
    let _ = Handle::create(&other, Suite::Aes256Gcm, Layout::Paged, &keys);
    for _ in 0..5 {
        advance(&other, &keys, &random);
    }
    let foreign = handle.file.refresh(&other, &keys);
    assert!(matches!(foreign, Err(SealError::Header(HeaderFault::Replaced))), "{foreign:?}");
    assert!(handle.file.refresh(&MemStorage::default(), &keys).is_err());
}

/// An entry that somebody changed costs another look at the head, and stays damage.
#[test]
fn an_entry_of_an_unknown_key_is_damage() {
    let (keys, storage) = (keys(), MemStorage::default());
    let mut handle = Handle::create(&storage, Suite::Aes256Gcm, Layout::Paged, &keys);
    handle.write(&storage, &pattern(3 * BLOCK, 1), 0).unwrap();
    storage.bytes()[tag_entry_off(BlockNo(1)).0 as usize + 28] = 9;
    let mut handle = Handle::open(&storage, &keys);
    let mut buf = vec![0; 3 * BLOCK];
    let outcome = handle
        .file
        .read_at(&storage, &mut handle.scratch, &mut buf, PlainOff(0), OnDamage::ZeroPage)
        .unwrap();
    assert_eq!((outcome.damaged_blocks, outcome.first_damaged), (1, Some(BlockNo(1))));
    assert!(handle.file.lacked_key());
    assert!(!handle.file.refresh(&storage, &keys).unwrap());
    let census = handle.file.census(&storage).unwrap();
    assert_eq!((census.newest, census.others, census.holes), (2, 1, 0));
    let group = handle.file.group_keys(&storage, 0).unwrap().unwrap();
    assert_eq!((group.others[0], group.others[1..].iter().max()), (2, Some(&0)));
    assert_eq!(handle.file.group_keys(&storage, 1).unwrap(), None);
}

/// What a run does to the file, and where it breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Correct,
    /// Pages are sealed with the newer key before a header that has it is synced.
    KeyUnsynced,
    /// The older key is dropped before the pages with the newer one are synced.
    DropUnsynced,
    /// The older key is dropped while a page still has it.
    DropEarly,
}

const PAGES: usize = 6;

/// A resealing on a disk that can lose its unsynced writes, and the power cut after its step
/// number `until`. Returns the disk, the plain content, and the pages that were written, but not
/// yet synced.
fn resealing_until(
    until: usize,
    seed: u64,
    suite: Suite,
    run: Run,
) -> (MemStorage, Vec<u8>, BTreeSet<usize>) {
    let (keys, random, storage) = (keys(), FixedRandom::default(), CrashStorage::default());
    let mut file = Handle::create(&storage, suite, Layout::Paged, &keys);
    let mut plain = pattern(PAGES * BLOCK, 3);
    file.write(&storage, &plain, 0).unwrap();
    storage.sync().unwrap();
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut left = until;
    let mut steps: Vec<&str> = vec!["write", "announce", "write"];
    steps.extend((run != Run::KeyUnsynced).then_some("sync"));
    steps.extend(["move", "write", "reseal"]);
    steps.extend((run != Run::DropUnsynced).then_some("sync"));
    steps.extend(["drop", "write", "sync", "write"]);
    for (number, step) in steps.into_iter().enumerate() {
        if left == 0 {
            break;
        }
        left -= 1;
        match step {
            "write" => {
                let page = (seed as usize + number * 5) % PAGES;
                let new = pattern(BLOCK, 100 + number as u32);
                plain[page * BLOCK..(page + 1) * BLOCK].copy_from_slice(&new);
                file.write(&storage, &new, (page * BLOCK) as u64).unwrap();
                open.insert(page);
            }
            "reseal" => {
                let pages = if run == Run::DropEarly { PAGES - 1 } else { PAGES };
                for page in 0..pages {
                    let bytes = plain[page * BLOCK..(page + 1) * BLOCK].to_vec();
                    file.write(&storage, &bytes, (page * BLOCK) as u64).unwrap();
                    open.insert(page);
                }
            }
            "sync" => {
                storage.sync().unwrap();
                open.clear();
            }
            _ => {
                advance(&storage, &keys, &random);
                file.file.refresh(&storage, &keys).unwrap();
            }
        }
    }
    (storage.crash_by_seed(seed), plain, open)
}

/// How many pages that were synced, and not written since, are lost after the power cut.
fn lost(until: usize, seed: u64, suite: Suite, run: Run) -> usize {
    let keys = keys();
    let (disk, plain, open) = resealing_until(until, seed, suite, run);
    let mut after = match SealedFile::open(&disk, &keys) {
        Ok(Opened::Sealed(_)) => Handle::open(&disk, &keys),
        other => panic!("{suite} until {until} seed {seed}: {other:?}"),
    };
    (0..PAGES)
        .filter(|page| !open.contains(page))
        .filter(|page| {
            let read = after.read(&disk, (page * BLOCK) as u64, BLOCK);
            !read.is_ok_and(|read| read == plain[page * BLOCK..(page + 1) * BLOCK])
        })
        .count()
}

/// The steps of the longest run.
const STEPS: usize = 13;

#[test]
fn a_power_cut_at_any_step_loses_no_page_that_was_synced() {
    for suite in paged() {
        for until in 0..=STEPS {
            for seed in 0..12 {
                assert_eq!(lost(until, seed, suite, Run::Correct), 0, "{suite} {until} {seed}");
            }
        }
    }
}

/// The test above sees it if the older key is dropped while a page has it.
#[test]
fn a_key_that_is_dropped_early_loses_pages() {
    let run = Run::DropEarly;
    let losses: usize = (0..=STEPS)
        .flat_map(|until| (0..12).map(move |seed| lost(until, seed, Suite::Aes256Gcm, run)))
        .sum();
    assert!(losses > 0);
}

/// A page that redo would restore: what a broken order costs is a page that was written since the
/// last sync, under a key that no header on the disk has.
#[test]
fn a_key_that_no_header_has_opens_no_page() {
    for (run, name) in [(Run::KeyUnsynced, "key"), (Run::DropUnsynced, "drop")] {
        let mut unreadable = 0;
        for until in 4..=STEPS {
            for seed in 0..80 {
                let (disk, _, _) = resealing_until(until, seed, Suite::Aes256Gcm, run);
                let mut after = Handle::open(&disk, &keys());
                for page in 0..PAGES {
                    let read = after.read(&disk, (page * BLOCK) as u64, BLOCK);
                    unreadable += usize::from(read.is_err() && after.file.lacked_key());
                }
            }
        }
        assert!(unreadable > 0, "{name}");
    }
    // In the right order there is no such page, whatever the power cut leaves.
    for until in 0..=STEPS {
        for seed in 0..16 {
            let (disk, _, _) = resealing_until(until, seed, Suite::Aes256Gcm, Run::Correct);
            let mut after = Handle::open(&disk, &keys());
            for page in 0..PAGES {
                let _ = after.read(&disk, (page * BLOCK) as u64, BLOCK);
                assert!(!after.file.lacked_key(), "until {until} seed {seed} page {page}");
            }
        }
    }
}
