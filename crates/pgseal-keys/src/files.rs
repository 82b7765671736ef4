//! What this crate needs of the file system: opening only regular files, trusting only private
//! ones, and syncing directories.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::KeyError;

/// What happens if the last component of a path is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// The link is followed.
    Followed,
    /// Opening fails, as for every file that is not a regular one.
    Refused,
}

/// Opens a regular file for reading, and never opens anything else: opening a FIFO would make the
/// program wait, and opening a device may have an effect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a regular file; those of the file system.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_as(path, Links::Followed)
}

pub(crate) fn open_regular_as(path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::PATH;
    if links == Links::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    // O_PATH refers to the file without opening it. It is opened through this handle after the
    // check, so nobody can exchange it in between.
    let named = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = named.metadata()?.file_type();
    if !kind.is_file() {
        let what = format!("it is {}, not a regular file", kind_in_words(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    File::open(format!("/proc/self/fd/{}", named.as_raw_fd())).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("/proc is not mounted"),
        _ => error,
    })
}

/// What a file that is not a regular one is.
fn kind_in_words(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), KeyError> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(|err| KeyError::io(dir, "sync the directory", err))
}

/// Refuses a file or directory that a user other than root and the current one owns or can write.
/// `why` ends the remedy: what the file is good for.
pub(crate) fn expect_private(path: &Path, meta: &Metadata, why: &str) -> Result<(), KeyError> {
    let me = rustix::process::geteuid().as_raw();
    match pgseal_plugin::distrusted(meta, me) {
        None => Ok(()),
        Some(distrust) => Err(KeyError::Insecure {
            path: path.to_owned(),
            what: distrust.what,
            remedy: format!("{}: {why}", distrust.remedy),
        }),
    }
}
