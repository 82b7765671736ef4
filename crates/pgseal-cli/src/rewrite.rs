//! Replaces small configuration files of the administrator.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::error::CliError;

/// Replaces the file, so that after a power cut there is the old or the new one. A file that cannot
/// be replaced (a bind mount, or in a directory of another user) is written in place.
///
/// # Errors
/// When the file cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<(), CliError> {
    // Resolve links: the target is replaced, and the link stays.
    let path = path.canonicalize().map_err(CliError::io(path, "find the configuration"))?;
    match replace_entry(&path, text) {
        Err(error) if is_not_replaceable(&error) => {}
        other => return other.map_err(CliError::io(&path, "write the configuration anew")),
    }
    // Not truncated first: on a full disk, most of the old text survives.
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    });
    written.map_err(CliError::io(&path, "write the configuration"))
}

/// Asks the kernel whether this process may write: to a file, or into a directory.
///
/// # Errors
/// What writing would end with: the right is missing, the file system is read-only, the file is
/// immutable.
pub fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Whether this error of [`may_write`] is about a file that nobody may change (`chattr +i`).
pub fn is_immutable(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PERM)
}

/// Whether [`replace`] could write this file.
///
/// # Errors
/// Why it could not.
pub fn expect_replaceable(path: &Path) -> Result<(), CliError> {
    let real = path.canonicalize().map_err(CliError::io(path, "find the configuration"))?;
    match may_write(real.parent().unwrap_or(Path::new("/"))) {
        Ok(()) => Ok(()),
        Err(_) => may_write(&real).map_err(CliError::io(path, "write the configuration")),
    }
}

/// Whether the error is about the directory entry only. On a full or failing disk, writing in place
/// would destroy the old text, too.
fn is_not_replaceable(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::BUSY, Errno::XDEV, Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&errno)
    })
}

fn replace_entry(path: &Path, text: &str) -> io::Result<()> {
    let old = fs::metadata(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".pgseal-new");
    let new = Path::new(&name);
    let _ = fs::remove_file(new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    let written = (|| {
        let new_meta = file.metadata()?;
        if (new_meta.uid(), new_meta.gid()) != (old.uid(), old.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(new);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_failing_disk_is_no_reason_to_write_in_place() {
        let says = |number: i32| is_not_replaceable(&io::Error::from_raw_os_error(number));
        // EPERM, EACCES, EBUSY, EXDEV, EROFS; EIO, ENOSPC, EDQUOT.
        assert_eq!([1, 13, 16, 18, 30].map(says), [true; 5]);
        assert_eq!([5, 28, 122].map(says), [false; 3]);
        assert!(!is_not_replaceable(&io::Error::other("x")));
    }
}
