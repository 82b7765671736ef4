//! Opening, reading, writing, lengths and sizes.

use crate::support::{
    Arena, SEALED, data_directory, finish, new_keyring, refused, same_everywhere, same_on,
};

#[test]
fn open_for_writing_and_writing_parts() {
    same_everywhere("open_write");
}

#[test]
fn open_for_appending() {
    same_everywhere("open_append");
}

#[test]
fn open_that_truncates() {
    same_everywhere("open_trunc");
}

#[test]
fn open_around_the_cache() {
    same_everywhere("open_direct");
}

#[test]
fn files_with_a_name_of_their_own() {
    same_everywhere("temporary");
}

#[test]
fn open_relative_to_a_directory() {
    same_everywhere("open_at");
}

#[test]
fn fortified_spellings() {
    same_everywhere("fortified");
}

#[test]
fn fortified_read_that_would_overflow_ends_the_program() {
    let arena = Arena::new();
    let program = arena.compile("fortified_overflow", "fortified_overflow", &[]);
    let seen = arena.run_sealed(&program, &[SEALED[0]]);
    assert!(!seen.status.success(), "{}", seen.stdout);
    assert!(seen.stderr.contains("buffer overflow"), "{}", seen.stderr);
    assert!(!seen.stdout.contains("read"), "{}", seen.stdout);
    arena.assert_sealed(SEALED[0]);
}

#[test]
fn reading() {
    same_everywhere("read_all");
}

#[test]
fn reading_into_many_parts() {
    same_everywhere("read_parts");
}

#[test]
fn reading_page_after_page() {
    same_everywhere("read_ahead");
}

/// The library copies a page and then authenticates the copy; it does not read twice from a map
/// that other processes can change.
#[test]
fn pages_are_not_read_through_a_map() {
    let arena = Arena::new();
    let program = arena.compile("read_ahead", "postgres", &[]);
    // A byte of page 110, which follows the header and the tag block (spec/sealed-file.md).
    let at = 8192 + 8192 + 110 * 8192 + 77;
    let path = SEALED[0];
    let flip = format!("printf '?!' | dd of={path} bs=1 seek={at} conv=notrunc status=none");
    let seen = arena.run_server(&program, &[path, &flip]);
    assert!(seen.status.success(), "{}", seen.stderr);
    assert!(seen.stderr.contains("mapped: 0\n"), "{}", seen.stderr);
    assert!(seen.stderr.contains("block 110 of"), "{}", seen.stderr);
    for page in 100..120 {
        let line = format!("page {page} is as written: {}\n", u8::from(page != 110));
        assert!(seen.stdout.contains(&line), "{line} is missing in {}", seen.stdout);
    }
}

#[test]
fn writing() {
    same_everywhere("write_all");
}

#[test]
fn flags_of_vectored_calls_are_refused() {
    let transcript = [
        "pwritev2(fd, &one, 1, 0, RWF_APPEND) = -1 EOPNOTSUPP",
        "preadv2(fd, &one, 1, 0, RWF_NOWAIT) = -1 EOPNOTSUPP",
    ];
    refused("flags_refused", &[SEALED[0]], &transcript, "");
}

#[test]
fn positions() {
    same_everywhere("seek");
}

#[test]
fn truncation() {
    same_everywhere("truncate");
}

#[test]
fn truncation_of_an_empty_file() {
    same_everywhere("truncate_empty");
}

#[test]
fn allocation() {
    same_everywhere("allocate");
}

#[test]
fn allocation_that_punches_or_shifts_is_refused() {
    let transcript = [
        "fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) = -1 EOPNOTSUPP",
        "fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, PAGE) = -1 EOPNOTSUPP",
        "fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE) = -1 EOPNOTSUPP",
        "fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9 * PAGE) = -1 EOPNOTSUPP",
    ];
    refused("allocate_refused", &[SEALED[0]], &transcript, "does not exist for sealed files");
}

#[test]
fn sizes() {
    same_on("stat_sizes", &SEALED);
}

#[test]
fn advice() {
    same_everywhere("advice");
}

#[test]
fn signals_during_calls() {
    let arena = Arena::new();
    let program = arena.compile("handler", "handler", &[]);
    let expected = arena.run_plain(&program, &[SEALED[0]]);
    let seen = arena.run_sealed(&program, &[SEALED[0]]);
    assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
    arena.assert_no_plaintext();
}

/// With the accelerators off no tag block is mapped. A value other than on and off changes nothing
/// and is reported.
#[test]
fn the_accelerators_can_be_switched_off() {
    let arena = Arena::new();
    let program = arena.compile("tag_map", "tag_map", &[]);
    // On tmpfs tag blocks are mapped; the other directories may be on another file system.
    let dir = tempfile::TempDir::new_in("/dev/shm").unwrap();
    data_directory(dir.path(), Some(&new_keyring()));
    for (value, maps, warns) in
        [("", 1, false), ("on", 1, false), ("off", 0, false), ("no", 1, true)]
    {
        let mut command = arena.preloaded(&program, &[SEALED[0]]);
        let seen = finish(command.current_dir(dir.path()).env("PGSEAL_ACCELERATORS", value));
        assert_eq!(seen.stdout, format!("maps: {maps}\n"), "\"{value}\": {}", seen.stderr);
        assert_eq!(seen.stderr.contains("PGSEAL_ACCELERATORS"), warns, "{}", seen.stderr);
    }
}
