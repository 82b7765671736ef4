//! An open sealed file as PostgreSQL sees it: plain offsets, a position, a size.

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_core::error::SealError;
use pgseal_core::memory;
use pgseal_core::storage::Storage;
use pgseal_core::{
    Generation, Layout, OnDamage, PlainLen, PlainOff, Scratch, SealedFile, geometry,
};
use pgseal_pgdata::Class;
use pgseal_pgdata::counters::{ClassIndex, Counter};

use crate::file::counters;
use crate::file::damage::{self, Damage, Head, Reason};
use crate::file::storage::{FdStorage, Maps};
use crate::file::want::Want;
use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::real::{self, Errno};
use crate::os::sys::{self, errno_of};
use crate::place::datadir;

enum State {
    Sealed(Box<SealedFile>),
    /// Nothing written yet, by anybody that we know of.
    NoHeader(Want),
    /// Not under pgseal: each call fails with this.
    Refused(Errno),
    /// Its head is no header that opens.
    Damaged(Damage),
}

/// What the kernel does not know of an open sealed file.
#[derive(Clone, Copy)]
pub struct Resumed {
    pos: u64,
    append: bool,
    write_only: bool,
}

impl Resumed {
    /// As after an `open(2)` without such flags.
    pub const START: Resumed = Resumed { pos: 0, append: false, write_only: false };
}

/// A sealed file behind one or more descriptors.
pub struct OpenFile {
    state: State,
    path: Box<[u8]>,
    /// The plain position of `read`, `write` and `lseek`; unknown of a descriptor that was moved
    /// elsewhere.
    pos: Option<u64>,
    append: bool,
    writable: bool,
    /// Opened with `O_WRONLY`; the kernel was asked for reading as well.
    write_only: bool,
    /// What it is to PostgreSQL, and under which class what is done with it counts.
    class: Option<Class>,
    counted: ClassIndex,
    /// Whether this process has seen its header on the way to the disk.
    header_flushed: bool,
    maps: Maps,
}

static SCRATCH: Mutex<Option<Scratch>> = Mutex::new(None);

/// The buffers of this process.
struct Buffers(MutexGuard<'static, Option<Scratch>>);

impl Buffers {
    fn get() -> Buffers {
        Buffers(SCRATCH.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.0.get_or_insert_default()
    }
}

/// Takes the memory of the buffers. The postmaster does before it forks, so that no process of a
/// server lacks it; elsewhere the first read or write of a sealed file does.
pub fn take_buffers() -> Result<(), Errno> {
    Buffers::get().scratch().reserve().map_err(|_| libc::ENOMEM)
}

impl OpenFile {
    fn new(state: State, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile {
            state,
            // For messages: without memory for it they have no name.
            path: memory::copied(path).unwrap_or_default(),
            pos: Some(0),
            append,
            writable,
            write_only: false,
            class: None,
            counted: ClassIndex::OUTSIDE,
            header_flushed: false,
            maps: Maps::default(),
        }
    }

    /// A file that was opened and has its header.
    pub fn sealed(file: Box<SealedFile>, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile::new(State::Sealed(file), path, append, writable)
    }

    /// A file that is still empty.
    pub fn without_header(want: Want, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile::new(State::NoHeader(want), path, append, writable)
    }

    /// A file that opens and cannot be read.
    pub fn damaged(damage: Damage, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile::new(State::Damaged(damage), path, append, writable)
    }

    /// A file that may not be used as it is: each call fails with `errno`. The caller has said why.
    pub fn refused(errno: Errno, path: &[u8]) -> OpenFile {
        OpenFile::new(State::Refused(errno), path, false, true)
    }

    /// What another open file would need to go on where this one is.
    pub fn resumed(&self) -> Option<Resumed> {
        let pos = self.pos?;
        Some(Resumed { pos, append: self.append, write_only: self.write_only })
    }

    /// Goes on where the same file was before.
    pub fn resume(&mut self, from: Resumed) {
        (self.pos, self.append, self.write_only) = (Some(from.pos), from.append, from.write_only);
    }

    /// Nobody knows where `read` and `write` would go on.
    pub fn forget_position(&mut self) {
        self.pos = None;
    }

    fn position(&self) -> Result<u64, Errno> {
        self.pos.ok_or_else(|| {
            log::line(format_args!(
                "ERROR: \"{}\": the position of a descriptor that came from elsewhere is not known; set it with lseek, or use pread and pwrite",
                Shown(&self.path)
            ));
            libc::ESPIPE
        })
    }

    /// Takes over what the program asked for and the kernel was not told.
    pub fn set_write_only(&mut self, write_only: bool) {
        self.write_only = write_only;
    }

    /// Says what it is to PostgreSQL.
    pub fn set_class(&mut self, class: Option<Class>) {
        self.class = class;
        self.counted = class.map_or(ClassIndex::OUTSIDE, ClassIndex::of);
    }

    /// `fcntl(F_SETFL)` with or without `O_APPEND`.
    pub fn set_append(&mut self, append: bool) {
        self.append = append;
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The access mode and `O_APPEND` as the program gave them to `open(2)`.
    pub fn flags(&self) -> c_int {
        let mode = match (self.writable, self.write_only) {
            (true, true) => libc::O_WRONLY,
            (true, false) => libc::O_RDWR,
            (false, _) => libc::O_RDONLY,
        };
        mode | if self.append { libc::O_APPEND } else { 0 }
    }

    /// The layout, if the file has its header.
    pub fn layout(&self) -> Option<Layout> {
        match &self.state {
            State::Sealed(file) => Some(file.header().layout),
            State::NoHeader(_) | State::Damaged(_) | State::Refused(_) => None,
        }
    }

    /// Whether its header may still have to be written to the disk, before the pages behind it.
    /// Says so once.
    pub fn header_is_to_be_flushed(&mut self) -> bool {
        !core::mem::replace(&mut self.header_flushed, true)
    }

    /// The file, if it has its header by now.
    fn find_header(&mut self, fd: c_int) -> Result<Option<&mut SealedFile>, Errno> {
        match &self.state {
            State::Sealed(_) => {}
            State::NoHeader(want) => self.look_for_header(fd, *want)?,
            State::Damaged(damage) => self.look_again(fd, damage.want)?,
            State::Refused(errno) => return Err(*errno),
        }
        match &mut self.state {
            State::Sealed(file) => Ok(Some(file)),
            State::NoHeader(_) | State::Damaged(_) => Ok(None),
            State::Refused(errno) => Err(*errno),
        }
    }

    /// Whether somebody has written the header of a file that had none.
    fn look_for_header(&mut self, fd: c_int, want: Want) -> Result<(), Errno> {
        let len = FdStorage::new(fd).len().map_err(|error| errno_of(&error))?;
        if len.0 < geometry::HEAD_LEN {
            return Ok(());
        }
        match self.look(fd, want)? {
            Head::Sealed(file) => self.state = State::Sealed(file),
            Head::Empty | Head::Bad(Reason::Lost) => {}
            Head::Bad(Reason::Plain) => {
                log::line(format_args!(
                    "ERROR: \"{}\" was empty and now holds plain bytes that pgseal did not write; it stays untouched",
                    Shown(&self.path)
                ));
                return Err(libc::EIO);
            }
            Head::Bad(reason) => {
                counters::add(self.counted, Counter::FailedFiles, 1);
                damage::fails(reason, &self.path);
                return Err(reason.errno());
            }
        }
        Ok(())
    }

    /// Looks at the head of the file again.
    fn look(&self, fd: c_int, want: Want) -> Result<Head, Errno> {
        let mut start = [0; geometry::HEAD_LEN as usize];
        let got = sys::pread_full(fd, &mut start, 0)?;
        damage::look(fd, &start[..got], Some(want), None).map_err(|error| self.failed(&error))
    }

    /// Whether somebody has made a damaged file anew: redo, or who emptied it.
    #[cold]
    fn look_again(&mut self, fd: c_int, want: Want) -> Result<(), Errno> {
        match self.look(fd, want)? {
            Head::Sealed(file) => self.state = State::Sealed(file),
            Head::Empty => self.state = State::NoHeader(want),
            Head::Bad(_) => {}
        }
        Ok(())
    }

    /// Writes the header if the file has none, and returns the open file with its storage. Several
    /// processes may come here at once; the lock makes sure that there is one header.
    fn ensure_header(
        &mut self,
        fd: c_int,
        scratch: &mut Scratch,
    ) -> Result<(&mut SealedFile, FdStorage<'_>), Errno> {
        if !matches!(self.state, State::Sealed(_)) {
            let _lock = RangeLock::new(fd)?;
            self.write_header(fd, scratch)?;
        }
        match &mut self.state {
            State::Sealed(file) => Ok((file, FdStorage::with_maps(fd, &self.maps))),
            State::NoHeader(_) | State::Damaged(_) => Err(libc::EIO),
            State::Refused(errno) => Err(*errno),
        }
    }

    /// Writes the header if no other process has done so since. The caller has the lock.
    fn write_header(&mut self, fd: c_int, scratch: &mut Scratch) -> Result<(), Errno> {
        if self.find_header(fd)?.is_some() {
            return Ok(());
        }
        let storage = FdStorage::new(fd);
        let want = match &self.state {
            State::Sealed(_) => return Ok(()),
            State::Refused(errno) => return Err(*errno),
            State::NoHeader(want) => *want,
            State::Damaged(damage) => {
                let damage = *damage;
                if damage.gets_header() {
                    return self.renew_header(fd, damage);
                }
                self.tell();
                let len = damage.len_anew(&storage)?.ok_or(libc::EIO)?;
                return self.renew(fd, damage.want, len, scratch);
            }
        };
        // Whatever is there is the rest of a header that a crash tore off. An empty file is not cut:
        // ext4 would write all of it to the disk when it is closed, as one that replaces another.
        let len = storage.len().map_err(|error| errno_of(&error))?.0;
        if len > geometry::HEADER_LEN {
            damage::tell_never_written(&self.path);
        }
        if len > 0 {
            storage.set_len(pgseal_core::SealedLen(0)).map_err(|error| errno_of(&error))?;
        }
        self.create(fd, want).inspect_err(|_| {
            let _ = storage.set_len(pgseal_core::SealedLen(0));
        })
    }

    fn create(&mut self, fd: c_int, want: Want) -> Result<(), Errno> {
        let storage = FdStorage::new(fd);
        let Want { keys, form, generation, .. } = want;
        let file = SealedFile::create(&storage, &form, keys, generation, &KernelRandom)
            .and_then(|file| Ok(memory::boxed(file)?));
        self.state = State::Sealed(file.map_err(|error| self.failed(&error))?);
        self.header_flushed = false;
        Ok(())
    }

    /// Makes a damaged file anew, of zeros. The caller has the lock.
    #[cold]
    fn renew(
        &mut self,
        fd: c_int,
        want: Want,
        len: PlainLen,
        scratch: &mut Scratch,
    ) -> Result<(), Errno> {
        let storage = FdStorage::new(fd);
        storage.set_len(pgseal_core::SealedLen(0)).map_err(|error| errno_of(&error))?;
        self.create(fd, want)?;
        let State::Sealed(file) = &mut self.state else { return Err(libc::EIO) };
        let done = file.set_len(&storage, scratch, len, &KernelRandom);
        done.map_err(|error| self.failed(&error))
    }

    /// Gives a damaged file a new header before its blocks. The old head stays in the padding, so that what
    /// it wrapped can be had back. The caller has the lock.
    #[cold]
    fn renew_header(&mut self, fd: c_int, damage: Damage) -> Result<(), Errno> {
        let mut old = [0; geometry::HEAD_LEN as usize];
        let got = sys::pread_full(fd, &mut old, 0)?;
        damage.tell_header(&self.path);
        counters::add(self.counted, Counter::FailedFiles, 1);
        self.create(fd, damage.want)?;
        let kept =
            FdStorage::new(fd).write_at(&old[..got], pgseal_core::SealedOff(geometry::HEAD_LEN));
        kept.map_err(|error| errno_of(&error))
    }

    /// Says what is wrong with a damaged file, once.
    fn tell(&mut self) {
        if let State::Damaged(damage) = &mut self.state
            && damage.tell(&self.path)
        {
            counters::add(self.counted, Counter::FailedFiles, 1);
        }
    }

    /// `pread`.
    pub fn read_at(&mut self, fd: c_int, buf: &mut [u8], off: u64) -> Result<usize, Errno> {
        if self.write_only {
            return Err(libc::EBADF);
        }
        let mut buffers = Buffers::get();
        self.find_header(fd)?;
        self.tell();
        let file = match &mut self.state {
            State::Sealed(file) => file,
            State::NoHeader(_) => return Ok(0),
            State::Refused(errno) => return Err(*errno),
            State::Damaged(damage) => return damage.read_at(&FdStorage::new(fd), buf, off),
        };
        // A page that fails is PostgreSQL's to judge; anything else is an error at once.
        let reads_zeros = damage::reads_zeros(self.class);
        let on_damage = match file.header().layout {
            Layout::Paged if reads_zeros => OnDamage::ZeroPage,
            Layout::Paged => OnDamage::InvalidPage,
            Layout::Stream | Layout::InPlace => OnDamage::Fail,
        };
        let storage = FdStorage::with_maps(fd, &self.maps);
        let outcome = file.read_at(&storage, buffers.scratch(), buf, PlainOff(off), on_damage);
        match outcome {
            Ok(outcome) => {
                counters::opened(self.counted, off, &outcome);
                if let Some(block) = outcome.first_damaged {
                    let (count, path) = (outcome.damaged_blocks, Shown(&self.path));
                    if reads_zeros {
                        log::line(format_args!(
                            "WARNING: block {block} of \"{path}\" does not authenticate ({count} in this read); it reads as zeros, and PostgreSQL makes it anew"
                        ));
                    } else {
                        log::line(format_args!(
                            "ERROR: block {block} of \"{path}\" does not authenticate ({count} in this read); it is handed on as an invalid page, restore it from a backup or a standby"
                        ));
                    }
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
        // pg_stat_statements: several processes write texts of theirs into one block at once. None
        // may seal it with what it held before the other came.
        let end = PlainOff(off.saturating_add(buf.len() as u64));
        let (file, storage) = self.ensure_header(fd, buffers.scratch())?;
        let _lock = lock_writers(file, fd, end)?;
        let zeros = file.zeros_appended();
        let done = file.write_at(&storage, buffers.scratch(), buf, PlainOff(off), &KernelRandom);
        let zeros = file.zeros_appended() - zeros;
        done.map_err(|error| self.failed(&error))?;
        counters::sealed(self.counted, off, buf.len(), zeros);
        Ok(buf.len())
    }

    /// `read`: at the position, which moves.
    pub fn read(&mut self, fd: c_int, buf: &mut [u8]) -> Result<usize, Errno> {
        let pos = self.position()?;
        let got = self.read_at(fd, buf, pos)?;
        self.pos = Some(pos + got as u64);
        Ok(got)
    }

    /// `write`: at the position, or at the end of a file opened for appending.
    pub fn write(&mut self, fd: c_int, buf: &[u8]) -> Result<usize, Errno> {
        let pos = if self.append { self.len(fd)? } else { self.position()? };
        let put = self.write_at(fd, buf, pos)?;
        self.pos = Some(pos + put as u64);
        Ok(put)
    }

    /// The plain length.
    pub fn len(&mut self, fd: c_int) -> Result<u64, Errno> {
        let storage = FdStorage::new(fd);
        if let Some(file) = self.find_header(fd)? {
            let len = file.plain_len(&storage);
            return Ok(len.map_err(|error| self.failed(&error))?.0);
        }
        let damage = match &self.state {
            State::Damaged(damage) => *damage,
            State::Refused(errno) => return Err(*errno),
            State::Sealed(_) | State::NoHeader(_) => return Ok(0),
        };
        // The first thing that redo wants to know of a relation whose pages it is about to write.
        if self.writable && damage.gets_header() {
            let _lock = RangeLock::new(fd)?;
            if self.find_header(fd)?.is_none() {
                self.renew_header(fd, damage)?;
            }
            return self.len(fd);
        }
        damage.len(&storage)
    }

    /// `ftruncate`.
    pub fn set_len(&mut self, fd: c_int, len: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(libc::EINVAL);
        }
        let mut buffers = Buffers::get();
        if self.find_header(fd)?.is_none() && self.empty(fd, len)? {
            return Ok(());
        }
        // Lengthening seals what lies between: nobody may write there meanwhile.
        let (file, storage) = self.ensure_header(fd, buffers.scratch())?;
        let _lock = lock_writers(file, fd, PlainOff(len))?;
        let done = file.set_len(&storage, buffers.scratch(), PlainLen(len), &KernelRandom);
        done.map_err(|error| self.failed(&error))
    }

    /// Empties a file that has no header, or none that opens; `false`: that is not what is asked for.
    fn empty(&mut self, fd: c_int, len: u64) -> Result<bool, Errno> {
        let want = match &self.state {
            State::Damaged(damage) if len == 0 => damage.want,
            State::Damaged(_) => return Ok(false),
            State::Refused(errno) => return Err(*errno),
            State::NoHeader(_) | State::Sealed(_) => return Ok(len == 0),
        };
        let _lock = RangeLock::new(fd)?;
        // Whoever was faster has made it anew, and its header stays.
        if self.find_header(fd)?.is_some() {
            return Ok(false);
        }
        let emptied = FdStorage::new(fd).set_len(pgseal_core::SealedLen(0));
        emptied.map_err(|error| errno_of(&error))?;
        self.state = State::NoHeader(want);
        Ok(true)
    }

    /// `lseek`.
    pub fn seek(&mut self, fd: c_int, off: i64, whence: c_int) -> Result<u64, Errno> {
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.position()?,
            libc::SEEK_END => self.len(fd)?,
            _ => return Err(libc::EINVAL),
        };
        let target = base.checked_add_signed(off).filter(|target| *target <= i64::MAX as u64);
        let target = target.ok_or(libc::EINVAL)?;
        // A server asks for the length with SEEK_END all the time; it moves the position as well.
        self.pos = Some(target);
        Ok(target)
    }

    /// Logs a failure of the sealed file and gives its `errno`.
    fn failed(&self, error: &SealError) -> Errno {
        counters::failed(self.counted, error);
        describe(error, &self.path)
    }

    /// The path, for messages.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

/// Whether several processes may write parts of one block, or its neighbours, at the same time.
/// Pages of relations have PostgreSQL's own locks, an ephemeral file has one writer.
fn shares_blocks(file: &SealedFile) -> bool {
    let header = file.header();
    header.layout == Layout::Stream && header.generation != Generation::EPHEMERAL
}

/// Keeps other writers out of a file whose blocks several processes may share, or which is about to
/// grow up to `end` and has no holes: what another one writes is no gap.
fn lock_writers(file: &SealedFile, fd: c_int, end: PlainOff) -> Result<Option<RangeLock>, Errno> {
    (shares_blocks(file) || file.must_be_alone(end)).then(|| RangeLock::new(fd)).transpose()
}

/// Keeps other processes out of a file as long as this lives.
///
/// A record lock of `fcntl(2)` belongs to the process: unlike one of `flock(2)` it also keeps
/// parent and child apart that share a descriptor. It lies behind every possible byte, so that it
/// meets no lock of the program's own. Within the process, the mutex of the buffers keeps order.
struct RangeLock(c_int);

impl RangeLock {
    fn new(fd: c_int) -> Result<RangeLock, Errno> {
        loop {
            if Self::set(fd, libc::F_WRLCK) >= 0 {
                return Ok(RangeLock(fd));
            }
            match real::errno() {
                libc::EINTR => {}
                errno => return Err(errno),
            }
        }
    }

    fn set(fd: c_int, kind: c_int) -> c_int {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = i64::MAX - 1;
        lock.l_len = 1;
        // SAFETY: `lock` is valid for the call.
        unsafe { real::fcntl(fd, libc::F_SETLKW, (&raw mut lock).cast()) }
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        Self::set(self.0, libc::F_UNLCK);
    }
}

/// Logs a failure on the file at `path` (an I/O error is PostgreSQL's to report) and gives the
/// `errno` for it.
pub fn describe(error: &SealError, path: &[u8]) -> Errno {
    let errno = match error {
        SealError::Io(error) => return errno_of(error),
        // No permission to what is there, rather than a broken disk.
        SealError::KeyUnknown { .. } => libc::EACCES,
        // PostgreSQL says it to its client.
        SealError::OutOfMemory => return libc::ENOMEM,
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
