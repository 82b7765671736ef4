//! Reads pgseal's own small files, `DATADIR/pgseal/NAME`, and writes them so that a crash leaves
//! the old file or the new one.

use core::ffi::CStr;
use core::fmt::{self, Write};

use pgseal_core::broken::{self, Order};
use pgseal_core::random::Random;
use pgseal_keys::RecordError;

use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::real::{self, Errno};
use crate::os::sys::{self, PathText};
use crate::place::datadir::{self, Root};

/// Why a file of pgseal's own cannot be used.
pub enum Unusable {
    /// There is none.
    Gone,
    /// It cannot be read.
    Errno(Errno),
    /// It does not open.
    Record(RecordError),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Gone => f.write_str("it is gone"),
            Unusable::Errno(errno) => write!(f, "it cannot be read (errno {errno})"),
            Unusable::Record(error) => error.fmt(f),
        }
    }
}

/// The bytes of the file at `rel` below a data directory, at most `limit`.
pub fn read(root: &Root, rel: &[u8], limit: usize) -> Result<Vec<u8>, Unusable> {
    let path = datadir::join(root.path(), rel).into_c().map_err(Unusable::Errno)?;
    sys::read_whole(&path, limit).map_err(|errno| match errno {
        libc::ENOENT => Unusable::Gone,
        errno => Unusable::Errno(errno),
    })
}

/// The directory of pgseal's files, opened.
pub fn directory(root: &Root) -> Result<sys::Fd, Errno> {
    let path = datadir::join(root.path(), b"pgseal").into_c()?;
    sys::open(&path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)
}

/// Replaces the file at `rel` below a data directory. The new file is on the disk when this
/// returns, and has the mode of the keyring: in a directory that its group may read, so may the
/// keyring and this file. Logs an error.
pub fn replace(root: &Root, rel: &[u8], bytes: &[u8]) -> Result<(), Errno> {
    let path = datadir::join(root.path(), rel);
    try_replace(root, &path, bytes).inspect_err(|errno| {
        log::line(format_args!(
            "ERROR: \"{}\" cannot be written (errno {errno}); make room, or give the server's user the right to write there",
            Shown(&path)
        ));
    })
}

fn try_replace(root: &Root, path: &PathText, bytes: &[u8]) -> Result<(), Errno> {
    let keyring = sys::c_path(&root.keyring_path()).ok().and_then(|path| sys::stat(&path));
    let mode = keyring.map_or(0o600, |st| st.st_mode & 0o777);
    let mut random = [0; 8];
    KernelRandom.fill(&mut random).map_err(|_| libc::EIO)?;
    let mut new = PathText::of(path);
    // Writing to a `PathText` cannot fail.
    let _ = write!(new, ".new.{:016x}", u64::from_le_bytes(random));
    let (path, new) = (sys::c_path(path)?, new.into_c()?);
    let written = write_new(&new, bytes, mode).and_then(|()| sys::rename(&new, &path));
    if let Err(errno) = written {
        // There may be no such file.
        let _ = sys::unlink(&new);
        return Err(errno);
    }
    sys::sync(directory(root)?.0)
}

fn write_new(path: &CStr, bytes: &[u8], mode: libc::mode_t) -> Result<(), Errno> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let fd = sys::open(path, flags, mode)?;
    // SAFETY: no pointers involved. The umask may have taken away even the owner's rights.
    if unsafe { libc::fchmod(fd.0, mode) } != 0 {
        return Err(real::errno());
    }
    sys::pwrite_all(fd.0, bytes, 0)?;
    if broken::is(Order::NewFileUnsynced) {
        return Ok(());
    }
    sys::sync(fd.0)
}
