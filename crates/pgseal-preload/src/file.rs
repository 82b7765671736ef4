//! An open sealed file as PostgreSQL sees it: plain offsets, a position, a size.

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_core::error::SealError;
use pgseal_core::storage::Storage;
use pgseal_core::{
    Generation, KeySet, Layout, OnDamage, Opened, PlainLen, PlainOff, Scratch, SealedFile, Suite,
    geometry,
};

use crate::datadir;
use crate::log::{self, Shown};
use crate::random::KernelRandom;
use crate::real;
use crate::storage::FdStorage;

/// How a file that is still empty will be sealed.
#[derive(Clone, Copy)]
pub struct Want {
    /// The data keys of its directory.
    pub keys: &'static KeySet,
    /// The cipher.
    pub suite: Suite,
    /// The layout.
    pub layout: Layout,
    /// The generation of the data key.
    pub generation: Generation,
}

enum State {
    Sealed(Box<SealedFile>),
    /// Nothing written yet, by anybody that we know of.
    Unborn(Want),
}

/// A sealed file behind one or more descriptors.
pub struct OpenFile {
    state: State,
    path: Box<[u8]>,
    /// The plain position of `read`, `write` and `lseek`.
    pos: u64,
    append: bool,
    writable: bool,
}

/// An error number, already logged where it deserves a line.
pub type Errno = c_int;

static SCRATCH: Mutex<Option<Scratch>> = Mutex::new(None);

/// The buffers of this process.
struct Buffers(MutexGuard<'static, Option<Scratch>>);

impl Buffers {
    fn get() -> Buffers {
        Buffers(SCRATCH.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.0.get_or_insert_with(|| {
            let mut scratch = Scratch::new();
            scratch.reserve();
            scratch
        })
    }
}

impl OpenFile {
    /// A file that was opened and has its header.
    pub fn sealed(file: Box<SealedFile>, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile { state: State::Sealed(file), path: path.into(), pos: 0, append, writable }
    }

    /// A file that is still empty.
    pub fn unborn(want: Want, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile { state: State::Unborn(want), path: path.into(), pos: 0, append, writable }
    }

    /// The layout, if the file has its header.
    pub fn layout(&self) -> Option<Layout> {
        match &self.state {
            State::Sealed(file) => Some(file.header().layout),
            State::Unborn(_) => None,
        }
    }

    /// The file, if it has its header by now.
    fn born(&mut self, fd: c_int) -> Result<Option<&mut SealedFile>, Errno> {
        if let State::Unborn(want) = self.state {
            let storage = FdStorage(fd);
            let opened = match storage.len() {
                Ok(len) if len.0 < geometry::HEADER_LEN => return Ok(None),
                Ok(_) => SealedFile::open(&storage, want.keys),
                Err(error) => Err(error.into()),
            };
            match opened.map_err(|error| self.failed(&error))? {
                Opened::Sealed(file) => self.state = State::Sealed(file),
                Opened::Unborn { .. } => return Ok(None),
                Opened::Plain => {
                    log::line(format_args!(
                        "ERROR: \"{}\" was empty and now holds plain bytes that pgseal did not write; it stays untouched",
                        Shown(&self.path)
                    ));
                    return Err(libc::EIO);
                }
            }
        }
        match &mut self.state {
            State::Sealed(file) => Ok(Some(file)),
            State::Unborn(_) => Ok(None),
        }
    }

    /// The file, after its header was written if it had none. Several processes may come here at
    /// once; the lock makes sure that there is one header.
    fn bear(&mut self, fd: c_int) -> Result<&mut SealedFile, Errno> {
        if let State::Unborn(want) = self.state {
            // SAFETY: no pointers involved.
            unsafe { libc::flock(fd, libc::LOCK_EX) };
            let result = self.bear_locked(fd, want);
            // SAFETY: no pointers involved.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
            result?;
        }
        match &mut self.state {
            State::Sealed(file) => Ok(file),
            State::Unborn(_) => Err(libc::EIO),
        }
    }

    fn bear_locked(&mut self, fd: c_int, want: Want) -> Result<(), Errno> {
        if self.born(fd)?.is_some() {
            return Ok(());
        }
        let storage = FdStorage(fd);
        // Whatever is there is the rest of a header that a crash tore off.
        storage.set_len(pgseal_core::SealedLen(0)).map_err(|error| errno_of(&error))?;
        let Want { keys, suite, layout, generation } = want;
        let file = SealedFile::create(&storage, suite, layout, keys, generation, &KernelRandom);
        match file {
            Ok(file) => {
                self.state = State::Sealed(Box::new(file));
                Ok(())
            }
            Err(error) => {
                let _ = storage.set_len(pgseal_core::SealedLen(0));
                Err(self.failed(&error))
            }
        }
    }

    /// `pread`.
    pub fn read_at(&mut self, fd: c_int, buf: &mut [u8], off: u64) -> Result<usize, Errno> {
        let mut buffers = Buffers::get();
        let Some(file) = self.born(fd)? else { return Ok(0) };
        // A page that fails is PostgreSQL's to judge; anything else is an error at once.
        let on_damage = match file.header().layout {
            Layout::Paged => OnDamage::InvalidPage,
            Layout::Stream | Layout::InPlace => OnDamage::Fail,
        };
        let outcome =
            file.read_at(&FdStorage(fd), buffers.scratch(), buf, PlainOff(off), on_damage);
        match outcome {
            Ok(outcome) => {
                if let Some(block) = outcome.first_damaged {
                    let count = outcome.damaged_blocks;
                    log::line(format_args!(
                        "ERROR: block {block} of \"{}\" does not authenticate ({count} in this read); it is handed on as an invalid page, restore it from a backup or a standby",
                        Shown(&self.path)
                    ));
                }
                Ok(outcome.len)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// `pwrite`.
    pub fn write_at(&mut self, fd: c_int, buf: &[u8], off: u64) -> Result<usize, Errno> {
        if !self.writable {
            return Err(libc::EBADF);
        }
        let mut buffers = Buffers::get();
        let file = self.bear(fd)?;
        let done =
            file.write_at(&FdStorage(fd), buffers.scratch(), buf, PlainOff(off), &KernelRandom);
        done.map_err(|error| self.failed(&error))?;
        Ok(buf.len())
    }

    /// `read`: at the position, which moves.
    pub fn read(&mut self, fd: c_int, buf: &mut [u8]) -> Result<usize, Errno> {
        let got = self.read_at(fd, buf, self.pos)?;
        self.pos += got as u64;
        Ok(got)
    }

    /// `write`: at the position, or at the end of a file opened for appending.
    pub fn write(&mut self, fd: c_int, buf: &[u8]) -> Result<usize, Errno> {
        if self.append {
            self.pos = self.len(fd)?;
        }
        let put = self.write_at(fd, buf, self.pos)?;
        self.pos += put as u64;
        Ok(put)
    }

    /// The plain length.
    pub fn len(&mut self, fd: c_int) -> Result<u64, Errno> {
        let Some(file) = self.born(fd)? else { return Ok(0) };
        let len = file.plain_len(&FdStorage(fd));
        Ok(len.map_err(|error| self.failed(&error))?.0)
    }

    /// `ftruncate`.
    pub fn set_len(&mut self, fd: c_int, len: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(libc::EINVAL);
        }
        let mut buffers = Buffers::get();
        if len == 0 && self.born(fd)?.is_none() {
            return Ok(());
        }
        let file = self.bear(fd)?;
        let done = file.set_len(&FdStorage(fd), buffers.scratch(), PlainLen(len), &KernelRandom);
        done.map_err(|error| self.failed(&error))
    }

    /// `lseek`.
    pub fn seek(&mut self, fd: c_int, off: i64, whence: c_int) -> Result<u64, Errno> {
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.pos,
            libc::SEEK_END => self.len(fd)?,
            _ => return Err(libc::EINVAL),
        };
        let target = base.checked_add_signed(off).filter(|target| *target <= i64::MAX as u64);
        let target = target.ok_or(libc::EINVAL)?;
        // A server asks for the length with SEEK_END all the time; it moves the position as well.
        self.pos = target;
        Ok(target)
    }

    /// Logs a failure of the sealed file and gives its `errno`.
    fn failed(&self, error: &SealError) -> Errno {
        describe(error, &self.path)
    }

    /// The path, for messages.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

/// Logs a failure on the file at `path` (an I/O error is PostgreSQL's to report) and gives the
/// `errno` for it.
pub fn describe(error: &SealError, path: &[u8]) -> Errno {
    let errno = match error {
        SealError::Io(error) => return errno_of(error),
        // No permission to what is there, rather than a broken disk.
        SealError::KeyUnknown { .. } => libc::EACCES,
        SealError::TooLarge => return libc::EFBIG,
        _ => libc::EIO,
    };
    let next = match error {
        SealError::KeyUnknown { .. } => {
            "put the data directory whose keyring has it into PGSEAL_DATA"
        }
        SealError::BlockDamaged(_) | SealError::Header(_) => {
            "run \"pgseal verify\" and restore the file from a backup"
        }
        _ => "please report it",
    };
    log::line(format_args!("ERROR: \"{}\": {error}; {next}", datadir::shown(path)));
    errno
}

/// The `errno` of an I/O error.
pub fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Turns a result into what a C function returns.
pub fn returned<T: From<i8>>(result: Result<T, Errno>) -> T {
    match result {
        Ok(value) => value,
        Err(errno) => real::fail(errno),
    }
}
