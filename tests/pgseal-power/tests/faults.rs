//! The disk does wrong where its rules say, and right everywhere else.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use pgseal_power::{Call, Disk, Fault, Mounted, Recorder, Rule};

/// A mounted disk with the files `a` and `b` of 16 KiB; `None` where nobody may mount one.
fn mounted(at: &Path) -> Option<Mounted> {
    fs::write(at.join("a"), vec![1; 16384]).unwrap();
    fs::write(at.join("b"), vec![2; 16384]).unwrap();
    let disk = Disk::read_from(at).unwrap();
    for name in ["a", "b"] {
        fs::remove_file(at.join(name)).unwrap();
    }
    assert!(fs::metadata(at).unwrap().is_dir());
    match Recorder::of(disk).mount(at) {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            eprintln!("no FUSE here: {error}");
            None
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

const EIO: Option<i32> = Some(5);
const ENOSPC: Option<i32> = Some(28);

#[test]
fn errors_strike_the_calls_that_the_rules_name() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    let (disk, path) = (mounted.recorder.clone(), |name: &str| at.path().join(name));
    disk.set_faults(vec![
        Rule::new(Call::Read, "a", Fault::Error).bytes(8192..8193),
        Rule::new(Call::Sync, "b", Fault::Error).only(2),
        Rule::new(Call::Allocate, "", Fault::Full).from(2),
    ]);
    let (a, b) = (open(&path("a")), open(&path("b")));
    let mut buf = [0; 4096];
    a.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(errno(a.read_exact_at(&mut buf, 8192)), EIO);
    b.read_exact_at(&mut buf, 8192).unwrap();
    b.sync_all().unwrap();
    assert_eq!(errno(b.sync_all()), EIO);
    b.sync_all().unwrap();
    a.write_all_at(&[9; 100], 16384).unwrap();
    assert_eq!(errno(a.write_all_at(&[9; 100], 16484)), ENOSPC);
    assert_eq!(errno(File::create(path("new"))), ENOSPC);
    assert_eq!(errno(fs::create_dir(path("dir"))), ENOSPC);
    assert_eq!(errno(a.set_len(20000)), ENOSPC);
    a.write_all_at(&[8; 100], 0).unwrap();
    a.set_len(100).unwrap();
    let counts = disk.fault_counts();
    assert!(counts[0].1 > 0 && counts[1] == (3, 1) && counts[2] == (5, 4), "{counts:?}");
    disk.set_faults(Vec::new());
    fs::write(path("new"), b"x").unwrap();
    assert_eq!(fs::metadata(path("a")).unwrap().size(), 100);
}

#[test]
fn lost_and_misdirected_writes_show_when_the_kernel_has_forgotten() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    let (disk, path) = (mounted.recorder.clone(), |name: &str| at.path().join(name));
    let a = open(&path("a"));
    disk.set_faults(vec![
        Rule::new(Call::Write, "a", Fault::Lost).bytes(0..1),
        Rule::new(Call::Write, "a", Fault::Elsewhere("b".into(), 4096)).bytes(8192..8193),
        Rule::new(Call::Write, "b", Fault::Short(10)).only(1),
    ]);
    a.write_all_at(&[5; 4096], 0).unwrap();
    a.write_all_at(&[6; 4096], 8192).unwrap();
    a.write_all_at(&[7; 10], 20000).unwrap();
    let mut buf = [0; 4096];
    a.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf == [5; 4096], "the kernel's page cache has it");
    for name in ["a", "b"] {
        mounted.forget(Path::new(name)).unwrap();
    }
    let (now_a, now_b) = (fs::read(path("a")).unwrap(), fs::read(path("b")).unwrap());
    assert!(now_a[..16384] == [1; 16384] && now_a[20000..] == [7; 10] && now_a.len() == 20010);
    assert!(now_b[..4096] == [2; 4096] && now_b[4096..8192] == [6; 4096]);
    let b = open(&path("b"));
    assert_eq!(b.write_at(&[4; 100], 0).unwrap(), 10);
    mounted.forget(Path::new("b")).unwrap();
    let now_b = fs::read(path("b")).unwrap();
    assert!(now_b[..10] == [4; 10] && now_b[10..100] == [2; 90]);
    assert!(mounted.forget(Path::new("c")).is_err());
}

#[test]
fn a_stuck_sync_returns_when_it_is_released_and_nobody_else_waits() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    let disk = mounted.recorder.clone();
    disk.set_faults(vec![Rule::new(Call::Sync, "a", Fault::Stuck)]);
    let a = open(&at.path().join("a"));
    let sync = thread::spawn(move || a.sync_all());
    while disk.stuck() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    open(&at.path().join("b")).sync_all().unwrap();
    assert_eq!(fs::read(at.path().join("a")).unwrap().len(), 16384);
    assert!(!sync.is_finished());
    disk.release();
    sync.join().unwrap().unwrap();
    assert_eq!(disk.stuck(), 0);
}
