//! Files whose header is damaged: opening, sizing, truncating and removing them works.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Arena, Run, SEALED, finish, library};

/// The damage to the head of a file.
#[derive(Clone, Copy)]
enum Head {
    Flipped,
    Zeros,
    Plain,
}

/// The transcript of a process of a server on a file with this damage; `redo`: it replays WAL.
fn after(path: &str, head: Head, redo: bool) -> Run {
    seen_by("postgres", path, head, redo)
}

/// The same of a program of this name.
fn seen_by(name: &str, path: &str, head: Head, redo: bool) -> Run {
    let arena = Arena::new();
    for dir in ["pg_subtrans", "pg_xact"] {
        fs::create_dir_all(arena.sealed().join(dir)).unwrap();
    }
    // The state of the cluster (`catalog/pg_control.h`): in crash recovery, or in production.
    let state = [if redo { 4_u8 } else { 6 }, 0, 0, 0];
    fs::write(arena.sealed().join("global/pg_control"), [&[0; 16][..], &state].concat()).unwrap();
    let option = format!("-DREDO={}", u8::from(redo));
    let program = arena.compile("damaged", name, &["-rdynamic", &option]);
    let made = arena.run_server(&program, &[path, "make"]);
    assert!(made.status.success(), "{}", made.stderr);
    arena.assert_sealed(path);
    let file = arena.sealed().join(path);
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut start = [0; 512];
    file.read_exact_at(&mut start, 0).unwrap();
    match head {
        Head::Flipped => start[20] ^= 1,
        Head::Zeros => start.fill(0),
        Head::Plain => start.fill(b'x'),
    }
    file.write_all_at(&start, 0).unwrap();
    let seen = arena.run_server(&program, &[path]);
    assert!(seen.status.success(), "{}", seen.stderr);
    seen
}

#[track_caller]
fn says(seen: &Run, wanted: &str) {
    let results = seen.stdout.lines().map(|line| line.rsplit_once(" = ").unwrap().1);
    let results: Vec<&str> = results.collect();
    assert_eq!(results.join(", "), wanted, "{}{}", seen.stdout, seen.stderr);
}

/// The last six results: a truncated file is like a new file, and can be removed.
const ANEW: &str = "0, 0, 100, 100, 0, 0";

#[test]
fn a_relation_reads_as_invalid_pages_and_is_not_written() {
    for head in [Head::Flipped, Head::Zeros, Head::Plain] {
        let seen = after("base/1/16384", head, false);
        says(
            &seen,
            &format!(
                "0, 24576, 24576, 24576, 8192, 1, 0, -1 EIO, -1 EIO, 8192, 1, 8192, 1, -1 EIO, 24576, \
                 {ANEW}"
            ),
        );
        // The log has one line for the open file, not one for each call.
        assert_eq!(seen.stderr.matches("invalid pages, restore it").count(), 1, "{}", seen.stderr);
    }
}

/// Nobody would look at an invalid page that such a program wrote elsewhere.
#[test]
fn a_program_that_copies_cannot_read_a_damaged_relation() {
    for name in ["damaged", "pg_rewind"] {
        let seen = seen_by(name, "base/1/16384", Head::Flipped, false);
        let eio = "-1 EIO";
        says(
            &seen,
            &format!(
                "0, 24576, 24576, 24576, {eio}, 3, {eio}, {eio}, {eio}, {eio}, 3, {eio}, 3, {eio}, \
                 24576, {ANEW}"
            ),
        );
        let line = "its pages are not handed on, restore it";
        assert!(seen.stderr.contains(line), "{name}: {}", seen.stderr);
    }
}

#[test]
fn redo_writes_to_a_damaged_relation() {
    for head in [Head::Flipped, Head::Plain] {
        let seen = after("base/1/16384", head, true);
        says(
            &seen,
            &format!(
                "0, 24576, 24576, 24576, 8192, 1, 0, 0, 8192, 8192, 2, 8192, 1, 0, 8192, {ANEW}"
            ),
        );
        assert!(seen.stderr.contains("redo gives it a new header"), "{}", seen.stderr);
    }
    // WAL replay takes a file with a header of zeros for an empty file, because the header never
    // reached the disk. This holds for a relation and for transaction status.
    for path in ["base/1/16384", "pg_xact/0000"] {
        let seen = after(path, Head::Zeros, true);
        let results =
            format!("0, 24576, 0, 0, 0, 3, 0, 0, 8192, 8192, 2, 8192, 0, 0, 8192, {ANEW}");
        says(&seen, &results);
        assert!(seen.stderr.contains("its header never reached the disk"), "{}", seen.stderr);
    }
}

#[test]
fn what_the_server_makes_anew_reads_as_zeros_and_is_written() {
    for path in ["base/1/16384_vm", "base/1/16384_fsm", "pg_subtrans/0000"] {
        for head in [Head::Flipped, Head::Zeros, Head::Plain] {
            let seen = after(path, head, false);
            says(
                &seen,
                &format!(
                    "0, 24576, 24576, 24576, 8192, 0, 0, 0, 8192, 8192, 2, 8192, 0, 0, 8192, {ANEW}"
                ),
            );
            assert!(seen.stderr.contains("PostgreSQL makes it anew"), "{}", seen.stderr);
            assert!(!seen.stderr.contains("restore"), "{}", seen.stderr);
        }
    }
}

#[test]
fn other_files_are_neither_read_nor_written_until_they_are_emptied() {
    for (path, heads) in [
        ("pg_stat/pgstat.stat", &[Head::Flipped, Head::Plain][..]),
        ("pg_xact/0000", &[Head::Flipped, Head::Zeros, Head::Plain]),
        ("base/1/pg_filenode.map", &[Head::Flipped, Head::Plain]),
    ] {
        for head in heads {
            let seen = after(path, *head, false);
            let eio = "-1 EIO";
            says(
                &seen,
                &format!(
                    "0, 24576, 24576, 24576, {eio}, 3, {eio}, {eio}, {eio}, {eio}, 3, {eio}, 3, {eio}, \
                     24576, {ANEW}"
                ),
            );
        }
    }
    let seen = after("pg_stat/pgstat.stat", Head::Zeros, false);
    let results = format!("0, 0, 0, 0, 0, 3, 0, 0, 8192, 8192, 2, 8192, 0, 0, 8192, {ANEW}");
    says(&seen, &results);
}

/// PostgreSQL refuses a relation map of zeros, and a base backup can copy one.
#[test]
fn a_relation_map_without_its_header_reads_as_zeros_and_the_log_says_so() {
    let seen = after("base/1/pg_filenode.map", Head::Zeros, false);
    let results = "0, 24576, 24576, 24576, 8192, 0, 0, 0, 8192, 8192, 2, 8192, 0, 0, 8192";
    says(&seen, &format!("{results}, {ANEW}"));
    assert!(seen.stderr.contains("header is all zeros: the file is damaged"), "{}", seen.stderr);
}

/// Recovery would take a read error for the end of the WAL.
#[test]
fn damaged_wal_does_not_open() {
    for head in [Head::Flipped, Head::Zeros, Head::Plain] {
        for redo in [false, true] {
            says(&after("pg_wal/000000010000000000000001", head, redo), "-1 0");
        }
    }
}

/// A power cut must not leave pages without the header that was written before them: the header is
/// flushed first, once for each open file.
#[test]
fn the_header_goes_to_the_disk_before_pages() {
    let arena = Arena::new();
    let program = arena.compile("flush_order", "flush_order", &[]);
    let spy = arena.compile("spy", "spy.so", &["-shared", "-fPIC"]);
    let mut command = arena.preloaded(&program, &[SEALED[0]]);
    command.env("LD_PRELOAD", format!("{}:{}", library().display(), spy.display()));
    let seen = finish(&mut command);
    assert!(seen.status.success(), "{}", seen.stderr);
    let ranges: Vec<&str> =
        seen.stderr.lines().filter_map(|line| line.strip_prefix("range ")).collect();
    // Pages follow the header and the tag block (spec/sealed-file.md).
    let page = |number: u64| format!("{} {} 2", 16384 + number * 8192, 8 * 8192);
    let header = "0 8192 7";
    assert_eq!(
        ranges,
        [header, &page(8), &page(16), &page(24), header, &page(8)],
        "{}",
        seen.stderr
    );
    arena.assert_sealed(SEALED[0]);
}
