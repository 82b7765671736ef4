//! The server's own lock file, taken in our name: no server starts as long as it is there and its
//! process lives. It is needed until the barrier is up.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_core::SealedOff;
use pgseal_core::storage::Storage;

use crate::control::Control;
use crate::error::ConvertError;
use crate::journal::{sync_dir, with_suffix};
use crate::media::Media;

/// Where it lies.
#[must_use]
pub fn path(root: &Path) -> PathBuf {
    root.join("postmaster.pid")
}

/// Takes the lock for the process `pid`. `false`: somebody else has it.
///
/// A power cut leaves the whole file or none: a server refuses to start beside an empty one, and so
/// do we, because it might be that of a server that starts just now.
///
/// # Errors
/// Those of the file system; [`ConvertError::Stopped`].
pub fn take<M: Media>(
    media: &M,
    root: &Path,
    pid: u32,
    control: &Control,
) -> Result<bool, ConvertError> {
    let path = path(root);
    let failed = |error| ConvertError::io(&path, "make the server's lock file")(error);
    // The first two lines of the server's own form: process and directory.
    let text = format!("{pid}\n{}\n", root.display());
    let new = with_suffix(&path);
    control.step()?;
    media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    // Mode and owner of the server's files; without one, those of the directory will do.
    let version = root.join("PG_VERSION");
    let like = if media.exists(&version).map_err(failed)? { &version } else { root };
    let file = media.create(&new, like).map_err(failed)?;
    control.step()?;
    file.write_at(text.as_bytes(), SealedOff(0)).map_err(failed)?;
    file.sync().map_err(failed)?;
    control.step()?;
    // A link, unlike a rename, fails when the name is taken.
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

/// Gives it up.
///
/// # Errors
/// Those of the file system. A lock that stays names a process that is gone, which servers see.
pub fn release<M: Media>(media: &M, root: &Path) -> Result<(), ConvertError> {
    let path = path(root);
    media.remove(&path).map_err(ConvertError::io(&path, "remove the server's lock file"))?;
    sync_dir(media, root)
}
