//! Interrupts a whole conversion at every step by a power cut, which loses what was not synced, and
//! continues it. At any time, either the plain server or the sealed server can start, or none; in
//! the end, every file has its old content.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::{Path, PathBuf};

use pgseal_convert::copy::{Sink, Source};
use pgseal_convert::engine::{self, Job};
use pgseal_convert::plan::{Action, Plan};
use pgseal_convert::{
    Control, ConvertError, Facts, Item, Journal, Media, NEW_SUFFIX, Operation, Phase, Target,
    barrier, lock,
};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::{Generation, Suite, testing};
use pgseal_pgdata::classify;

#[path = "power/disk.rs"]
mod disk;

use disk::PowerDisk;

const ROOT: &str = "/d";
const VERSION: &str = "15\n";

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let noise = |len: usize, salt: usize| -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251 + salt).to_le_bytes()[0]).collect()
    };
    // Pages that PostgreSQL would accept: pd_lower, pd_upper and pd_special make sense.
    let pages = |count: usize, salt: usize| -> Vec<u8> {
        let mut bytes = noise(count * 8192, salt);
        for page in bytes.chunks_mut(8192) {
            page[10..18].copy_from_slice(&[0, 0, 24, 0, 0, 16, 0, 32]);
        }
        bytes
    };
    vec![
        ("/d/PG_VERSION", VERSION.into()),
        ("/d/global/pg_control", noise(8192, 1)),
        ("/d/global/pg_filenode.map", noise(524, 2)),
        ("/d/global/1262", pages(1, 3)),
        ("/d/base/5/PG_VERSION", VERSION.into()),
        ("/d/base/5/1259", [vec![0; 8192], pages(3, 4)].concat()),
        ("/d/base/5/1259_fsm", vec![]),
        ("/d/pg_wal/000000010000000000000001", noise(20_000, 5)),
        ("/d/pg_xact/0000", vec![0; 8192]),
        ("/d/pg_stat/pgstat.stat", noise(700, 6)),
        ("/d/postgresql.conf", b"work_mem = 4MB\n".to_vec()),
        ("/d/notes.txt", b"an administrator's".to_vec()),
    ]
}

fn items(disk: &PowerDisk) -> (Vec<Item>, Vec<PathBuf>, Vec<PathBuf>) {
    let (mut items, mut leftovers, mut dirs) = (Vec::new(), Vec::new(), Vec::new());
    for path in disk.names() {
        let rel = path.strip_prefix(ROOT).unwrap().to_owned();
        if rel.starts_with("pgseal") {
            continue;
        }
        dirs.push(path.parent().unwrap().to_owned());
        if path.to_string_lossy().ends_with(NEW_SUFFIX) {
            leftovers.push(path);
            continue;
        }
        let class = classify(rel.as_os_str().as_encoded_bytes());
        let len = disk.bytes(&path).unwrap().len() as u64;
        items.push(Item { path, rel, class, len, dev: 1, links: 1 });
    }
    dirs.sort();
    dirs.dedup();
    (items, leftovers, dirs)
}

fn target(operation: Operation) -> Target {
    match operation {
        Operation::Encrypt => {
            Target::Sealed { suite: Suite::Aes256Gcm, generation: Generation(1), from_plain: true }
        }
        Operation::Rekey => {
            let xts = [Suite::Aes128Xts, Suite::Aes256Xts];
            let suite = xts.into_iter().find(|suite| suite.check_approved().is_ok());
            let suite = suite.unwrap_or(Suite::Aes256Xts);
            Target::Sealed { suite, generation: Generation(2), from_plain: false }
        }
        Operation::Decrypt => Target::Plain { from_sealed: false },
    }
}

/// Converts as the program does, but without the program's checks.
fn convert(disk: &PowerDisk, operation: Operation, control: &Control) -> Result<(), ConvertError> {
    let root = Path::new(ROOT);
    let facts = Facts { catalog_version: 1, checksums: false, segment_pages: 131_072 };
    let mut journal = Journal::load(disk, root)?;
    remove_stale_lock(disk);
    if let Some(begun) = journal.take_if(|journal| journal.phase == Phase::Prepare) {
        barrier::undo(disk, root, &begun, control)?;
    }
    let mut journal = match journal {
        Some(journal) => journal,
        None => {
            let suite = Some(Suite::Aes256Gcm);
            let conf = PathBuf::from("/d/postgresql.conf");
            let mut journal = Journal::new(operation, VERSION.to_owned(), suite, facts, conf);
            assert!(lock::take(disk, root, 4711, control)?, "nobody else has the lock");
            barrier::begin(disk, root, &mut journal, control, || Ok::<_, ConvertError>(()))?;
            control.step()?;
            lock::release(disk, root)?;
            journal
        }
    };
    if journal.phase == Phase::Convert {
        if journal.operation != operation {
            journal.operation = operation;
            journal.store(disk, root, control)?;
            barrier::raise(disk, root, &journal, control)?;
        }
        work(disk, operation, control, false)?;
        barrier::advance(disk, root, &mut journal, Phase::Finish, control)?;
    }
    barrier::end(disk, root, &journal, control)
}

/// Removes a lock file of an ended process, as the program and servers do. The lock file must be
/// whole: it must name the process and the directory.
fn remove_stale_lock(disk: &PowerDisk) {
    let path = lock::path(Path::new(ROOT));
    if let Some(bytes) = disk.bytes(&path) {
        let text = String::from_utf8(bytes).unwrap();
        let named = text.lines().next().map(str::parse::<u32>);
        assert!(matches!(named, Some(Ok(4711))), "a lock file that names no process: {text:?}");
        assert_eq!(text.lines().nth(1), Some(ROOT), "{text:?}");
        disk.remove(&path).unwrap();
    }
}

/// Converts all files; with `only_look`, returns whether all files have the form that `operation`
/// gives them.
fn work(
    disk: &PowerDisk,
    operation: Operation,
    control: &Control,
    only_look: bool,
) -> Result<bool, ConvertError> {
    let keys = testing::keys();
    let plan = Plan {
        target: target(operation),
        keyring_id: keys.keyring_id,
        checksums: false,
        segment_pages: 131_072,
    };
    let (items, leftovers, dirs) = items(disk);
    let job = Job { media: disk, keys: &keys, plan, control, jobs: 1, progress: &|_| {} };
    let tasks = engine::plan(&job, items)?;
    if only_look {
        return Ok(tasks.iter().all(|task| matches!(task.action, Action::Done | Action::Foreign)));
    }
    engine::clean(disk, &leftovers)?;
    let outcome = engine::run(&job, &tasks, &dirs)?;
    assert_eq!(outcome.found, vec![], "damage");
    Ok(true)
}

fn is_of_form(disk: &PowerDisk, operation: Operation) -> bool {
    work(disk, operation, &Control::default(), true).unwrap()
}

/// Checks which servers can start, and that those find all files in the form that they need.
fn check_servers(disk: &PowerDisk, before: Operation, now: Operation) {
    // On a copy of the disk, because no server starts here.
    remove_stale_lock(&disk.cut(0));
    let journal = Journal::load(disk, Path::new(ROOT)).unwrap();
    let version = disk.bytes(Path::new("/d/PG_VERSION")).unwrap();
    let control = disk.exists(Path::new("/d/global/pg_control")).unwrap();
    let held = disk.exists(Path::new("/d/pgseal/pg_control")).unwrap();
    assert!(control != held, "the control file is there once");
    let bars_all = version != VERSION.as_bytes() || held;
    match journal.map(|journal| journal.phase) {
        // A server can start, so all files must have one form.
        None => {
            assert!(
                !bars_all,
                "there is a barrier, but no journal by which a command could continue"
            );
            assert!(is_of_form(disk, before) || is_of_form(disk, now));
        }
        Some(Phase::Prepare) => assert!(is_of_form(disk, before)),
        Some(Phase::Convert) => assert!(bars_all, "half-converted without a barrier"),
        Some(Phase::Finish) => assert!(is_of_form(disk, now)),
    }
}

/// Runs a conversion until it ends. Each run has a power cut after more steps than the run before.
fn convert_with_cuts(
    mut disk: PowerDisk,
    before: Operation,
    now: Operation,
    seed: u64,
) -> PowerDisk {
    let mut steps = seed % 7;
    let mut cuts = 0;
    loop {
        let control = Control::with_steps(steps);
        match convert(&disk, now, &control) {
            Ok(()) => break,
            Err(ConvertError::Stopped) => {}
            Err(error) => panic!("seed {seed}, {cuts} cuts: {error}"),
        }
        disk = disk.cut(seed.wrapping_mul(1000) + cuts);
        check_servers(&disk, before, now);
        cuts += 1;
        steps += 3 + (seed + cuts) % 5;
        assert!(cuts < 1000, "it never ends");
    }
    // A conversion that has ended survives a power cut.
    let disk = disk.cut(seed + 77);
    assert_eq!(Journal::load(&disk, Path::new(ROOT)).unwrap(), None);
    check_servers(&disk, before, now);
    assert!(is_of_form(&disk, now));
    disk
}

fn assert_unchanged(disk: &PowerDisk) {
    for (path, bytes) in files() {
        assert!(disk.bytes(Path::new(path)).unwrap() == bytes, "{path}");
    }
    let names = disk.names();
    assert!(!names.iter().any(|path| path.to_string_lossy().contains(NEW_SUFFIX)), "{names:?}");
}

#[test]
fn a_conversion_continues_after_several_power_cuts() {
    for seed in 0..120 {
        let disk = PowerDisk::with(&files());
        let disk = convert_with_cuts(disk, Operation::Decrypt, Operation::Encrypt, seed);
        let disk = convert_with_cuts(disk, Operation::Encrypt, Operation::Rekey, seed + 1);
        let disk = convert_with_cuts(disk, Operation::Rekey, Operation::Decrypt, seed + 2);
        assert_unchanged(&disk);
    }
}

/// Exactly one power cut, before each step in turn.
#[test]
fn a_conversion_continues_after_a_power_cut_before_any_step() {
    for steps in 0.. {
        let disk = PowerDisk::with(&files());
        let done = convert(&disk, Operation::Encrypt, &Control::with_steps(steps)).is_ok();
        for seed in 0..4 {
            let disk = disk.cut(steps * 10 + seed);
            check_servers(&disk, Operation::Decrypt, Operation::Encrypt);
            convert(&disk, Operation::Encrypt, &Control::default()).unwrap();
            assert!(is_of_form(&disk, Operation::Encrypt));
            convert(&disk, Operation::Decrypt, &Control::default()).unwrap();
            assert_unchanged(&disk);
        }
        if done {
            assert!(steps > 40, "{steps} steps are too few to have been counted");
            return;
        }
    }
}

/// `decrypt` undoes an `encrypt` that was interrupted.
#[test]
fn an_interrupted_encryption_can_be_decrypted() {
    for steps in (0..80).step_by(3) {
        let disk = PowerDisk::with(&files());
        if convert(&disk, Operation::Encrypt, &Control::with_steps(steps)).is_ok() {
            break;
        }
        let disk = disk.cut(steps);
        let phase = Journal::load(&disk, Path::new(ROOT)).unwrap().map(|journal| journal.phase);
        if phase == Some(Phase::Finish) {
            continue;
        }
        convert(&disk, Operation::Decrypt, &Control::default()).unwrap();
        assert_unchanged(&disk);
    }
}

/// The sealed files contain the content of the plain ones, and do not merely have the right form.
#[test]
fn sealed_files_read_back() {
    let disk = PowerDisk::with(&files());
    convert(&disk, Operation::Encrypt, &Control::default()).unwrap();
    let keys = testing::keys();
    for (path, bytes) in files() {
        let stored = MemStorage::with(disk.bytes(Path::new(path)).unwrap());
        let mut source = Source::look(&stored, &keys).unwrap();
        let is_sealed = matches!(source, Source::Sealed(_));
        let plain = [".conf", "PG_VERSION", "pg_control", "_fsm", ".txt"];
        assert_eq!(is_sealed, !plain.iter().any(|end| path.ends_with(end)), "{path}");
        let out = MemStorage::default();
        pgseal_convert::copy::copy(
            &mut source,
            &stored,
            &Sink::File(&out, pgseal_convert::copy::Form::Plain),
            &keys,
            None,
            &mut pgseal_convert::copy::Buffers::default(),
            &mut |_| Ok::<(), pgseal_core::SealError>(()),
        )
        .unwrap();
        assert!(*out.bytes() == bytes, "{path}");
    }
}
