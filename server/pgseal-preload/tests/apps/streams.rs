//! Standard I/O.

use crate::support::{Arena, PLAIN, SEALED, refused, same_everywhere};

#[test]
fn modes_of_fopen() {
    same_everywhere("fopen_modes");
}

#[test]
fn streams_longer_than_their_buffer() {
    same_everywhere("fopen_long");
}

/// A failed write is reported when the stream is flushed or closed.
#[test]
fn a_failed_write_shows_at_fclose() {
    for path in SEALED {
        let arena = Arena::new();
        let program = arena.compile("fopen_full", "fopen_full", &[]);
        let expected = arena.run_plain(&program, &[path]);
        assert!(expected.stdout.contains("fclose(f) = -1 EFBIG"), "{}", expected.stdout);
        let seen = arena.run_sealed(&program, &[path]);
        assert_eq!(seen.stdout, expected.stdout, "{path}: {}", seen.stderr);
        arena.assert_no_plaintext();
    }
}

#[test]
fn streams_on_descriptors() {
    same_everywhere("fdopen");
}

#[test]
fn freopen_is_refused() {
    let transcript = [
        "write(fd, MARKER, 10) = 10",
        r#"freopen(argv[1], "r", fopen("/dev/null", "r")) fails EACCES"#,
        r#"freopen("/dev/null", "w", fopen(argv[1], "r")) fails EACCES"#,
        r#"freopen("/dev/null", "w", fdopen(fd, "r+")) fails EACCES"#,
    ];
    for path in SEALED {
        refused("stream_refused", &[path], &transcript, "a stream cannot be reopened");
    }
}

/// A program that aborts with full buffers leaves no plaintext on the disk.
#[test]
fn a_program_that_aborts_leaves_no_plaintext() {
    let arena = Arena::new();
    let program = arena.compile("aborts", "aborts", &[]);
    let seen = arena.run_sealed(&program, &[SEALED[2], SEALED[0]]);
    assert!(!seen.status.success());
    arena.assert_sealed(SEALED[0]);
    arena.assert_sealed(SEALED[2]);
    let seen = arena.run_bystander(&program, &[PLAIN, "other.conf"]);
    assert!(!seen.status.success());
}
