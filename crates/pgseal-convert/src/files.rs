//! Reading and replacing small files, and the paths of unfinished new files.

use std::path::{Path, PathBuf};

use pgseal_core::SealedOff;
use pgseal_core::storage::Storage;

use crate::NEW_SUFFIX;
use crate::control::Control;
use crate::error::ConvertError;
use crate::media::Media;

/// The most bytes of a small file that are read.
const MAX_SMALL_LEN: usize = 1 << 16;

/// All bytes of a small file.
pub(crate) fn read_whole<M: Media>(media: &M, path: &Path) -> Result<Vec<u8>, ConvertError> {
    let failed = |error| ConvertError::io(path, "read the file")(error);
    let file = media.open(path).map_err(failed)?;
    let mut bytes = vec![0; MAX_SMALL_LEN];
    let got = file.read_at(&mut bytes, SealedOff(0)).map_err(failed)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Writes a small file, replacing an old one atomically.
pub(crate) fn write_whole<M: Media>(
    media: &M,
    path: &Path,
    bytes: &[u8],
    like: &Path,
    control: &Control,
) -> Result<(), ConvertError> {
    let new = with_suffix(path);
    control.step()?;
    media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    let file = media.create(&new, like).map_err(ConvertError::io(&new, "make the file"))?;
    control.step()?;
    file.write_at(bytes, SealedOff(0)).map_err(ConvertError::io(&new, "write the file"))?;
    file.sync().map_err(ConvertError::io(&new, "sync the file"))?;
    control.step()?;
    media.rename(&new, path).map_err(ConvertError::io(path, "put the new file in place"))?;
    control.step()?;
    sync_dir(media, parent(path))
}

/// The path of the unfinished new file that will replace the file at `path`.
pub(crate) fn with_suffix(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(NEW_SUFFIX);
    PathBuf::from(name)
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

pub(crate) fn sync_dir<M: Media>(media: &M, dir: &Path) -> Result<(), ConvertError> {
    media.sync_dir(dir).map_err(ConvertError::io(dir, "sync the directory"))
}
