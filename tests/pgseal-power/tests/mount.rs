//! The file system does what a file system does, and its log tells the whole story.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use pgseal_power::{Cut, Disk, Log, Mounted, Op, Recorder, Survival};

/// A mounted disk; `None` where nobody may mount one.
fn mounted(at: &Path) -> Option<Mounted> {
    let owner = fs::metadata(at).unwrap();
    match Recorder::new((owner.uid(), owner.gid())).mount(at) {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            eprintln!("no FUSE here: {error}");
            None
        }
    }
}

/// The log, carried out again on the disk that was there at first.
fn replayed(base: &Disk, log: &Log) -> Disk {
    let mut disk = base.clone();
    for op in log.ops() {
        disk.apply(op).unwrap();
    }
    disk
}

#[test]
fn files_directories_and_links_are_what_was_made() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    let path = |name: &str| at.path().join(name);
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/a"), vec![5; 300_000]).unwrap();
    symlink("dir/a", path("link")).unwrap();
    fs::hard_link(path("dir/a"), path("hard")).unwrap();
    fs::rename(path("dir/a"), path("dir/b")).unwrap();
    fs::set_permissions(path("dir/b"), fs::Permissions::from_mode(0o640)).unwrap();
    let file = OpenOptions::new().write(true).open(path("dir/b")).unwrap();
    file.write_at(&[6; 10], 299_995).unwrap();
    file.set_len(300_002).unwrap();
    file.sync_all().unwrap();
    drop(file);
    File::open(path("dir")).unwrap().sync_all().unwrap();

    let mut wanted = vec![5; 299_995];
    wanted.extend([6; 7]);
    for name in ["dir/b", "hard"] {
        assert_eq!(fs::read(path(name)).unwrap(), wanted, "{name}");
    }
    assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("dir/a"));
    assert_eq!(fs::metadata(path("dir/b")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(path("dir/b")).unwrap().nlink(), 2);
    assert!(fs::remove_dir(path("dir")).is_err(), "it is not empty");
    assert!(fs::create_dir(path("hard")).is_err(), "the name is taken");
    fs::remove_file(path("hard")).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(at.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir", "link"]);

    let recorder = mounted.recorder.clone();
    mounted.unmount().unwrap();
    let (base, log) = recorder.recorded();
    let copy = tempfile::tempdir().unwrap();
    replayed(&base, &log).write_to(copy.path()).unwrap();
    assert_eq!(fs::read(copy.path().join("dir/b")).unwrap(), wanted);
    assert_eq!(fs::metadata(copy.path().join("dir/b")).unwrap().mode() & 0o7777, 0o640);
    // All was synced, so every cut at the end leaves the bytes; the last name was removed after it.
    for seed in 0..50 {
        let image = Cut { at: log.ops().len(), seed, survival: Survival::Any }.image(&base, &log);
        let copy = tempfile::tempdir().unwrap();
        image.disk.write_to(copy.path()).unwrap();
        assert_eq!(fs::read(copy.path().join("dir/b")).unwrap(), wanted);
    }
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    let path = at.path().join("a");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"still there").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
    drop(file);
    let (base, log) = mounted.recorder.recorded();
    let disk = replayed(&base, &log);
    assert!(disk.entries(pgseal_power::Ino::ROOT).unwrap().is_empty());
}

#[test]
fn begin_makes_what_is_there_the_base_and_marks_stand_between_operations() {
    let at = tempfile::tempdir().unwrap();
    let Some(mounted) = mounted(at.path()) else { return };
    fs::write(at.path().join("before"), b"x").unwrap();
    mounted.recorder.begin();
    fs::write(at.path().join("after"), b"y").unwrap();
    mounted.recorder.mark(7);
    fs::write(at.path().join("late"), b"z").unwrap();
    let (base, log) = mounted.recorder.recorded();
    assert_eq!(base.entries(pgseal_power::Ino::ROOT).unwrap().len(), 1);
    let mark = log.ops().iter().position(|op| *op == Op::Mark(7)).unwrap();
    assert_eq!(log.marks(mark).count(), 0);
    assert_eq!(log.marks(mark + 1).collect::<Vec<_>>(), [7]);
    let before = log.ops()[..mark].iter().any(|op| matches!(op, Op::Write { .. }));
    let behind = log.ops()[mark..].iter().any(|op| matches!(op, Op::Write { .. }));
    assert!(before && behind);
}
