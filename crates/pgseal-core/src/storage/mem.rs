//! Storage in memory.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Accelerator, Storage};
use crate::units::{SealedLen, SealedOff};

/// A file in memory.
#[derive(Debug, Default)]
pub struct MemStorage(Mutex<Vec<u8>>);

impl MemStorage {
    /// A file with these sealed bytes.
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> MemStorage {
        MemStorage(Mutex::new(bytes))
    }

    /// The sealed bytes, to look at and to damage.
    pub fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn read_from(bytes: &[u8], buf: &mut [u8], off: SealedOff) -> usize {
    let start = usize::try_from(off.0).unwrap_or(usize::MAX).min(bytes.len());
    let got = buf.len().min(bytes.len() - start);
    buf[..got].copy_from_slice(&bytes[start..start + got]);
    got
}

pub(crate) fn write_to(bytes: &mut Vec<u8>, buf: &[u8], off: SealedOff) -> io::Result<()> {
    let start = usize::try_from(off.0).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let end = start + buf.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(buf);
    Ok(())
}

impl Storage for MemStorage {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        Ok(read_from(&self.bytes(), buf, off))
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        write_to(&mut self.bytes(), buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.bytes().len() as u64))
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.bytes().resize(usize::try_from(len.0).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Accelerator for MemStorage {}
