//! Replaces files atomically, keeps the old ones, and never gives a file wider permissions than
//! asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::TlsError;

/// Permissions of a private key.
pub const KEY_MODE: u32 = 0o600;
/// Permissions of a certificate.
pub const CERTIFICATE_MODE: u32 = 0o644;

/// The user and group that files are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Owner {
    /// The owner of a file or directory.
    ///
    /// # Errors
    /// [`TlsError::Io`].
    pub fn of(path: &Path) -> Result<Owner, TlsError> {
        let meta = fs::metadata(path).map_err(TlsError::io(path, "look at it"))?;
        Ok(Owner { uid: meta.uid(), gid: meta.gid() })
    }
}

/// The result of writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The path of the file, with links resolved.
    pub path: PathBuf,
    /// The path of the copy of the old file, if there was one.
    pub backup: Option<PathBuf>,
    /// Whether the file had this content already.
    pub unchanged: bool,
}

/// `NAME.LABEL`; for keys and certificates `NAME.LABEL.key` and `NAME.LABEL.crt`, because in a
/// sealed data directory the suffix decides about the class of the file.
fn labelled(path: &Path, label: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let split = name.rsplit_once('.').filter(|(_, end)| ["key", "crt"].contains(end));
    path.with_file_name(match split {
        Some((stem, end)) => format!("{stem}.{label}.{end}"),
        None => format!("{name}.{label}"),
    })
}

/// An unused name beside `path`, for a copy of the file at `path`.
pub fn backup_name(path: &Path) -> PathBuf {
    let mut candidate = labelled(path, "before-pgseal-tls");
    let mut number = 0u32;
    while candidate.exists() {
        number += 1;
        candidate = labelled(path, &format!("before-pgseal-tls.{number}"));
    }
    candidate
}

/// The file that `path` leads to. A link to another file in the same directory is followed. A link
/// that leads out of the directory is refused, because an attacker who can write to the directory
/// could make one. Anything but a regular file is refused as well.
fn resolve(path: &Path) -> Result<PathBuf, TlsError> {
    let refused = |why| Err(TlsError::io(path, "replace it")(Error::other(why)));
    let Ok(real) = path.canonicalize() else {
        if path.is_symlink() {
            return refused("it is a link that leads nowhere; remove it");
        }
        return Ok(path.to_owned());
    };
    if !real.is_file() {
        return refused("it is not a regular file; remove it");
    }
    let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
    if path.is_symlink() && real.parent() != dir.as_deref() {
        return refused("it is a link that leads out of its directory; put the file in its place");
    }
    Ok(real)
}

/// Writes `bytes` to the file at `path`. If there is an old file, a copy of it is kept beside it,
/// with its owner and permissions.
///
/// # Errors
/// [`TlsError::Io`]; the old file is then still there.
pub fn replace(path: &Path, bytes: &[u8], mode: u32, owner: Owner) -> Result<Written, TlsError> {
    let path = resolve(path)?;
    let old = match fs::read(&path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(TlsError::io(&path, "read it")(error)),
    };
    let mut written = Written { path: path.clone(), backup: None, unchanged: false };
    if let Some(old) = old {
        let meta = fs::metadata(&path).map_err(TlsError::io(&path, "look at it"))?;
        let now = meta.mode() & 0o777;
        if old == bytes {
            written.unchanged = now & !mode == 0;
            if !written.unchanged {
                fs::set_permissions(&path, fs::Permissions::from_mode(now & mode))
                    .map_err(TlsError::io(&path, "change its rights"))?;
            }
            return Ok(written);
        }
        let backup = backup_name(&path);
        let whose = Owner { uid: meta.uid(), gid: meta.gid() };
        // The copy of a key has no wider permissions than a key.
        let kept = if mode == KEY_MODE { now & KEY_MODE } else { now };
        create(&backup, &old, kept, whose)?;
        written.backup = Some(backup);
    }
    let temporary = labelled(&path, &format!("new-{}", std::process::id()));
    let result = create(&temporary, bytes, mode, owner)
        .and_then(|()| fs::rename(&temporary, &path).map_err(TlsError::io(&path, "replace it")));
    if result.is_err() {
        // This fails if the file was not even created, which is fine.
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_directory(&path)?;
    Ok(written)
}

/// Creates a file. The file and its name are synced when this returns.
fn create(path: &Path, bytes: &[u8], mode: u32, owner: Owner) -> Result<(), TlsError> {
    let failed = || TlsError::io(path, "write it");
    // No other user can open the file, not even for a moment.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(KEY_MODE)
        .open(path)
        .map_err(TlsError::io(path, "create it"))?;
    file.write_all(bytes).map_err(failed())?;
    let meta = file.metadata().map_err(failed())?;
    if (meta.uid(), meta.gid()) != (owner.uid, owner.gid) {
        fchown(&file, Some(owner.uid), Some(owner.gid))
            .map_err(TlsError::io(path, "give it to the data directory's owner"))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed())?;
    file.sync_all().map_err(failed())?;
    sync_directory(path)
}

fn sync_directory(path: &Path) -> Result<(), TlsError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(TlsError::io(directory, "flush the directory"))
}

/// Creates a directory that only its owner can enter. An existing directory is not changed.
///
/// # Errors
/// [`TlsError::Io`].
pub fn private_directory(path: &Path, owner: Owner) -> Result<(), TlsError> {
    match fs::DirBuilder::new().create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        Err(error) => return Err(TlsError::io(path, "create the directory")(error)),
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .and_then(|()| std::os::unix::fs::chown(path, Some(owner.uid), Some(owner.gid)))
        .map_err(TlsError::io(path, "give the directory to the data directory's owner"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn old_files_are_kept_and_keys_stay_private() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let key = dir.path().join("server.key");
        let first = replace(&key, b"one", KEY_MODE, owner).unwrap();
        assert_eq!((first.backup, first.unchanged, mode(&key)), (None, false, 0o600));
        let again = replace(&key, b"one", KEY_MODE, owner).unwrap();
        assert!(again.unchanged && again.backup.is_none());
        let second = replace(&key, b"two", KEY_MODE, owner).unwrap().backup.unwrap();
        let third = replace(&key, b"three", KEY_MODE, owner).unwrap().backup.unwrap();
        assert_eq!(fs::read(&second).unwrap(), b"one");
        assert_eq!(fs::read(&third).unwrap(), b"two");
        assert_eq!((mode(&second), mode(&third)), (0o600, 0o600));
        assert_eq!(fs::read(&key).unwrap(), b"three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn permissions_that_are_too_wide_are_narrowed_even_if_the_content_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let key = dir.path().join("k");
        fs::write(&key, b"one").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let again = replace(&key, b"one", KEY_MODE, owner).unwrap();
        assert!(!again.unchanged && again.backup.is_none());
        assert_eq!(mode(&key), 0o600);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let backup = replace(&key, b"two", KEY_MODE, owner).unwrap().backup.unwrap();
        assert_eq!((mode(&key), mode(&backup)), (0o600, 0o600));
    }

    #[test]
    fn the_target_of_a_link_is_replaced_and_the_link_stays() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, b"one").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace(&link, b"two", KEY_MODE, owner).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"two");
        // A link that leads out of the directory is not followed, and a device is not read.
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().join("file");
        fs::write(&victim, "mine").unwrap();
        for target in [victim.as_path(), Path::new("/dev/zero"), Path::new("/no/such/file")] {
            let link = dir.path().join("out.key");
            std::os::unix::fs::symlink(target, &link).unwrap();
            let error = replace(&link, b"two", KEY_MODE, owner).unwrap_err();
            assert!(error.to_string().contains("out.key"), "{error}");
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let error = replace(&dir.path().join("no/key"), b"x", KEY_MODE, owner).unwrap_err();
        assert!(error.to_string().contains("no/key"), "{error}");
    }
}
