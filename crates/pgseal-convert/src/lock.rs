//! The server's lock file `postmaster.pid`, made for the process of the conversion. No server
//! starts while the file exists and its process lives. The lock is needed until the barrier is
//! raised.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_core::SealedOff;
use pgseal_core::storage::Storage;

use crate::control::Control;
use crate::error::ConvertError;
use crate::files::{sync_dir, with_suffix};
use crate::media::Media;

/// The path of the lock file.
#[must_use]
pub fn path(root: &Path) -> PathBuf {
    root.join("postmaster.pid")
}

/// Takes the lock for the process `pid`. Returns `false` if another process has it.
///
/// A power cut leaves the whole lock file or none. An empty one would be bad: neither a server nor
/// this function goes on beside an empty lock file, since it may be that of a starting server.
///
/// # Errors
/// Errors of the file system; [`ConvertError::Stopped`].
pub fn take<M: Media>(
    media: &M,
    root: &Path,
    pid: u32,
    control: &Control,
) -> Result<bool, ConvertError> {
    let path = path(root);
    let failed = |error| ConvertError::io(&path, "make the server's lock file")(error);
    // The first two lines of a `postmaster.pid`: process and directory.
    let text = format!("{pid}\n{}\n", root.display());
    let new = with_suffix(&path);
    control.step()?;
    media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    // The lock file gets the mode and owner of PG_VERSION, or of the directory if PG_VERSION is
    // missing.
    let version = root.join("PG_VERSION");
    let like = if media.exists(&version).map_err(failed)? { &version } else { root };
    let file = media.create(&new, like).map_err(failed)?;
    control.step()?;
    file.write_at(text.as_bytes(), SealedOff(0)).map_err(failed)?;
    file.sync().map_err(failed)?;
    control.step()?;
    // A link, unlike a rename, fails if the name is taken.
    let linked = match media.link(&new, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        other => other.map(|()| true).map_err(failed),
    };
    media.remove(&new).map_err(ConvertError::io(&new, "remove the other name of the lock file"))?;
    if matches!(linked, Ok(true)) {
        control.step()?;
        sync_dir(media, root)?;
    }
    linked
}

/// Releases the lock.
///
/// # Errors
/// Errors of the file system. A lock file that stays names a process that has ended; servers ignore
/// such a file.
pub fn release<M: Media>(media: &M, root: &Path) -> Result<(), ConvertError> {
    let path = path(root);
    media.remove(&path).map_err(ConvertError::io(&path, "remove the server's lock file"))?;
    sync_dir(media, root)
}
