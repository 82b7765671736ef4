#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::{Cut, Survival, Unit, units};
use crate::disk::{Disk, Ino};
use crate::log::{Log, Op};

const FILE: Ino = Ino(2);
const OTHER: Ino = Ino(3);

fn create(ino: Ino, name: &str) -> Op {
    Op::Create { parent: Ino::ROOT, name: name.into(), ino, mode: 0o600, owner: (0, 0) }
}

fn write(ino: Ino, off: u64, byte: u8, len: usize) -> Op {
    Op::Write { ino, off, bytes: Arc::from(vec![byte; len]) }
}

fn rename(ino: Ino, from: &str, to: &str) -> Op {
    let (name, new_name): (OsString, OsString) = (from.into(), to.into());
    Op::Rename { ino, parent: Ino::ROOT, name, new_parent: Ino::ROOT, new_name }
}

fn log(ops: Vec<Op>) -> Log {
    let mut log = Log::default();
    ops.into_iter().for_each(|op| log.push(op));
    log
}

/// The disks after a cut at the end of the log, one for each of 500 seeds.
fn images(log: &Log) -> Vec<Disk> {
    let base = Disk::new(0o700, (0, 0));
    let at = log.ops().len();
    (0..500).map(|seed| Cut { at, seed, survival: Survival::Any }.image(&base, log).disk).collect()
}

fn content(disk: &Disk, name: &str) -> Option<Vec<u8>> {
    let ino = disk.lookup(Ino::ROOT, OsStr::new(name)).ok()?;
    Some(disk.bytes(ino).unwrap().to_vec())
}

#[test]
fn what_was_synced_is_there() {
    let log = log(vec![create(FILE, "a"), write(FILE, 0, 7, 9000), Op::Sync { ino: FILE }]);
    for disk in images(&log) {
        assert_eq!(content(&disk, "a").unwrap(), vec![7; 9000]);
    }
}

#[test]
fn bytes_after_the_last_sync_are_there_or_not_and_torn() {
    let mut ops = vec![create(FILE, "a"), write(FILE, 0, 1, 8192), Op::Sync { ino: FILE }];
    ops.push(write(FILE, 0, 2, 8192));
    let images = images(&log(ops));
    let count = |wanted: &dyn Fn(&[u8]) -> bool| {
        images.iter().filter(|disk| wanted(&content(disk, "a").unwrap())).count()
    };
    let torn = |bytes: &[u8]| bytes.contains(&1) && bytes.contains(&2);
    assert!(count(&|bytes| bytes == vec![1; 8192]) > 0, "the old bytes");
    assert!(count(&|bytes| bytes == vec![2; 8192]) > 0, "the new bytes");
    assert!(count(&torn) > 0, "some of both");
    let whole =
        |bytes: &[u8]| bytes.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0]));
    assert_eq!(count(&whole), images.len(), "a sector is old or new");
}

#[test]
fn a_length_is_apart_from_its_bytes() {
    let mut ops = vec![create(FILE, "a"), write(FILE, 0, 1, 512), Op::Sync { ino: FILE }];
    ops.push(write(FILE, 512, 2, 512));
    let images = images(&log(ops));
    let found: Vec<Vec<u8>> = images.iter().map(|disk| content(disk, "a").unwrap()).collect();
    let long = |byte| [vec![1; 512], vec![byte; 512]].concat();
    assert!(found.contains(&vec![1; 512]), "neither");
    assert!(found.contains(&long(0)), "the length without the bytes");
    assert!(found.contains(&long(2)), "both");
    assert!(found.iter().all(|bytes| *bytes == vec![1; 512] || [long(0), long(2)].contains(bytes)));
}

#[test]
fn truncation_is_there_or_not() {
    let mut ops = vec![create(FILE, "a"), write(FILE, 0, 1, 1024), Op::Sync { ino: FILE }];
    ops.push(Op::SetLen { ino: FILE, len: 512 });
    let found: Vec<_> = images(&log(ops)).iter().map(|disk| content(disk, "a").unwrap()).collect();
    assert!(found.contains(&vec![1; 512]) && found.contains(&vec![1; 1024]));
}

#[test]
fn names_are_a_prefix_of_the_journal() {
    let ops = vec![create(FILE, "a"), create(OTHER, "b"), rename(FILE, "a", "c")];
    let mut seen = [false; 4];
    for disk in images(&log(ops)) {
        let there = ["a", "b", "c"].map(|name| content(&disk, name).is_some());
        let state = match there {
            [false, false, false] => 0,
            [true, false, false] => 1,
            [true, true, false] => 2,
            [false, true, true] => 3,
            other => panic!("{other:?} is no prefix"),
        };
        seen[state] = true;
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn sync_of_a_file_makes_its_names_durable_and_of_a_directory_those_in_it() {
    let both = vec![create(FILE, "a"), create(OTHER, "b"), Op::Sync { ino: OTHER }];
    let renamed = vec![create(FILE, "a"), rename(FILE, "a", "b"), Op::Sync { ino: Ino::ROOT }];
    for disk in images(&log(both)) {
        assert!(content(&disk, "a").is_some() && content(&disk, "b").is_some());
    }
    for disk in images(&log(renamed)) {
        assert!(content(&disk, "a").is_none() && content(&disk, "b").is_some());
    }
}

#[test]
fn sync_of_one_file_says_nothing_of_another() {
    let ops = vec![
        create(FILE, "a"),
        create(OTHER, "b"),
        write(FILE, 0, 1, 512),
        Op::Sync { ino: OTHER },
    ];
    let found: Vec<_> = images(&log(ops)).iter().map(|disk| content(disk, "a").unwrap()).collect();
    assert!(found.contains(&Vec::new()) && found.contains(&vec![1; 512]));
}

#[test]
fn a_seed_makes_the_same_disk_again() {
    let ops = vec![create(FILE, "a"), write(FILE, 100, 3, 20_000), write(FILE, 0, 4, 300)];
    assert_eq!(images(&log(ops.clone())), images(&log(ops)));
}

#[test]
fn only_what_happened_before_the_cut() {
    let log = log(vec![create(FILE, "a"), Op::Mark(1), create(OTHER, "b"), Op::Mark(2)]);
    assert_eq!(log.marks(2).collect::<Vec<_>>(), [1]);
    for seed in 0..100 {
        let disk = Cut { at: 2, seed, survival: Survival::Any }
            .image(&Disk::new(0o700, (0, 0)), &log)
            .disk;
        assert!(content(&disk, "b").is_none());
    }
}

#[test]
fn all_unsynced_changes_may_survive() {
    let log = log(vec![
        create(FILE, "a"),
        write(FILE, 0, 1, 5000),
        Op::SetLen { ino: FILE, len: 4000 },
        write(FILE, 3990, 2, 600),
    ]);
    let wanted = [vec![1; 3990], vec![2; 600]].concat();
    for seed in 0..100 {
        let cut = Cut { at: 4, seed, survival: Survival::All };
        let disk = cut.image(&Disk::new(0o700, (0, 0)), &log).disk;
        assert_eq!(content(&disk, "a").unwrap(), wanted);
    }
}

#[test]
fn units_lie_where_the_sectors_of_the_file_lie() {
    let bytes = [0; 1100];
    let parts: Vec<_> = units(500, &bytes, Unit::Sector).map(|(at, p)| (at, p.len())).collect();
    assert_eq!(parts, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    let whole: Vec<_> = units(500, &bytes, Unit::Write).map(|(at, p)| (at, p.len())).collect();
    assert_eq!(whole, [(500, 1100)]);
}
