//! Small files of JSON that pgseal itself keeps.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Writes a file with this mode, so that there is the old or the new one. If another user owns the
/// directory, the file becomes that user's.
///
/// # Errors
/// When the file cannot be written.
pub fn write<T: Serialize>(path: &Path, mode: u32, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    text.push(b'\n');
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new.{}", std::process::id()));
    let new = PathBuf::from(new);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        // The umask may have removed permissions.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        let owner = fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
        if owner.uid() != rustix::process::geteuid().as_raw() {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&new);
    }
    written
}
