//! Storing and loading the keyring file.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use pgseal_core::Suite;
use pgseal_keys::{Kek, KeyError, Keyring, keyring_path, update};

fn kek() -> Kek {
    Kek::from_text("ab".repeat(32).as_bytes(), "test").unwrap()
}

fn new_ring() -> Keyring {
    Keyring::create(Suite::Aes256Gcm, "env:PGSEAL_KEY", &kek()).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// If the group may read the data directory, its members may read the keyring: they make backups.
#[test]
fn the_group_can_read_the_keyring_if_it_can_read_the_data_directory() {
    let data = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o750)).unwrap();
    let path = keyring_path(data.path());
    new_ring().store_new(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o640, 0o750));
    new_ring().store_atomically(&path).unwrap();
    assert_eq!(mode(&path), 0o640);
}

#[test]
fn stored_private_and_loaded_again() {
    let data = tempfile::tempdir().unwrap();
    let path = keyring_path(data.path());
    assert!(path.ends_with("pgseal/keyring"));
    assert_eq!(Keyring::load(&path).unwrap_err().exit_code(), 16);
    let ring = new_ring();
    ring.store_new(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    assert_eq!(names(path.parent().unwrap()), ["keyring"]);
    let loaded = Keyring::load(&path).unwrap();
    assert_eq!((loaded.id(), loaded.path()), (ring.id(), path.as_path()));
    loaded.unlock(&kek()).unwrap();
}

#[test]
fn an_existing_keyring_is_never_overwritten_by_a_new_one() {
    let data = tempfile::tempdir().unwrap();
    let path = keyring_path(data.path());
    let first = new_ring();
    first.store_new(&path).unwrap();
    let err = new_ring().store_new(&path).unwrap_err();
    assert!(matches!(err, KeyError::KeyringExists { .. }), "{err}");
    assert_eq!(err.exit_code(), 5);
    assert_eq!(fs::read(&path).unwrap(), first.to_bytes());
    assert_eq!(names(path.parent().unwrap()), ["keyring"]);
}

#[test]
fn a_failed_rename_leaves_everything_as_it_was() {
    let data = tempfile::tempdir().unwrap();
    let path = keyring_path(data.path());
    // A directory in the place of the keyring: the new file is written, the rename fails.
    fs::create_dir_all(path.join("inside")).unwrap();
    let err = new_ring().store_atomically(&path).unwrap_err();
    assert_eq!(err.exit_code(), 40, "{err}");
    assert_eq!(names(path.parent().unwrap()), ["keyring"]);
    assert_eq!(names(&path), ["inside"]);
    assert_eq!(Keyring::load(&path).unwrap_err().exit_code(), 14);
}

#[test]
fn a_keyring_in_no_directory_is_an_error() {
    let data = tempfile::tempdir().unwrap();
    let err = new_ring().store_atomically(&keyring_path(&data.path().join("none"))).unwrap_err();
    assert_eq!(err.exit_code(), 40, "{err}");
    assert!(names(data.path()).is_empty());
}

#[test]
fn a_failed_update_changes_nothing_and_a_successful_one_is_stored() {
    let data = tempfile::tempdir().unwrap();
    let path = keyring_path(data.path());
    assert_eq!(update(&path, |_| Ok(())).unwrap_err().exit_code(), 16);
    new_ring().store_new(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let wrong = Kek::from_text("cd".repeat(32).as_bytes(), "test").unwrap();
    assert_eq!(update(&path, |ring| ring.add_generation(&wrong)).unwrap_err().exit_code(), 11);
    assert_eq!(fs::read(&path).unwrap(), before);
    update(&path, |ring| ring.rotate_kek(&kek(), &wrong, "env:OTHER")).unwrap();
    Keyring::load(&path).unwrap().unlock(&wrong).unwrap();
}

#[test]
fn updates_at_the_same_time_are_not_lost() {
    let data = tempfile::tempdir().unwrap();
    let path = keyring_path(data.path());
    new_ring().store_new(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| update(&path, |ring| ring.add_generation(&kek())).unwrap());
        }
    });
    let summary = Keyring::load(&path).unwrap().summary();
    assert_eq!((summary.generations.len(), summary.active_generation), (9, 9));
}

#[test]
fn a_fifo_or_an_overlong_file_is_reported_as_damage() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("keyring");
    let fifo = data.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(Keyring::load(&fifo).unwrap_err().exit_code(), 14);
    fs::write(&path, vec![b'x'; (1 << 20) + 10]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(Keyring::load(&path).unwrap_err().to_string().contains("1 MiB"));
    fs::write(&path, b"").unwrap();
    assert!(Keyring::load(&path).unwrap_err().to_string().contains("empty"));
}
