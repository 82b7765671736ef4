//! The operations of a file system that a conversion needs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::{SealedLen, SealedOff};
use rustix::fs::OFlags;

/// A file system. A power cut may lose the bytes of a file until [`Storage::sync`], and a change of
/// a name until [`Media::sync_dir`].
pub trait Media: Sync {
    /// An open file. Its offsets and lengths are positions in the file on disk, sealed or not.
    type File: Accelerator;

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Errors of the file system.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Makes a new file, never over another one, with the mode and owner of the file at `like`.
    ///
    /// # Errors
    /// Errors of the file system; [`io::ErrorKind::AlreadyExists`].
    fn create(&self, path: &Path, like: &Path) -> io::Result<Self::File>;

    /// Renames a file within the same file system, replacing a file with that name.
    ///
    /// # Errors
    /// Errors of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name in the same file system. Fails if the name is taken.
    ///
    /// # Errors
    /// Errors of the file system; [`io::ErrorKind::AlreadyExists`].
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. If there is none, this succeeds.
    ///
    /// # Errors
    /// Errors of the file system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes new, changed and removed names in a directory survive a power cut.
    ///
    /// # Errors
    /// Errors of the file system.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether a file exists at `path`.
    ///
    /// # Errors
    /// Errors of the file system.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// A file of the real file system.
#[derive(Debug)]
pub struct DiskFile(File);

impl Media for Disk {
    type File = DiskFile;

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        // Nonblocking, because a FIFO in the place of a file must not make the program wait.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // Only a hint: a failure does not matter.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(DiskFile(file))
    }

    fn create(&self, path: &Path, like: &Path) -> io::Result<DiskFile> {
        let model = fs::metadata(like)?;
        let flags = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (model.uid(), model.gid()) {
            std::os::unix::fs::fchown(&file, Some(model.uid()), Some(model.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(model.mode() & 0o7777))?;
        Ok(DiskFile(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }
}

impl Storage for DiskFile {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        let mut got = 0;
        while let Some(rest) = buf.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, off.0 + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.0.write_all_at(buf, off.0)
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.0.metadata()?.len()))
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.0.set_len(len.0)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl Accelerator for DiskFile {}
