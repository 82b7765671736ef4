//! The tags that the processes of a server share: after a write has ended nobody is given an entry
//! from before it, whatever processes read, write, push each other's runs out, and die.

#![allow(clippy::unwrap_used)]

mod common;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use common::Numbers;
use pgseal_core::BlockNo;
use pgseal_core::shared_tags::{RUN, RUN_BYTES, RunsOf, SharedTags, TagSet, WAYS};

const ENTRY: usize = 32;
/// Runs of each of the two files, which share two sets of four runs.
const RUNS: u64 = 6;
const PAGES: u64 = RUNS * RUN as u64;

fn table(sets: usize) -> SharedTags {
    let sets = Vec::leak((0..sets).map(|_| TagSet::new()).collect());
    SharedTags::new(sets, Box::leak(Box::new(AtomicU32::new(0)))).unwrap()
}

fn file(id: u8) -> RunsOf {
    RunsOf::file(&[id; 16])
}

/// The entry of a version of a page: each word names both.
fn entry(page: u64, version: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    for word in entry.as_chunks_mut::<8>().0 {
        *word = (page << 40 | version).to_le_bytes();
    }
    entry
}

/// The version in an entry of this page, which must not be mixed of two.
fn version_of(page: u64, found: &[u8; ENTRY]) -> u64 {
    let version = u64::from_le_bytes(found.as_chunks::<8>().0[0]) & 0xFF_FFFF_FFFF;
    assert_eq!(*found, entry(page, version), "page {page}");
    version
}

#[derive(Default)]
struct Page {
    on_disk: AtomicU64,
    /// The newest version whose write has ended.
    ended: AtomicU64,
    /// PostgreSQL lets one process at a time write a page.
    one_writer: Mutex<()>,
}

struct Model {
    table: SharedTags,
    pages: Vec<Page>,
    stop: AtomicBool,
    found: AtomicU64,
    /// Held for writing while all processes are dead.
    alive: RwLock<()>,
}

impl Model {
    /// The file of a page, and its number there.
    fn place(number: u64) -> (RunsOf, BlockNo) {
        (file((number / PAGES) as u8 + 1), BlockNo(number % PAGES))
    }

    /// Writes one or several adjacent pages of one file; the writer may die, and may fail.
    fn write(&self, number: u64, numbers: &mut Numbers) {
        let (file, first) = Model::place(number);
        let count = (1 + numbers.next(20)).min(PAGES - first.0);
        let pages = &self.pages[number as usize..(number + count) as usize];
        let _alone: Vec<_> = pages.iter().map(|page| page.one_writer.lock()).collect();
        let mut entries = Vec::new();
        for (page, at) in pages.iter().zip(number..) {
            let version = page.on_disk.load(Ordering::SeqCst) + 1;
            page.on_disk.store(version, Ordering::SeqCst);
            entries.extend_from_slice(&entry(at, version));
        }
        match numbers.next(400) {
            // Its client was never told that this write has ended.
            0 => return,
            1..20 => self.table.forget(file, first.0..first.0 + count),
            _ => self.table.written(file, first, &entries),
        }
        for page in pages {
            page.ended.store(page.on_disk.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    fn read(&self, number: u64, numbers: &mut Numbers) {
        let (file, block) = Model::place(number);
        let page = &self.pages[number as usize];
        let ended = page.ended.load(Ordering::SeqCst);
        if let Some(found) = self.table.entry(file, block) {
            let version = version_of(number, &found);
            assert!(version >= ended, "page {number}: version {version} after {ended}");
            self.found.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = self.table.before_read(file, block);
        let mut run = [0; RUN_BYTES];
        let first = number - number % RUN as u64;
        for (bytes, at) in run.as_chunks_mut::<ENTRY>().0.iter_mut().zip(first..) {
            *bytes = entry(at, self.pages[at as usize].on_disk.load(Ordering::SeqCst));
            if numbers.next(40) == 0 {
                thread::yield_now();
            }
        }
        self.table.keep(file, block, before, &run);
    }

    fn work(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let _alive = self.alive.read().unwrap();
            let number = numbers.next(2 * PAGES);
            match numbers.next(8) {
                0 => self.write(number, &mut numbers),
                _ => self.read(number, &mut numbers),
            }
        }
    }

    /// Kills all, and recovers.
    fn crash(&self) {
        let _all_are_dead = self.alive.write().unwrap();
        self.table.begin_anew();
        for page in &self.pages {
            page.ended.store(page.on_disk.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }
}

/// A version that was written before a crash counts as ended after it: recovery wrote it, or found
/// it. So an entry of before the crash must not be found after it.
#[test]
fn nobody_is_given_an_entry_from_before_a_write_that_has_ended() {
    let model = Model {
        table: table(2),
        pages: (0..2 * PAGES).map(|_| Page::default()).collect(),
        stop: AtomicBool::new(false),
        found: AtomicU64::new(0),
        alive: RwLock::new(()),
    };
    thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let model = &model;
            scope.spawn(move || model.work(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        }
        // For a second and a half, and on a busy machine until enough was found.
        for round in 0..12_000 {
            let is_enough = model.found.load(Ordering::Relaxed) > 1000;
            if scope_failed(&model) || round > 300 && is_enough {
                break;
            }
            thread::sleep(Duration::from_millis(5));
            model.crash();
        }
        model.stop.store(true, Ordering::Relaxed);
    });
    let found = model.found.load(Ordering::Relaxed);
    assert!(found > 1000, "only {found} entries were found");
}

/// Whether a thread has panicked while it was alive.
fn scope_failed(model: &Model) -> bool {
    model.alive.is_poisoned()
}

/// Stops other threads when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader sees the words of one entry, also while another process changes them.
#[test]
fn no_entry_is_mixed_of_two() {
    let (table, one, stop) = (table(1), file(1), AtomicBool::new(false));
    keep(&table, one, 0, 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 1;
            while !stop.load(Ordering::Relaxed) {
                version += 1;
                table.written(one, BlockNo(4), &entry(4, version));
                // The run takes the way of another one.
                if version % 64 == 0 {
                    (0..8).for_each(|run| keep(&table, one, run, version));
                }
            }
        });
        // Also if this thread panics.
        let _stop = Stop(&stop);
        let (mut found, mut newest) = (0, 0);
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            for _ in 0..1000 {
                let Some(entry) = table.entry(one, BlockNo(4)) else { continue };
                let version = version_of(4, &entry);
                assert!(version >= newest);
                newest = version;
                found += 1;
            }
        }
        assert!(found > 100, "only {found} entries were found");
    });
}

fn run_of(first: u64, version: u64) -> [u8; RUN_BYTES] {
    let mut run = [0; RUN_BYTES];
    for (bytes, at) in run.as_chunks_mut::<ENTRY>().0.iter_mut().zip(first..) {
        *bytes = entry(at, version);
    }
    run
}

fn keep(table: &SharedTags, file: RunsOf, run: u64, version: u64) {
    let first = run * RUN as u64;
    let before = table.before_read(file, BlockNo(first));
    table.keep(file, BlockNo(first + 5), before, &run_of(first, version));
}

#[test]
fn entries_are_those_of_their_page_until_they_are_changed_or_dropped() {
    let (table, one) = (table(4), file(1));
    let found = |block| table.entry(one, BlockNo(block)).map(|entry| version_of(block, &entry));
    assert_eq!(found(3), None);
    keep(&table, one, 0, 7);
    keep(&table, one, 1, 7);
    assert_eq!((found(0), found(15), found(16), found(32)), (Some(7), Some(7), Some(7), None));
    // A write over the edge of two runs, and beyond what is known.
    let entries: Vec<u8> = (10..40).flat_map(|page| entry(page, 8)).collect();
    table.written(one, BlockNo(10), &entries);
    assert_eq!((found(9), found(10), found(31), found(32)), (Some(7), Some(8), Some(8), None));
    table.forget(one, 12..16);
    assert_eq!((found(0), found(16)), (None, Some(8)));
    // What was read before a write is not kept, even if nothing was known of the run.
    for is_dropped in [false, true] {
        let before = table.before_read(one, BlockNo(32));
        match is_dropped {
            false => table.written(one, BlockNo(40), &entry(40, 9)),
            true => table.forget(one, 40..41),
        }
        table.keep(one, BlockNo(32), before, &run_of(32, 8));
        assert_eq!(found(32), None);
    }
    // Nothing is known after the beginning of a recovery, nor what was read before it was ended.
    keep(&table, one, 2, 9);
    assert_eq!(found(33), Some(9));
    let before = table.before_read(one, BlockNo(64));
    table.begin_anew();
    assert_eq!((found(16), found(33)), (None, None));
    table.written(one, BlockNo(64), &entry(64, 10));
    table.keep(one, BlockNo(64), before, &run_of(64, 9));
    assert_eq!(found(64), None);
    keep(&table, one, 4, 10);
    assert_eq!((found(64), found(16)), (Some(10), None));
}

#[test]
fn files_whose_runs_fit_push_nothing_out() {
    // Four files of one run for each set.
    let (table, files) = (table(64), [1, 2, 3, 4].map(file));
    for round in 0..3 {
        for run in 0..64 {
            for one in files {
                let is_known = table.entry(one, BlockNo(run * RUN as u64)).is_some();
                assert_eq!(is_known, round > 0, "round {round}: run {run}");
                if !is_known {
                    keep(&table, one, run, 1);
                }
            }
        }
    }
    // One more takes the place of one: its set also has a run of each of the others.
    keep(&table, file(5), 0, 1);
    assert!(table.entry(file(5), BlockNo(0)).is_some());
    let is_known = |id: u64| table.entry(file(id as u8), BlockNo((5 - id) * RUN as u64)).is_some();
    assert_eq!((1..=4).filter(|id| is_known(*id)).count(), WAYS - 1);
}
