//! Writing files that others rely on: whole or not at all, the old one kept, no wider rights than
//! asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::TlsError;

/// Rights of a private key.
pub const KEY_MODE: u32 = 0o600;
/// Rights of a certificate.
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
    /// Those of a file or directory.
    ///
    /// # Errors
    /// [`TlsError::Io`].
    pub fn of(path: &Path) -> Result<Owner, TlsError> {
        let meta = fs::metadata(path).map_err(TlsError::io(path, "look at it"))?;
        Ok(Owner { uid: meta.uid(), gid: meta.gid() })
    }
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its path, links resolved.
    pub path: PathBuf,
    /// Where the one before is.
    pub backup: Option<PathBuf>,
    /// Whether it was there already with this very content.
    pub unchanged: bool,
}

/// `NAME.LABEL`; of keys and certificates `NAME.LABEL.key`, `NAME.LABEL.crt`: in a sealed data
/// directory their class goes by the ending.
fn labelled(path: &Path, label: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let split = name.rsplit_once('.').filter(|(_, end)| ["key", "crt"].contains(end));
    path.with_file_name(match split {
        Some((stem, end)) => format!("{stem}.{label}.{end}"),
        None => format!("{name}.{label}"),
    })
}

/// A name beside `path` that is free, for keeping what is there.
pub fn backup_name(path: &Path) -> PathBuf {
    let mut candidate = labelled(path, "before-pgseal-tls");
    let mut number = 0u32;
    while candidate.exists() {
        number += 1;
        candidate = labelled(path, &format!("before-pgseal-tls.{number}"));
    }
    candidate
}

/// Where the file at `path` really is: a link may lead to a file beside it. Whoever writes the directory
/// makes links in it, so that one that leads elsewhere is not followed, and nothing but a file is read.
fn real_place(path: &Path) -> Result<PathBuf, TlsError> {
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

/// Makes `path` hold `bytes`. What is there is kept beside it, with its own rights.
///
/// # Errors
/// [`TlsError::Io`]; then the old file is still there.
pub fn replace(path: &Path, bytes: &[u8], mode: u32, owner: Owner) -> Result<Written, TlsError> {
    let path = real_place(path)?;
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
        // The copy of a key is no wider open than a key.
        let kept = if mode == KEY_MODE { now & KEY_MODE } else { now };
        create(&backup, &old, kept, whose)?;
        written.backup = Some(backup);
    }
    let temporary = labelled(&path, &format!("new-{}", std::process::id()));
    let result = create(&temporary, bytes, mode, owner)
        .and_then(|()| fs::rename(&temporary, &path).map_err(TlsError::io(&path, "replace it")));
    if result.is_err() {
        // It may not be there; either way it is not wanted.
        let _ = fs::remove_file(&temporary);
    }
    result?;
    sync_directory(&path)?;
    Ok(written)
}

/// A new file, on disk when this returns.
fn create(path: &Path, bytes: &[u8], mode: u32, owner: Owner) -> Result<(), TlsError> {
    let failed = || TlsError::io(path, "write it");
    // Closed to all others from the first moment.
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

/// A directory that only its owner can enter. One that is there is left as it is.
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
    fn nothing_is_lost_and_keys_stay_private() {
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
    fn rights_that_are_too_wide_are_narrowed_though_the_content_is_right() {
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
        // One that leads elsewhere is not followed, and a device is not read.
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
    fn what_cannot_be_written_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::of(dir.path()).unwrap();
        let error = replace(&dir.path().join("no/key"), b"x", KEY_MODE, owner).unwrap_err();
        assert!(error.to_string().contains("no/key"), "{error}");
    }
}
