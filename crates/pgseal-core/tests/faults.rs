//! Failing storage under a sealed file: the operation returns the error, bytes outside of the
//! written range are not lost, and a retry succeeds.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::storage::accelerated::{Accelerated, Unaccelerated};
use pgseal_core::storage::fault::{FaultStorage, Injected, Op};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::storage::{Accelerator, Storage as _};
use pgseal_core::testing::keys;
use pgseal_core::{Layout, SealError, Suite};

const BLOCK: usize = 8192;

/// The faults that are injected into an operation, one for each run.
const PLANS: [&str; 8] = [
    "enospc@write#1",
    "enospc@write#1:100",
    "enospc@write#1:4096",
    "enospc@write#2",
    "eio@write#2:10",
    "eio@read#1",
    "eio@set-len#1",
    "eio@len#1",
];

#[derive(Clone, Copy, Debug)]
enum Change {
    Write { off: usize, len: usize },
    SetLen(usize),
}

impl Change {
    fn run<S: Accelerator>(self, handle: &mut Handle, storage: &S) -> Result<(), SealError> {
        match self {
            Change::Write { off, len } => handle.write(storage, &pattern(len, 99), off as u64),
            Change::SetLen(len) => handle.set_len(storage, len as u64),
        }
    }

    fn model(self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { off, len } => {
                bytes.resize(bytes.len().max(off + len), 0);
                bytes[off..off + len].copy_from_slice(&pattern(len, 99));
            }
            Change::SetLen(len) => bytes.resize(len, 0),
        }
    }

    /// Whether byte `at` of the old file must be unchanged after a failure.
    fn spares(self, at: usize) -> bool {
        match self {
            Change::Write { off, len } => at < off || at >= off + len,
            Change::SetLen(len) => at < len,
        }
    }
}

fn old_bytes_are_there(read: &[u8], before: &[u8], change: Change) -> Result<(), String> {
    for (at, byte) in before.iter().enumerate() {
        if change.spares(at) && read.get(at) != Some(byte) {
            return Err(format!("byte {at} of {}: {:?}", before.len(), read.get(at)));
        }
    }
    Ok(())
}

#[test]
fn a_failed_change_loses_nothing_else_and_can_be_repeated() {
    let changes = [
        Change::Write { off: 20_000, len: 50 },
        Change::Write { off: 20_000, len: 9_000 },
        Change::Write { off: 24_576, len: 8_192 },
        Change::Write { off: 40_000, len: 30_000 },
        // Overwrites a page and appends two.
        Change::Write { off: 8_192, len: 24_576 },
        Change::Write { off: 100, len: 30 },
        Change::Write { off: 8_192, len: 8_192 },
        Change::Write { off: 8_000, len: 400 },
        Change::SetLen(30_000),
        Change::SetLen(16_384),
        Change::SetLen(8_192),
    ];
    for (suite, layout) in combinations() {
        for before_len in [20_000, 16_384, 100, 0] {
            for (change, plan) in changes.iter().flat_map(|c| PLANS.map(|plan| (*c, plan))) {
                let plan = plan.to_owned();
                Case { suite, layout, before_len, change, plan }.check_each_storage();
            }
        }
    }
}

/// Each operation that makes the file longer fails in turn, alone and with all that follow (a full
/// disk, on which the old bytes can still be overwritten), at its first byte and in the middle. So
/// does each write.
#[test]
fn a_disk_that_is_full_at_any_moment_costs_nothing_but_the_change() {
    const ALL: &[&str] = &["enospc@grow#N", "enospc@grow#N+", "enospc@grow#N:700", "eio@write#N:9"];
    let small = [
        Change::Write { off: 8_192, len: 24_576 },
        Change::Write { off: 20_000, len: 9_000 },
        Change::SetLen(60_000),
    ];
    // Into the next group of pages, over a gap.
    let large = Change::Write { off: 2_097_152 - 8_192, len: 3 * 8_192 };
    for (suite, layout) in combinations() {
        for (change, before_len) in small.iter().flat_map(|c| [20_000, 0].map(|len| (*c, len))) {
            fail_in_turn(suite, layout, before_len, change, ALL);
        }
        fail_in_turn(suite, layout, 16_384, large, &ALL[1..2]);
    }
}

/// Lets the first operation that each plan is about fail, then the second, and so on.
fn fail_in_turn(suite: Suite, layout: Layout, before_len: usize, change: Change, plans: &[&str]) {
    for plan in plans {
        for number in 1.. {
            let plan = plan.replace('N', &number.to_string());
            let case = Case { suite, layout, before_len, change, plan };
            if !case.check_each_storage() {
                // A change of length alone writes nothing.
                assert!(number > 1 || case.plan.contains("write"), "{case:?}: nothing failed");
                break;
            }
        }
    }
}

#[derive(Debug)]
struct Case {
    suite: Suite,
    layout: Layout,
    before_len: usize,
    change: Change,
    plan: String,
}

impl Case {
    /// Returns whether a failure struck.
    fn check_each_storage(&self) -> bool {
        let plain = FaultStorage::new(MemStorage::default());
        let accelerated = Accelerated::new(FaultStorage::new(MemStorage::default()));
        let unaccelerated = Unaccelerated(FaultStorage::new(MemStorage::default()));
        let struck = [
            self.check(&plain, &plain),
            self.check(&accelerated, &accelerated),
            self.check(&unaccelerated, &unaccelerated),
        ];
        struck.contains(&true)
    }

    /// Makes a file in `storage`, which is `faults` or wraps it, and makes a change of the file
    /// fail. Returns whether a failure struck.
    fn check<S: Accelerator>(&self, storage: &S, faults: &FaultStorage<MemStorage>) -> bool {
        let (keys, change, before_len) = (keys(), self.change, self.before_len);
        let mut handle = Handle::create(storage, self.suite, self.layout, &keys);
        let before = pattern(before_len, 5);
        handle.write(storage, &before, 0).unwrap();
        faults.arm(self.plan.parse().unwrap());
        let result = change.run(&mut handle, storage);
        let struck = faults.struck();
        faults.arm("".parse().unwrap());
        match result {
            Err(SealError::Io(error)) => {
                assert!(Injected::of(&error).is_some(), "{self:?}: {error}");
            }
            Err(error) => panic!("{self:?}: {error}"),
            Ok(()) => assert_eq!(struck, 0, "{self:?}: the failure went unnoticed"),
        }
        if struck > 0 {
            let mut other = Handle::open(storage, &keys);
            let len = other.len(storage) as usize;
            if matches!(change, Change::Write { .. }) && before_len.is_multiple_of(BLOCK) {
                assert!(len >= before_len, "{self:?}: cut to {len}");
            }
            let mut read = Vec::new();
            // Read single blocks: a block inside the written range may be torn.
            for at in (0..len).step_by(BLOCK) {
                match other.read(storage, at as u64, BLOCK) {
                    Ok(bytes) => read.extend(bytes),
                    Err(error) => {
                        let covered =
                            (at..before_len.min(at + BLOCK)).all(|byte| !change.spares(byte));
                        assert!(covered, "{self:?}: block at {at}: {error}");
                        read.resize(len.min(at + BLOCK), 0);
                    }
                }
            }
            if let Err(what) = old_bytes_are_there(&read, &before, change) {
                panic!("{self:?}: {what}");
            }
        }
        for again in [true, false] {
            // Retry in the same process, then in another one.
            if !again {
                handle = Handle::open(storage, &keys);
            }
            change.run(&mut handle, storage).unwrap_or_else(|e| panic!("{self:?}: {e}"));
            let mut model = before.clone();
            change.model(&mut model);
            let all = handle.all(storage).unwrap_or_else(|e| panic!("{self:?}: {e}"));
            assert_eq!(all.len(), model.len(), "{self:?}");
            assert!(all == model, "{self:?}: contents differ");
        }
        struck > 0
    }
}

#[test]
fn a_failed_read_or_sync_is_reported_as_it_is() {
    let keys = keys();
    for (suite, layout) in combinations() {
        let storage = FaultStorage::new(MemStorage::default());
        let mut handle = Handle::create(&storage, suite, layout, &keys);
        handle.write(&storage, &pattern(30_000, 1), 0).unwrap();
        storage.arm("eio@read#1:700,eio@sync#1".parse().unwrap());
        match handle.all(&storage) {
            Err(SealError::Io(error)) => assert!(Injected::of(&error).is_some()),
            other => panic!("{suite} {layout}: {other:?}"),
        }
        assert!(storage.sync().is_err());
        assert!(handle.all(&storage).unwrap() == pattern(30_000, 1));
        assert!(storage.count(Op::Read) > 1);
    }
}

/// A file that another process cuts while it is read looks shorter or damaged, never different.
#[test]
fn a_short_read_is_a_short_file_or_damage() {
    let keys = keys();
    for (suite, layout) in combinations().filter(|(s, l)| s.authenticates() || !l.carries(*s)) {
        let bytes = pattern(30_000, 1);
        for cut in [0, 1, 27, 28, 29, 511, 8191, 8192, 8220, 9000, 20_000] {
            // Each read in turn, until there are no more.
            for number in 1.. {
                let storage = FaultStorage::new(MemStorage::default());
                let mut handle = Handle::create(&storage, suite, layout, &keys);
                handle.write(&storage, &bytes, 0).unwrap();
                let mut reader = Handle::open(&storage, &keys);
                storage.arm(format!("short-read@read#{number}:{cut}").parse().unwrap());
                match reader.all(&storage) {
                    Ok(read) => assert!(bytes.starts_with(&read), "{suite} {layout} {cut}"),
                    Err(SealError::BlockDamaged(_)) => {}
                    Err(error) => panic!("{suite} {layout} {cut}: {error}"),
                }
                if storage.struck() == 0 {
                    break;
                }
            }
        }
    }
}
