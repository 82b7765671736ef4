//! Descriptors, maps and copies inside the kernel.

use crate::support::{Arena, PLAIN, SEALED, refused, same_everywhere};

#[test]
fn copies_of_a_descriptor_share_it() {
    same_everywhere("dup_shares");
}

#[test]
fn a_closed_number_is_free() {
    same_everywhere("close_reuse");
}

#[test]
fn maps_are_refused() {
    let transcript = [
        "mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED = 1",
        "mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED = 1",
        "mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0) == MAP_FAILED = 0",
    ];
    for path in SEALED {
        refused("mmap_refused", &[path], &transcript, "cannot be mapped into memory");
    }
}

#[test]
fn copies_inside_the_kernel_are_refused() {
    let transcript = [
        "sendfile(other, fd, &zero, 100) = -1 EINVAL",
        "sendfile(fd, other, NULL, 100) = -1 EINVAL",
        "splice(fd, &zero, pipes[1], NULL, 100, 0) = -1 EINVAL",
        "splice(pipes[0], NULL, fd, NULL, 10, 0) = -1 EINVAL",
    ];
    for path in SEALED {
        refused("copies_refused", &[path, PLAIN], &transcript, "does not work on sealed files");
    }
}

/// Whole files in and out, and single pages, as `pg_upgrade` and `pg_combinebackup` copy them.
#[test]
fn copy_file_range_reads_and_writes() {
    for from in SEALED.iter().chain(&[PLAIN]) {
        for to in ["base/1/16385", "global/pg_filenode.map", "pg_stat/other.stat", "pg_hba.conf"] {
            let arena = Arena::new();
            let program = arena.compile("copy_range", "copy_range", &[]);
            let expected = arena.run_plain(&program, &[from, to]);
            let seen = arena.run_sealed(&program, &[from, to]);
            assert_eq!(seen.stdout, expected.stdout, "{from} {to}: {}", seen.stderr);
            for path in [*from, to].iter().filter(|path| !path.ends_with(".conf")) {
                arena.assert_sealed(path);
            }
        }
    }
}

#[test]
fn cloning_is_refused_and_the_descriptor_stays_sealed() {
    let transcript = [
        "ioctl(fd, FICLONERANGE, &range) < 0 = 1",
        "ioctl(fd, FICLONE, plain) < 0 = 1",
        "pwrite(fd, all, 100, 50) = 100",
    ];
    for path in SEALED {
        refused("clone", &[path], &transcript, "cannot be cloned");
    }
}

/// Parent and child share a descriptor, born before the fork and after it: all pages are there,
/// and no two carry the same nonce.
#[test]
fn parent_and_child_never_use_a_nonce_twice() {
    for args in [&["base/1/16384"][..], &["base/1/16384", "born"]] {
        let arena = Arena::new();
        let program = arena.compile("fork_writes", "fork_writes", &[]);
        let expected = arena.run_plain(&program, args);
        let seen = arena.run_sealed(&program, args);
        assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
        arena.assert_sealed(args[0]);
        // spec/sealed-file.md: the first tag block follows the header; an entry of 32 bytes for
        // each page starts with its nonce of 12.
        let raw = arena.raw(args[0]);
        let mut nonces: Vec<&[u8]> =
            raw[8192..].chunks(32).take(64).skip(2).map(|entry| &entry[..12]).collect();
        assert!(nonces.iter().all(|nonce| **nonce != [0; 12]));
        nonces.sort_unstable();
        nonces.dedup();
        assert_eq!(nonces.len(), 62);
    }
}
