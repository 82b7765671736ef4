//! A sealed file on disk, for reading only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::{SealedLen, SealedOff};

/// An open file.
pub struct ReadOnly {
    file: File,
    is_live: bool,
}

impl ReadOnly {
    /// Opens a regular file; no other kind of file is opened.
    /// `is_live`: a server may be writing the file, so wait before a block is read again.
    pub fn open(path: &Path, is_live: bool) -> io::Result<ReadOnly> {
        Ok(ReadOnly { file: pgseal_keys::open_regular(path)?, is_live })
    }

    /// Reads the bytes on disk at an offset; fewer than `buf` holds only at the end of the file.
    pub fn raw(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let mut got = 0;
        while let Some(rest) = buf.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, off + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }
}

impl Storage for ReadOnly {
    fn read_at(&self, buf: &mut [u8], sealed_off: SealedOff) -> io::Result<usize> {
        self.raw(buf, sealed_off.0)
    }

    fn write_at(&self, _: &[u8], _: SealedOff) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.file.metadata()?.len()))
    }

    fn set_len(&self, _: SealedLen) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Accelerator for ReadOnly {
    fn pause(&self, attempt: u32) {
        if self.is_live {
            thread::sleep(Duration::from_millis(u64::from(attempt)));
        }
    }
}
