//! The library learns about a keyring from the helper alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Arena, SEALED, data_directory, finish, helper, new_keyring};

/// A helper that is a shell script.
fn script(arena: &Arena, text: &str) -> PathBuf {
    let path = arena.tmp.path().join("helper");
    let new = arena.tmp.path().join("helper.new");
    fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}

fn seed(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds").join(name)
}

/// The library rejects a frame of keys from a helper of another version.
#[test]
fn the_frame_of_another_version_is_refused() {
    let arena = Arena::new();
    let program = arena.compile("open_refused", "open_refused", &[]);
    for (frame, wanted) in [
        ("frame/version-2", "install the program and the library of the same version"),
        ("frame/cut", "stopped before it had handed over all keys"),
        ("header/aes-256-gcm-paged", "is not a key frame"),
    ] {
        let fake = script(&arena, &format!("exec cat \"{}\"", seed(frame).display()));
        let mut command = arena.preloaded(&program, &[SEALED[0]]);
        let seen = finish(command.env("PGSEAL_HELPER", &fake));
        assert!(seen.stderr.contains(wanted), "{frame}: {}", seen.stderr);
        assert!(!arena.sealed().join(SEALED[0]).exists(), "{frame}");
    }
}

/// While a conversion is unfinished no file is opened, with and without the helper, and the message
/// names the command that continues the conversion.
#[test]
fn an_interrupted_conversion_is_refused() {
    for (journal, command) in [
        ("journal/encrypt", "encrypt"),
        ("journal/decrypt", "decrypt"),
        ("journal/rekey", "rekey"),
        ("journal/names-another-command", "encrypt"),
    ] {
        let arena = Arena::new();
        let program = arena.compile("open_refused", "open_refused", &[]);
        fs::copy(seed(journal), arena.sealed().join("pgseal/conversion")).unwrap();
        for (path, key) in
            [(SEALED[0], "PGSEAL_KEY"), (SEALED[0], "NO_KEY"), ("./PG_VERSION", "NO_KEY")]
        {
            let before = fs::read(arena.sealed().join("PG_VERSION")).unwrap();
            // No provider is asked for a key.
            let mut run = arena.preloaded(&program, &[path]);
            let seen = finish(run.env("PGSEAL_PROVIDER", format!("env:{key}")));
            let wanted = format!("run \"pgseal {command}\" again");
            assert!(seen.stderr.contains(&wanted), "{journal} {path}: {}", seen.stderr);
            assert!(!seen.stderr.contains("NO_KEY"), "{journal} {path}: {}", seen.stderr);

            let mut run = arena.preloaded(&program, &[path]);
            let seen = finish(run.env("PGSEAL_HELPER", "/bin/false"));
            assert!(seen.stderr.contains("pgseal doctor"), "{journal} {path}: {}", seen.stderr);
            assert!(!arena.sealed().join(SEALED[0]).exists());
            assert_eq!(fs::read(arena.sealed().join("PG_VERSION")).unwrap(), before);
        }
    }
}

/// The conversion begins after the process has found the data directory.
#[test]
fn keys_are_not_handed_over_during_a_conversion() {
    let arena = Arena::new();
    let program = arena.compile("open_refused", "open_refused", &[]);
    let frame = seed("frame/interrupted-rekey");
    let fake = script(&arena, &format!("exec cat \"{}\"", frame.display()));
    let mut run = arena.preloaded(&program, &[SEALED[0]]);
    let seen = finish(run.env("PGSEAL_HELPER", &fake));
    assert!(seen.stderr.contains("run \"pgseal rekey\" again"), "{}", seen.stderr);
    assert!(!arena.sealed().join(SEALED[0]).exists());
}

/// The keys of another data directory are fetched if a file needs its keyring. The other keyrings
/// stay locked, and each is asked for its identity once.
#[test]
fn only_the_keyring_that_a_file_needs_is_unlocked() {
    let arena = Arena::new();
    let writes = arena.compile("open_trunc", "open_trunc", &[]);
    let [own, other, third] = ["own", "other", "third"].map(|name| arena.tmp.path().join(name));
    for dir in [&own, &other, &third] {
        data_directory(dir, Some(&new_keyring()));
    }
    let sealed = arena.sealed();
    for (dir, path) in [(&sealed, "base/1/16384"), (&third, "base/1/16385")] {
        let seen = finish(arena.preloaded(&writes, &[path]).current_dir(dir));
        assert!(seen.status.success(), "{}", seen.stderr);
        fs::copy(dir.join(path), own.join(path)).unwrap();
    }
    let log = arena.tmp.path().join("log");
    let (file, program) = (log.display(), helper().display());
    let fake = script(&arena, &format!("echo \"$@\" >> \"{file}\"\nexec \"{program}\" \"$@\""));
    let shows = arena.compile("open_refused", "open_refused", &[]);
    let named = [&other, &sealed, &third].map(|dir| dir.to_str().unwrap()).join(":");
    let mut run = arena.preloaded(&shows, &["base/1/16384", "base/1/16385"]);
    run.current_dir(&own).env("PGSEAL_HELPER", &fake).env("PGSEAL_DATA", named);
    let seen = finish(&mut run);
    assert_eq!(seen.stderr, "", "{}", seen.stdout);
    let asked = fs::read_to_string(&log).unwrap();
    let of = |dir: &Path| {
        let keyring = dir.join("pgseal/keyring");
        asked.lines().filter(|line| line.contains(keyring.to_str().unwrap())).count()
    };
    assert_eq!([&own, &other, &sealed, &third].map(|dir| of(dir)), [1; 4], "{asked}");
}
