//! Where sealed bytes lie: [`Storage`], a trait of five methods, so that this crate works on a file
//! descriptor as well as on memory that simulates power cuts and failing disks; and
//! [`Accelerator`], methods that save reads and writes but are not required.

use std::io;

use crate::units::{SealedLen, SealedOff};

#[cfg(any(test, feature = "testing"))]
pub mod accelerated;
mod accelerator;
#[cfg(any(test, feature = "testing"))]
pub mod crash;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
#[cfg(any(test, feature = "testing"))]
pub mod lying;
#[cfg(any(test, feature = "testing"))]
pub mod mem;

pub use accelerator::{Accelerator, GroupName, Held, HeldEntry};

/// Whether a file has nothing but zeros.
///
/// # Errors
/// When it cannot be read.
pub fn is_zeros<S: Storage + ?Sized>(storage: &S) -> io::Result<bool> {
    let mut bytes = [0; 16 * 1024];
    let mut off = 0;
    loop {
        let got = storage.read_at(&mut bytes, SealedOff(off))?;
        match bytes.get(..got) {
            Some([]) | None => return Ok(true),
            Some(read) if read.iter().all(|byte| *byte == 0) => off += got as u64,
            Some(_) => return Ok(false),
        }
    }
}

/// A random-access file of sealed bytes.
///
/// Methods take `&self`: several sealed files may share one storage, as several processes share
/// one file.
// `len` asks the kernel and can fail: an `is_empty` beside it would only hide that.
#[allow(clippy::len_without_is_empty)]
pub trait Storage {
    /// Reads until `buf` is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], sealed_off: SealedOff) -> io::Result<usize>;

    /// Writes all of `buf`, lengthening the file if need be; after an error any part of it may
    /// have been written.
    fn write_at(&self, buf: &[u8], sealed_off: SealedOff) -> io::Result<()>;

    /// The length of the file.
    fn len(&self) -> io::Result<SealedLen>;

    /// Cuts the file, or lengthens it with a hole of zeros.
    fn set_len(&self, sealed_len: SealedLen) -> io::Result<()>;

    /// Makes everything written so far survive a power cut.
    fn sync(&self) -> io::Result<()>;
}
