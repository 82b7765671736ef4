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

/// A child of `vfork` does not change the descriptors of its parent.
#[test]
fn a_child_of_vfork_leaves_the_descriptors_alone() {
    same_everywhere("vfork_child");
}

#[test]
fn received_descriptors_are_what_they_are() {
    same_everywhere("received");
}

#[test]
fn inherited_descriptors_are_what_they_are() {
    same_everywhere("inherited");
}

#[test]
fn calls_by_number_are_as_calls_by_name() {
    same_everywhere("raw_calls");
}

#[test]
fn what_changed_past_every_hook_is_noticed() {
    same_everywhere("behind");
}

/// Such calls of `clone` and `unshare` are refused in the programs of PostgreSQL only.
#[test]
fn half_shared_processes_are_refused() {
    let transcript = [
        "clone(child, top, CLONE_VM | SIGCHLD, (void *)(long)fd) = -1 EPERM",
        "clone(child, top, CLONE_FILES | SIGCHLD, (void *)(long)fd) = -1 EPERM",
        "clone(child, top, SIGCHLD, (void *)(long)fd) > 0 = 1",
        "wait(&status) > 0 = 1",
        "unshare(CLONE_FILES) = 0",
        "unshare(CLONE_FILES) = -1 EPERM",
        "close_range(500, 600, CLOSE_RANGE_UNSHARE) = -1 EPERM",
        "syscall(SYS_unshare, CLONE_FILES) = -1 EPERM",
        "write(fd, MARKER, 10) = 10",
    ];
    let arena = Arena::new();
    let program = arena.compile("shares_refused", "shares_refused", &["-pthread"]);
    for path in SEALED {
        let seen = arena.run_sealed(&program, &[path]);
        for wanted in transcript {
            assert!(seen.stdout.lines().any(|line| line == wanted), "{wanted}: {}", seen.stdout);
        }
        assert!(seen.stderr.contains("is refused"), "{}", seen.stderr);
        assert!(seen.status.success(), "{}", seen.stderr);
        arena.assert_sealed(path);
    }
    let seen = arena.run_bystander(&program, &[PLAIN]);
    assert!(!seen.stdout.contains("EPERM"), "{}", seen.stdout);
}

/// `pg_ctl -l` into the data directory: the shell creates the file, and the server writes to it.
#[test]
fn standard_streams_go_where_the_shell_says() {
    let arena = Arena::new();
    let program = arena.compile("dup_shares", "dup_shares", &[]);
    let log = arena.sealed().join("server.log");
    let mut command = arena.preloaded(&program, &[SEALED[0]]);
    command.stdout(std::fs::File::create(&log).unwrap());
    assert!(command.status().unwrap().success());
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text, arena.run_plain(&program, &[SEALED[0]]).stdout);
}

/// A descriptor other than a standard stream: a plain file is refused where sealed files belong, as
/// it is by `open`.
#[test]
fn an_inherited_plain_file_in_a_sealed_class_is_refused() {
    let arena = Arena::new();
    let program = arena.compile("inherited", "inherited", &[]);
    let path = arena.sealed().join(SEALED[0]);
    std::fs::write(&path, "plain bytes that pgseal did not write").unwrap();
    let mut shell = arena.preloaded(std::path::Path::new("/bin/sh"), &[]);
    shell.env("PGSEAL_PROGRAMS", "inherited").arg("-c");
    shell.arg(format!("exec {} $0 3 4 3<>$0 4<>base/1/9", program.display())).arg(SEALED[0]);
    let seen = crate::support::finish(&mut shell);
    let wanted = "pwrite(fd, all, PAGE, PAGE) = -1 EIO";
    assert!(seen.stdout.contains(wanted), "{} {}", seen.stdout, seen.stderr);
    assert!(
        seen.stderr.contains("is a plain file where only sealed ones may be"),
        "{}",
        seen.stderr
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"plain bytes that pgseal did not write");
    assert!(arena.raw("base/1/9").starts_with(crate::support::MAGIC));
}

/// A server opens its dynamic shared memory in each new process.
#[test]
fn shared_memory_is_plain_without_a_look_at_its_path() {
    let arena = Arena::new();
    let program = arena.compile("shared_memory", "shared_memory", &[]);
    let (plain, sealed) = (arena.run_plain(&program, &[]), arena.run_sealed(&program, &[]));
    assert!(sealed.status.success(), "{:?}: {}", sealed.status, sealed.stderr);
    assert!(plain.stdout.contains("close(fd) = 0"), "{}", plain.stdout);
    assert_eq!(sealed.stdout, plain.stdout);
}

#[test]
fn maps_for_reading() {
    same_everywhere("map_read");
}

#[test]
fn maps_that_are_shared_with_a_writer_are_refused() {
    let transcript = [
        "mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED = 1",
        "refused == EACCES = 1",
        "mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED = 1",
        "mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0) == MAP_FAILED = 0",
        "map == MAP_FAILED = 0",
        "mprotect(map, PAGE, PROT_READ | PROT_WRITE) = -1 EACCES",
    ];
    for path in SEALED {
        refused("map_shared", &[path], &transcript, "cannot be mapped into memory with MAP_SHARED");
    }
}

/// A map of a file that does not authenticate is refused; in a map of a relation such a page is
/// invalid.
#[test]
fn a_damaged_file_is_not_mapped() {
    let arena = Arena::new();
    let program = arena.compile("map_read", "map_read", &[]);
    let path = SEALED[2];
    assert!(arena.run_sealed(&program, &[path]).status.success());
    let mut raw = arena.raw(path);
    let at = raw.len() - 50;
    raw[at] ^= 1;
    std::fs::write(arena.sealed().join(path), raw).unwrap();
    let program = arena.compile("map_damaged", "map_damaged", &[]);
    let seen = arena.run_sealed(&program, &[path]);
    assert!(seen.stdout.contains("= -1 EACCES"), "{}", seen.stdout);
    assert!(seen.stderr.contains("pgseal verify"), "{}", seen.stderr);
}

#[test]
fn files_are_sent_by_reading_and_writing() {
    for from in SEALED.iter().chain(&[PLAIN]) {
        for to in ["base/1/16385", "global/pg_filenode.map", "pg_stat/other.stat", "pg_hba.conf"] {
            let arena = Arena::new();
            let program = arena.compile("send_file", "send_file", &[]);
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
fn copies_inside_the_kernel_are_refused() {
    let transcript = [
        "splice(fd, &zero, pipes[1], NULL, 100, 0) = -1 EINVAL",
        "splice(pipes[0], NULL, fd, NULL, 10, 0) = -1 EINVAL",
    ];
    for path in SEALED {
        refused("copies_refused", &[path], &transcript, "does not work on sealed files");
    }
}

/// Copies whole files and single pages, from and to sealed files, as `pg_upgrade` and
/// `pg_combinebackup` do.
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

/// Parent and child share a descriptor that was opened before the fork, and write through it, both
/// to a file with a header and to a file that has none at the fork. All pages are present, and no
/// two have the same nonce.
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
