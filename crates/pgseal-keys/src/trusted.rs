//! Small files outside of every data directory that say what pgseal trusts: only root and the
//! current user may be able to write them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use data_encoding::HEXLOWER;

use crate::error::KeyError;
use crate::files::{Links, expect_private, open_regular_as, sync_dir};
use crate::wrap;

/// The longest file, in bytes.
pub(crate) const MAX_LEN: usize = 8192;

/// Such a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrustedFile<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Why nobody else may write it.
    pub why: &'static str,
    /// Where such files belong.
    pub place: &'static str,
}

impl TrustedFile<'_> {
    /// The text of the file; `None` if it does not exist.
    ///
    /// # Errors
    /// [`KeyError::Insecure`] if a user other than root and the current one can write the file or a
    /// directory above it, if it is a link or no regular file, or if it lies in `datadir`;
    /// [`KeyError::Io`]; `too_long` if it has more than [`MAX_LEN`] bytes.
    pub(crate) fn read(
        self,
        datadir: Option<&Path>,
        too_long: impl FnOnce(&Path, String) -> KeyError,
    ) -> Result<Option<String>, KeyError> {
        let path = self.path;
        let Some(file) = self.open(datadir)? else { return Ok(None) };
        let mut text = String::new();
        let limit = u64::try_from(MAX_LEN + 1).unwrap_or(u64::MAX);
        file.take(limit)
            .read_to_string(&mut text)
            .map_err(|error| KeyError::io(path, "read the file", error))?;
        match text.len() > MAX_LEN {
            true => Err(too_long(path, format!("it is longer than {MAX_LEN} bytes"))),
            false => Ok(Some(text)),
        }
    }

    /// Opens the file for reading; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`TrustedFile::read`], but for `too_long`.
    pub(crate) fn open(self, datadir: Option<&Path>) -> Result<Option<File>, KeyError> {
        let path = self.path;
        let dir = match self.dir().canonicalize() {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(KeyError::io(self.dir(), "look for the directory", error)),
        };
        let file = match open_regular_as(&dir.join(self.name()), Links::Refused) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(self.insecure(
                    "it is not a regular file, or a link",
                    "replace it by a regular file".to_owned(),
                ));
            }
            Err(error) => return Err(KeyError::io(path, "open the file", error)),
        };
        if let Some(datadir) = datadir.and_then(|datadir| datadir.canonicalize().ok())
            && dir.starts_with(&datadir)
        {
            return Err(self.insecure(
                "it lies in the data directory, whose writer could write it",
                format!("keep such files in {}", self.place),
            ));
        }
        let meta = file.metadata().map_err(|error| KeyError::io(path, "stat the file", error))?;
        expect_private(path, &meta, self.why)?;
        for above in dir.ancestors() {
            let meta = fs::metadata(above)
                .map_err(|error| KeyError::io(above, "stat the directory", error))?;
            expect_private(above, &meta, self.why)?;
        }
        Ok(Some(file))
    }

    /// Writes the file anew, with this mode; makes its directory. If root writes it, it gets this
    /// group.
    ///
    /// # Errors
    /// [`KeyError::Io`]; the old file then has not changed.
    pub(crate) fn write(self, text: &str, mode: u32, group: Option<u32>) -> Result<(), KeyError> {
        let (path, dir) = (self.path, self.dir());
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(|error| KeyError::io(dir, "make the directory", error))?;
        let mut random = [0; 8];
        wrap::random(&mut random)?;
        let name = self.name().to_string_lossy();
        let new = dir.join(format!(".{name}.{}", HEXLOWER.encode(&random)));
        let written = (|| {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            if let Some(group) = group.filter(|_| rustix::process::geteuid().is_root()) {
                fchown(&file, None, Some(group))?;
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            fs::rename(&new, path)
        })();
        if written.is_err() {
            // This fails if the file was not even created, which is fine.
            let _ = fs::remove_file(&new);
        }
        written.map_err(|error| KeyError::io(path, "write the file", error))?;
        sync_dir(dir)
    }

    fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        }
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn insecure(&self, what: &str, remedy: String) -> KeyError {
        KeyError::Insecure { path: self.path.to_owned(), what: what.to_owned(), remedy }
    }
}
