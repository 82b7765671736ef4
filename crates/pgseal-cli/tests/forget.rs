//! `pgseal key forget` and `pgseal key restore --force` refuse and change nothing: while keys are
//! in use, a server or another pgseal runs, a conversion is interrupted, or files cannot be read.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};

use common::{Fixture, RELATION, snapshot};
use pgseal_convert::{Control, Disk, Facts, Journal, Operation, Phase, barrier};
use pgseal_core::{FileKind, Generation, Suite};
use pgseal_keys::{Keyring, Provider, keyring_path, update};

const PASS: &str = "passphrase:command=echo correct horse";
const FORGET: [&str; 3] = ["key", "forget", "--no-backup-has-them"];

/// A data directory whose files all have generation 1, while generation 2 is active.
fn with_two_generations() -> Fixture {
    let fixture = Fixture::sealed();
    add_generation(&fixture);
    fixture
}

fn add_generation(fixture: &Fixture) {
    let path = keyring_path(&fixture.data());
    let provider = Provider::parse(Keyring::load(&path).unwrap().provider_uri()).unwrap();
    let kek = provider.kek(None).unwrap();
    update(&path, |keyring| keyring.add_generation(&kek)).unwrap();
}

/// Seals every file again with the active generation, as a rekey does.
fn rekeyed(fixture: &Fixture) {
    fixture.seal(RELATION, FileKind::Relation, &vec![0; 3 * 8192]);
    fixture.seal(common::WAL, FileKind::Wal, &vec![0x42; 4 * 8192]);
    fixture.seal(common::STATISTICS, FileKind::Stream, &vec![0x43; 20000]);
}

fn generations(fixture: &Fixture) -> Vec<u32> {
    let keyring = Keyring::load(&keyring_path(&fixture.data())).unwrap();
    keyring.summary().generations.iter().map(|entry| entry.generation).collect()
}

/// Runs a command that must refuse and change nothing.
#[track_caller]
fn refused(fixture: &Fixture, args: &[&str], code: i32, words: &str) {
    let before = snapshot(&fixture.data());
    fixture.on_data(args).fails_with(code, words);
    assert_eq!(snapshot(&fixture.data()), before, "{args:?} changed something");
}

/// An interrupted conversion, with the barrier raised.
fn interrupt(fixture: &Fixture, operation: Operation, phase: Phase, generation_before: u32) {
    let root = fixture.data();
    let suite = (operation != Operation::Decrypt).then_some(Suite::Aes256Gcm);
    let facts = Facts { catalog_version: 1, checksums: false, segment_pages: 131_072 };
    let conf = root.join("postgresql.conf");
    let mut journal = Journal::new(operation, "15\n".to_owned(), suite, facts, conf);
    journal.generation_before = generation_before;
    journal.keyring = Keyring::load(&keyring_path(&root)).unwrap().id().to_string();
    let control = Control::default();
    journal.store(&Disk, &root, &control).unwrap();
    if phase != Phase::Prepare {
        barrier::raise(&Disk, &root, &journal, &control).unwrap();
        barrier::advance(&Disk, &root, &mut journal, phase, &control).unwrap();
    }
}

/// A process whose working directory is the data directory, as that of a server. It ends with the
/// value.
struct Process(Child);

impl Process {
    fn in_dir(dir: &Path) -> Process {
        Process(Command::new("sleep").arg("600").current_dir(dir).spawn().unwrap())
    }

    fn writes_lock_file(&self, fixture: &Fixture, sign: &str) {
        let text = format!("{sign}{}\n{}\n", self.0.id(), fixture.data().display());
        fixture.write("postmaster.pid", text.as_bytes());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_generation_in_use_is_kept_and_one_without_a_file_goes_when_no_backup_has_it() {
    let fixture = with_two_generations();
    let before = snapshot(&fixture.data());
    let kept = fixture.on_data(&FORGET);
    assert_eq!(kept.code, 0, "{kept:?}");
    assert!(kept.out.contains("Kept: generation 1"), "{kept:?}");
    assert!(kept.out.contains("no retired data key that could go"), "{kept:?}");
    assert_eq!(snapshot(&fixture.data()), before);

    rekeyed(&fixture);
    refused(&fixture, &["key", "forget"], 2, "generation 1 could go");
    fixture.ok(&["key", "new", "-o", "other"]);
    refused(&fixture, &[&FORGET[..], &["-K", "file:other"]].concat(), 11, "wrong key");
    let done = fixture.on_data(&FORGET);
    assert_eq!((done.code, generations(&fixture)), (0, vec![2]), "{done:?}");
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}

#[test]
fn whatever_hides_a_data_key_is_refused() {
    let fixture = with_two_generations();
    rekeyed(&fixture);
    let tablespace = fixture.file("pg_tblspc/16400");
    symlink("/nowhere/at/all", &tablespace).unwrap();
    fixture.on_data(&FORGET).fails_with(22, "pg_tblspc/16400");
    fs::remove_file(&tablespace).unwrap();
    // The mount point of a file system that is not mounted.
    fs::create_dir(fixture.path("space")).unwrap();
    symlink(fixture.path("space"), &tablespace).unwrap();
    refused(&fixture, &FORGET, 22, "is it mounted?");
    fs::remove_file(&tablespace).unwrap();
    let wal = fs::read(fixture.file(common::WAL)).unwrap();
    fs::remove_file(fixture.file(common::WAL)).unwrap();
    fs::remove_dir(fixture.file("pg_wal/archive_status")).unwrap();
    refused(&fixture, &FORGET, 22, "it holds no WAL");
    fixture.write(common::WAL, &wal);
    let relation = fs::read(fixture.file(RELATION)).unwrap();
    fixture.damage(RELATION, |bytes| bytes[..4096].fill(0));
    refused(&fixture, &FORGET, 22, "its header is lost");
    fixture.write(RELATION, &relation);
    assert_eq!(generations(&fixture), [1, 2]);
    assert_eq!(fixture.on_data(&FORGET).code, 0);
}

#[test]
fn an_interrupted_conversion_keeps_all_keys() {
    for phase in [Phase::Prepare, Phase::Convert, Phase::Finish] {
        let fixture = with_two_generations();
        rekeyed(&fixture);
        interrupt(&fixture, Operation::Rekey, phase, 1);
        refused(&fixture, &FORGET, 22, "pgseal rekey was interrupted here");
        assert_eq!(generations(&fixture), [1, 2]);
    }
}

#[test]
fn a_server_or_another_pgseal_at_work_is_not_disturbed_and_a_stale_lock_file_is_no_server() {
    let fixture = Fixture::sealed();
    let (old, new) = (escrow_copy(&fixture, "old"), {
        add_generation(&fixture);
        escrow_copy(&fixture, "new")
    });
    let (old, new) = (restore_args(&old), restore_args(&new));
    rekeyed(&fixture);
    let server = Process::in_dir(&fixture.data());
    for sign in ["", "-"] {
        server.writes_lock_file(&fixture, sign);
        let words = format!("a server runs on it as process {}", server.0.id());
        refused(&fixture, &FORGET, 22, &words);
        refused(&fixture, &["rekey"], 22, &words);
        // The server uses the keys in its memory, and needs the same keys for its next start.
        let words = format!("a server runs (process {})", server.0.id());
        refuses_restore(&fixture, &old, 22, &words);
        assert_eq!(fixture.run(&new).code, 0);
        assert_eq!(generations(&fixture), [1, 2]);
        assert!(fixture.file("postmaster.pid").exists(), "the server's lock file is gone");
    }
    // A copied lock file: there is a process with that number, but it works elsewhere.
    let elsewhere = Process::in_dir(&fixture.path(""));
    elsewhere.writes_lock_file(&fixture, "");
    assert_eq!(fixture.on_data(&["key", "forget"]).code, 2);
    // A lock file whose server has ended.
    server.writes_lock_file(&fixture, "");
    refused(&fixture, &FORGET, 22, "a server runs");
    drop(server);
    let lock = File::open(fixture.data()).unwrap();
    lock.lock().unwrap();
    refused(&fixture, &FORGET, 22, "another pgseal");
    refuses_restore(&fixture, &new, 22, "another pgseal");
    drop(lock);
    let done = fixture.on_data(&FORGET);
    assert_eq!((done.code, generations(&fixture)), (0, vec![2]), "{done:?}");
    // The lock file of a server that has ended does not matter either.
    Process::in_dir(&fixture.data()).writes_lock_file(&fixture, "");
    let done = fixture.run(&new);
    assert_eq!((done.code, generations(&fixture)), (0, vec![1, 2]), "{done:?}");
    assert!(!fixture.file("postmaster.pid").exists(), "a lock file was left");
}

fn escrow_copy(fixture: &Fixture, name: &str) -> String {
    let data = fixture.data();
    let copy = fixture.path(name).display().to_string();
    fixture.ok(&["key", "backup", data.to_str().unwrap(), "--lock", PASS, "-o", &copy]);
    copy
}

/// Restores over the present keyring, which is named by its path.
fn restore_args(copy: &str) -> Vec<&str> {
    let key = "file:key";
    vec!["key", "restore", "data/pgseal/keyring", copy, "--unlock", PASS, "-K", key, "--force"]
}

#[track_caller]
fn refuses_restore(fixture: &Fixture, args: &[&str], code: i32, words: &str) {
    let before = snapshot(&fixture.data());
    for target in ["data", "data/pgseal/keyring"] {
        let args: Vec<&str> =
            args.iter().map(|arg| if arg.starts_with("data") { target } else { arg }).collect();
        fixture.run(&args).fails_with(code, words);
    }
    assert_eq!(snapshot(&fixture.data()), before);
}

/// A conversion that was interrupted before the first or after the last file can be finished.
#[test]
fn no_keyring_is_put_under_a_conversion_that_needs_none() {
    for phase in [Phase::Prepare, Phase::Finish] {
        let fixture = with_two_generations();
        let escrow = escrow_copy(&fixture, "escrow");
        interrupt(&fixture, Operation::Rekey, phase, 1);
        refuses_restore(&fixture, &restore_args(&escrow), 22, "pgseal rekey was interrupted here");
    }
}

/// One that was interrupted between files accepts a copy with all generations of the files, and no
/// other.
#[test]
fn a_rekey_goes_on_with_an_escrow_copy_that_has_the_keys_of_its_files() {
    let fixture = Fixture::sealed();
    rekeyed(&fixture);
    let escrow = escrow_copy(&fixture, "escrow");
    let restore = restore_args(&escrow);
    let old = fs::read(fixture.file(RELATION)).unwrap();
    add_generation(&fixture);
    fixture.seal(RELATION, FileKind::Relation, &vec![0; 3 * 8192]);
    interrupt(&fixture, Operation::Rekey, Phase::Convert, 1);
    refuses_restore(&fixture, &restore, 22, "files have generation 2");
    let theirs = with_two_generations();
    let foreign = escrow_copy(&theirs, "escrow");
    refuses_restore(&fixture, &restore_args(&foreign), 15, "another cluster");

    // No file has the new generation yet: the copy is accepted, and the rekey can be resumed.
    fixture.write(RELATION, &old);
    assert_eq!(fixture.run(&restore).code, 0);
    assert_eq!(generations(&fixture), [1]);
    let done = fixture.on_data(&["rekey"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(generations(&fixture), [1, 2]);
    let json = fixture.on_data(&["status", "--json"]);
    assert!(json.out.contains("generation 2") && !json.out.contains("generation 1\""), "{json:?}");
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
    assert_eq!(fixture.keys().active(), Generation(2));
}
