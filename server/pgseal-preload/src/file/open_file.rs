//! An open sealed file as PostgreSQL sees it: plain offsets, a position, a size.

use core::ffi::c_int;
use core::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_core::broken::{self, Order};
use pgseal_core::error::SealError;
use pgseal_core::header::{Header, Stage};
use pgseal_core::memory;
use pgseal_core::storage::Storage;
use pgseal_core::versions::Seen;
use pgseal_core::{
    Generation, Layout, OnDamage, PlainLen, PlainOff, Scratch, SealedFile, geometry,
};
use pgseal_pgdata::counters::{ClassIndex, Counter};
use pgseal_pgdata::{Class, WalSegment};

use crate::file::counters;
use crate::file::damage::{self, Damage, Head, Reason};
use crate::file::gate;
use crate::file::lengths::{self, Shortage, Watched};
use crate::file::manifest;
use crate::file::named::{self, Named};
use crate::file::range_lock::RangeLock;
use crate::file::sealing::Sealing;
use crate::file::storage::{FdStorage, Maps};
use crate::file::usage;
use crate::file::wal;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys::{self, errno_of};
use crate::place::datadir;

enum State {
    Sealed(Box<SealedFile>),
    /// The file has no header yet, as far as this process knows.
    NoHeader(Box<Sealing>),
    /// The file may not be used: each call fails with this error number.
    Refused(Errno),
    /// The header of the file is damaged, or cannot be opened with the keys at hand.
    Damaged(Box<Damage>),
}

/// The state of an open sealed file that the kernel does not have.
#[derive(Clone, Copy)]
pub struct Resumed {
    pos: u64,
    append: bool,
    write_only: bool,
    writable: bool,
    header_flushed: bool,
    syncs: bool,
}

impl Resumed {
    /// Whether the file was opened for writing.
    pub fn writable(self) -> bool {
        self.writable
    }
}

/// A sealed file behind one or more descriptors.
pub struct OpenFile {
    state: State,
    path: Box<[u8]>,
    /// The plain position of `read`, `write` and `lseek`; `None` if unknown: an inherited or
    /// received descriptor whose kernel position is not 0.
    pos: Option<u64>,
    append: bool,
    writable: bool,
    /// Opened with `O_WRONLY`; the kernel was asked for reading as well.
    write_only: bool,
    /// The class of the file in its data directory; `None` outside every data directory.
    class: Option<Class>,
    counted: ClassIndex,
    /// Whether `header_is_to_be_flushed` has already returned `true` for the current header.
    header_flushed: bool,
    /// Whether the manifest was told that this file changes.
    is_told: bool,
    /// Whether this is a WAL segment under its own name.
    is_wal_segment: bool,
    /// Opened with `O_DSYNC` or `O_SYNC`.
    syncs: bool,
    /// Whether this is an empty file that stands in for one that somebody removed.
    stands_in: bool,
    /// How many changes of headers behind the gate of this file its file keys take into account.
    changes: u64,
    /// Whether the file belongs to no relation; `None`: nobody has asked.
    orphan: Option<bool>,
    /// The length that the file must have, if that is kept.
    watched: Option<Watched>,
    /// A length that the file was seen to have.
    seen_len: u64,
    /// Whether the log says that the file is too short.
    is_short_told: bool,
    maps: Maps,
}

/// A write that lengthens a file whose length is kept, or may.
struct Growth {
    watched: Watched,
    before: Seen,
    /// The offset behind it.
    end: u64,
    /// Pages that somebody cut off and that become a hole.
    lost: Range<u64>,
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

/// Allocates the buffers. The postmaster calls this before it forks, so that no process of a server
/// lacks them; in other programs the first read or write of a sealed file allocates them.
pub fn take_buffers() -> Result<(), Errno> {
    Buffers::get().scratch().reserve().map_err(|_| libc::ENOMEM)
}

impl OpenFile {
    fn new(state: State, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile {
            state,
            // Only for messages: if memory runs out, they show an empty path.
            path: memory::copied(path).unwrap_or_default(),
            pos: Some(0),
            append,
            writable,
            write_only: false,
            class: None,
            counted: ClassIndex::OUTSIDE,
            header_flushed: false,
            is_told: false,
            is_wal_segment: false,
            stands_in: false,
            syncs: false,
            changes: 0,
            orphan: None,
            watched: None,
            seen_len: 0,
            is_short_told: false,
            maps: Maps::default(),
        }
    }

    /// A file whose header was read and opened.
    pub fn sealed(file: Box<SealedFile>, path: &[u8], append: bool, writable: bool) -> OpenFile {
        OpenFile::new(State::Sealed(file), path, append, writable)
    }

    /// A file that is still empty.
    pub fn without_header(
        sealing: Sealing,
        path: &[u8],
        append: bool,
        writable: bool,
    ) -> Result<OpenFile, Errno> {
        Ok(OpenFile::new(no_header(sealing)?, path, append, writable))
    }

    /// A damaged file: its open succeeds, its reads follow [`Damage`].
    pub fn damaged(
        damage: Damage,
        path: &[u8],
        append: bool,
        writable: bool,
    ) -> Result<OpenFile, Errno> {
        let damage = memory::boxed(damage).map_err(|_| libc::ENOMEM)?;
        Ok(OpenFile::new(State::Damaged(damage), path, append, writable))
    }

    /// A file that may not be used: each call fails with `errno`. The caller has logged the reason.
    pub fn refused(errno: Errno, path: &[u8]) -> OpenFile {
        OpenFile::new(State::Refused(errno), path, false, true)
    }

    /// The state with which another [`OpenFile`] of the same file continues; `None` if the position
    /// is unknown.
    pub fn resumed(&self) -> Option<Resumed> {
        let OpenFile { append, write_only, writable, header_flushed, syncs, .. } = *self;
        Some(Resumed { pos: self.pos?, append, write_only, writable, header_flushed, syncs })
    }

    /// The path and the state with which this file can be opened again ([`OpenFile::wake`]), if it
    /// is a relation's and nothing else of it would be lost. It must not be used any more then.
    pub fn fall_asleep(&mut self) -> Option<(Box<[u8]>, Resumed)> {
        let State::Sealed(file) = &self.state else { return None };
        let is_relation = matches!(self.class, Some(Class::Relation { .. }));
        // What the log says once of a file, and what is not in its header yet.
        let would_be_lost = self.is_short_told || self.orphan.is_some() || file.samples_wait();
        if !is_relation || would_be_lost || self.path.is_empty() {
            return None;
        }
        let state = self.resumed()?;
        Some((core::mem::take(&mut self.path), state))
    }

    /// Takes over the state in which [`OpenFile::fall_asleep`] left the same file.
    pub fn wake(&mut self, from: Resumed) {
        self.resume(from);
        (self.header_flushed, self.syncs) = (from.header_flushed, from.syncs);
    }

    /// Takes over the position and flags that an earlier [`OpenFile`] of the same file had.
    pub fn resume(&mut self, from: Resumed) {
        (self.pos, self.append, self.write_only) = (Some(from.pos), from.append, from.write_only);
    }

    /// Marks the position as unknown.
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

    /// Records whether the program asked for `O_WRONLY`. The kernel was asked for `O_RDWR`.
    pub fn set_write_only(&mut self, write_only: bool) {
        self.write_only = write_only;
    }

    /// Sets the class of the file, and what follows from it and from the path: the class that its
    /// counters belong to, whether its length is kept, and whether it is a WAL segment. The path is
    /// that of the call: without memory `self.path` is empty, and a truncation that the other
    /// processes do not learn of would look to them like a file that somebody cut.
    pub fn set_class(&mut self, class: Option<Class>, path: &[u8]) {
        self.class = class;
        self.counted = class.map_or(ClassIndex::OUTSIDE, ClassIndex::of);
        self.watched = Watched::at(path, class);
        self.is_wal_segment =
            class == Some(Class::Wal) && WalSegment::of_name(datadir::base_name(path)).is_some();
    }

    /// Whether this is a WAL segment under its own name.
    pub fn is_wal_segment(&self) -> bool {
        self.is_wal_segment
    }

    /// Records whether each write returns only when its bytes are on the disk.
    pub fn set_syncs(&mut self, syncs: bool) {
        self.syncs = syncs;
    }

    /// Records that the file stands in for one that somebody removed: it cannot be written.
    pub fn set_stands_in(&mut self, stands_in: bool) {
        self.stands_in = stands_in;
    }

    /// Whether the file stands in for one that somebody removed. It cannot be synced either:
    /// nothing of that one is known to be on the disk.
    pub fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// `fcntl(F_SETFL)` with or without `O_APPEND`.
    pub fn set_append(&mut self, append: bool) {
        self.append = append;
    }

    /// Whether the file was opened for writing.
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

    /// Whether the header may still have to be written to the disk, before the pages behind it.
    /// Returns `true` on the first call, and on the first call after this process created the
    /// header.
    pub fn header_is_to_be_flushed(&mut self) -> bool {
        !core::mem::replace(&mut self.header_flushed, true)
    }

    /// The sealed file, if it has a header by now. Another process may have written it.
    fn find_header(&mut self, fd: c_int) -> Result<Option<&mut SealedFile>, Errno> {
        match &self.state {
            State::Sealed(_) => {}
            State::NoHeader(sealing) => self.look_for_header(fd, **sealing)?,
            State::Damaged(_) if manifest::differs(&self.path) => {}
            State::Damaged(damage) => self.look_again(fd, damage.sealing)?,
            State::Refused(errno) => return Err(*errno),
        }
        match &mut self.state {
            State::Sealed(file) => Ok(Some(file)),
            State::NoHeader(_) | State::Damaged(_) => Ok(None),
            State::Refused(errno) => Err(*errno),
        }
    }

    /// Checks whether another process has written the header of a file that had none.
    fn look_for_header(&mut self, fd: c_int, sealing: Sealing) -> Result<(), Errno> {
        let len = FdStorage::new(fd).len().map_err(|error| errno_of(&error))?;
        if len.0 < geometry::HEAD_LEN {
            return Ok(());
        }
        match self.look(fd, sealing)? {
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

    /// Reads and classifies the head of the file again.
    fn look(&self, fd: c_int, sealing: Sealing) -> Result<Head, Errno> {
        let mut start = [0; geometry::HEAD_LEN as usize];
        let got = sys::pread_full(fd, &mut start, 0)?;
        damage::look(fd, &start[..got], Some(sealing), None).map_err(|error| self.failed(&error))
    }

    /// Checks whether a damaged file has been repaired meanwhile: redo gave it a new header, or a
    /// process truncated it.
    #[cold]
    fn look_again(&mut self, fd: c_int, sealing: Sealing) -> Result<(), Errno> {
        match self.look(fd, sealing)? {
            Head::Sealed(file) => self.state = State::Sealed(file),
            Head::Empty => self.state = no_header(sealing)?,
            Head::Bad(_) => {}
        }
        Ok(())
    }

    /// Writes the header if the file has none, and returns the open file with its storage. Several
    /// processes may call this at once; the record lock makes sure that only one header is written.
    fn ensure_header(
        &mut self,
        fd: c_int,
        scratch: &mut Scratch,
    ) -> Result<(&mut SealedFile, FdStorage<'_>), Errno> {
        if !matches!(self.state, State::Sealed(_)) {
            let _lock = RangeLock::exclusive(fd)?;
            self.write_header(fd, scratch)?;
        }
        match &mut self.state {
            State::Sealed(file) => Ok((file, FdStorage::with_maps(fd, &self.maps))),
            State::NoHeader(_) | State::Damaged(_) => Err(libc::EIO),
            State::Refused(errno) => Err(*errno),
        }
    }

    /// Writes the header if no other process has written one meanwhile. The caller holds the lock.
    fn write_header(&mut self, fd: c_int, scratch: &mut Scratch) -> Result<(), Errno> {
        if self.find_header(fd)?.is_some() {
            return Ok(());
        }
        let storage = FdStorage::new(fd);
        let sealing = match &self.state {
            State::Sealed(_) => return Ok(()),
            State::Refused(errno) => return Err(*errno),
            State::NoHeader(sealing) => **sealing,
            State::Damaged(damage) => {
                let damage = **damage;
                if damage.gets_header() {
                    return self.renew_header(fd, damage);
                }
                self.tell(false);
                let len = damage.len_anew(&storage)?.ok_or(libc::EIO)?;
                manifest::release(&self.path);
                return self.renew(fd, damage.sealing, len, scratch);
            }
        };
        // Any bytes here are the rest of a header that a crash cut short. An empty file is not
        // truncated: ext4 takes truncate and rewrite for the replacement of a file, and would flush
        // all of it at close.
        let len = storage.len().map_err(|error| errno_of(&error))?.0;
        if len > geometry::HEADER_LEN {
            damage::tell_never_written(&self.path);
        }
        if len > 0 {
            storage.set_len(pgseal_core::SealedLen(0)).map_err(|error| errno_of(&error))?;
        }
        self.create(fd, sealing).inspect_err(|_| {
            let _ = storage.set_len(pgseal_core::SealedLen(0));
        })
    }

    fn create(&mut self, fd: c_int, sealing: Sealing) -> Result<(), Errno> {
        let storage = FdStorage::new(fd);
        let Sealing { keys, form, .. } = sealing;
        let file = SealedFile::create(&storage, &form, keys, sealing.generation(), &KernelRandom)
            .and_then(|file| Ok(memory::boxed(file)?));
        self.state = State::Sealed(file.map_err(|error| self.failed(&error))?);
        self.header_flushed = false;
        Ok(())
    }

    /// Replaces a damaged file by a new one of `len` zeros. The caller holds the lock.
    #[cold]
    fn renew(
        &mut self,
        fd: c_int,
        sealing: Sealing,
        len: PlainLen,
        scratch: &mut Scratch,
    ) -> Result<(), Errno> {
        let storage = FdStorage::new(fd);
        storage.set_len(pgseal_core::SealedLen(0)).map_err(|error| errno_of(&error))?;
        self.create(fd, sealing)?;
        let State::Sealed(file) = &mut self.state else { return Err(libc::EIO) };
        let done = file.set_len(&storage, scratch, len, &KernelRandom);
        done.map_err(|error| self.failed(&error))
    }

    /// Writes a new header over a damaged one and keeps the blocks. A copy of the old head goes
    /// into the padding behind the new one, so that the key in it can still be recovered. The
    /// caller holds the lock.
    #[cold]
    fn renew_header(&mut self, fd: c_int, damage: Damage) -> Result<(), Errno> {
        let mut old = [0; geometry::HEAD_LEN as usize];
        let got = sys::pread_full(fd, &mut old, 0)?;
        damage.tell_header(&self.path);
        manifest::release(&self.path);
        counters::add(self.counted, Counter::FailedFiles, 1);
        self.create(fd, damage.sealing)?;
        let kept =
            FdStorage::new(fd).write_at(&old[..got], pgseal_core::SealedOff(geometry::HEAD_LEN));
        kept.map_err(|error| errno_of(&error))
    }

    /// Whether a read of a damaged file fails instead of giving invalid pages.
    fn damaged_fails(&mut self) -> bool {
        let State::Damaged(damage) = &self.state else { return false };
        damage.reads_invalid_pages()
            && damage::page_fails(self.writable)
            && !is_orphan(&mut self.orphan, &self.path)
    }

    /// Logs what is wrong with a damaged file, once. `fails`: a read of it fails.
    fn tell(&mut self, fails: bool) {
        if let State::Damaged(damage) = &mut self.state
            && damage.tell(&self.path, fails)
        {
            counters::add(self.counted, Counter::FailedFiles, 1);
        }
    }

    /// `pread` and `preadv`: reads until all parts are full or the file ends.
    pub fn read_at(
        &mut self,
        fd: c_int,
        parts: &mut [&mut [u8]],
        off: u64,
    ) -> Result<usize, Errno> {
        if self.write_only {
            return Err(libc::EBADF);
        }
        let wanted = parts.iter().map(|part| part.len()).sum::<usize>();
        let got = self.read_from_disk(fd, parts, off)?;
        if got == wanted {
            return Ok(got);
        }
        let Some(Shortage { least, .. }) = self.shortage(fd)? else { return Ok(got) };
        if damage::page_fails(self.writable) {
            return Err(libc::EIO);
        }
        // The pages that are missing.
        let rest = usize::try_from(least.saturating_sub(off)).unwrap_or(usize::MAX);
        let end = damage::fill_parts(parts, got..rest, |piece, at| {
            pgseal_core::fill_with_invalid_pages(piece, PlainOff(off + at as u64));
        });
        counters::add(
            self.counted,
            Counter::FailedBlocks,
            ((end - got) as u64).div_ceil(geometry::BLOCK_LEN),
        );
        Ok(end)
    }

    fn read_from_disk(
        &mut self,
        fd: c_int,
        parts: &mut [&mut [u8]],
        off: u64,
    ) -> Result<usize, Errno> {
        let mut buffers = Buffers::get();
        self.find_header(fd)?;
        let damaged_fails = self.damaged_fails();
        self.tell(damaged_fails);
        if self.is_wal_segment
            && let State::Sealed(file) = &mut self.state
        {
            file.set_must_open(wal::must_open(&self.path));
        }
        let file = match &mut self.state {
            State::Sealed(file) => file,
            State::NoHeader(_) => return Ok(0),
            State::Refused(errno) => return Err(*errno),
            State::Damaged(damage) => {
                return damage.read_at(&FdStorage::new(fd), damaged_fails, parts, off);
            }
        };
        // A page that does not authenticate is handed to PostgreSQL as zeros or as an invalid page;
        // in files without pages, and where nobody would look at the page, the read fails.
        let reads_zeros = damage::reads_zeros(self.class);
        let on_damage = match file.header().layout {
            Layout::Paged if reads_zeros => OnDamage::ZeroPage,
            Layout::Paged if damage::page_fails(self.writable) => OnDamage::Fail,
            Layout::Paged => OnDamage::InvalidPage,
            Layout::Stream | Layout::InPlace | Layout::Sectored | Layout::Wal => OnDamage::Fail,
        };
        let storage = FdStorage::with_maps(fd, &self.maps);
        let mut read = |on_damage| {
            let mut tries = 0;
            loop {
                let (scratch, off) = (buffers.scratch(), PlainOff(off));
                let outcome = file.read_parts_at(&storage, scratch, parts, off, on_damage);
                // A page of a key that came after this process opened the file.
                let is_new_key = tries < KEY_TRIES
                    && file.lacked_key()
                    && refresh(file, fd, &self.path).unwrap_or(false);
                if !is_new_key {
                    return outcome;
                }
                tries += 1;
            }
        };
        let mut outcome = read(on_damage);
        if matches!(outcome, Err(SealError::BlockDamaged(_) | SealError::BlockOlder(_)))
            && matches!(self.class, Some(Class::Relation { .. }))
            && is_orphan(&mut self.orphan, &self.path)
        {
            outcome = read(OnDamage::InvalidPage);
        }
        match outcome {
            Ok(outcome) => {
                counters::opened(self.counted, off, &outcome);
                if let Some(block) = outcome.first_damaged {
                    let (count, named) = (outcome.damaged_blocks, Named::of(&self.path));
                    let older = outcome.older_blocks;
                    if reads_zeros && older == 0 {
                        log::line(format_args!(
                            "WARNING: block {block} of {named} does not authenticate ({count} in this read); it reads as zeros, and PostgreSQL makes it anew"
                        ));
                    } else if reads_zeros {
                        log::line(format_args!(
                            "WARNING: block {block} of {named} is an older version than the server wrote or does not authenticate ({older} older of {count} in this read); it reads as zeros, and PostgreSQL makes it anew"
                        ));
                    } else if older == 0 {
                        let remedy = named.remedy();
                        log::line(format_args!(
                            "ERROR: block {block} of {named} does not authenticate ({count} in this read); it is handed on as an invalid page, {remedy}"
                        ));
                    } else {
                        let remedy = named.remedy();
                        log::line(format_args!(
                            "ERROR: block {block} of {named} is an older version than the server wrote or does not authenticate ({older} older of {count} in this read): somebody changed the file while the server runs; it is handed on as an invalid page, {remedy}"
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
        if self.stands_in {
            return Err(libc::EIO);
        }
        manifest::before_write(self.class, &self.path, &mut self.is_told);
        let growth = self.before_growth(fd, off, off.saturating_add(buf.len() as u64))?;
        let mut buffers = Buffers::get();
        // pg_stat_statements: several processes write their texts into one block at once. Without
        // the lock, one could seal the block with old contents and so overwrite the text of
        // another.
        let end = PlainOff(off.saturating_add(buf.len() as u64));
        if self.is_wal_segment {
            self.check_end_of_recovery(fd, buffers.scratch(), buf, off)?;
        }
        let record = self.is_wal_segment.then(wal::flush_record).flatten();
        let record = match broken::is(Order::PositionBeforeSync) {
            true => record.map(|record| wal::record_ahead(record, &self.path, off, buf)),
            false => record,
        };
        let (file, _) = self.ensure_header(fd, buffers.scratch())?;
        if record.is_some() {
            file.set_flush_record(record);
        }
        let is_whole =
            off.is_multiple_of(geometry::BLOCK_LEN) && end.0.is_multiple_of(geometry::BLOCK_LEN);
        let inside = self.enter(fd)?;
        let (file, storage) = self.ensure_header(fd, buffers.scratch())?;
        if let Some(growth) = &growth {
            file.pages_are_lost(&storage, growth.lost.clone());
        }
        let lock = lock_writers(file, &storage, fd, end, is_whole)?;
        let zeros = file.zeros_appended();
        let done = file.write_at(&storage, buffers.scratch(), buf, PlainOff(off), &KernelRandom);
        let zeros = file.zeros_appended() - zeros;
        drop((lock, inside));
        self.count(fd);
        done.map_err(|error| self.failed(&error))?;
        counters::sealed(self.counted, off, buf.len(), zeros);
        if let Some(Growth { watched, before, end, .. }) = growth {
            watched.has_grown(before, end);
        }
        if self.is_wal_segment && self.syncs {
            wal::synced();
        }
        Ok(buf.len())
    }

    /// Enters the gate of a file of pages, and takes over the file keys that its header has by now.
    /// Nobody drops a file key, or begins to use one, before the returned value is dropped.
    fn enter(&mut self, fd: c_int) -> Result<Option<gate::Inside>, Errno> {
        let State::Sealed(file) = &mut self.state else { return Ok(None) };
        let Header { layout, generation, file_id, .. } = *file.header();
        if layout != Layout::Paged || generation.is_ephemeral() {
            return Ok(None);
        }
        let inside = gate::enter(&file_id);
        if let Some(inside) = &inside
            && inside.changes != self.changes
        {
            refresh(file, fd, &self.path)?;
            self.changes = inside.changes;
        }
        Ok(inside)
    }

    /// Counts the writes under the file key, now and then.
    #[inline]
    fn count(&mut self, fd: c_int) {
        if let State::Sealed(file) = &mut self.state {
            usage::count(file, fd, &self.path);
        }
    }

    /// Takes over the file keys that the header has by now.
    pub fn take_over_keys(&mut self, fd: c_int) -> Result<(), Errno> {
        if let Some(file) = self.find_header(fd)? {
            let changed = refresh_of(file, fd);
            changed.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// To be called before another than a write changes the file.
    pub fn will_change(&mut self) {
        manifest::before_write(self.class, &self.path, &mut self.is_told);
    }

    /// Calls `part` with the sealed file and its path. `EINVAL`: the file has no header.
    pub fn with_sealed<T>(
        &mut self,
        part: impl FnOnce(&mut SealedFile, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &mut self.state {
            State::Sealed(file) => part(file, &self.path),
            State::NoHeader(_) => Err(libc::EINVAL),
            State::Damaged(_) => Err(libc::EIO),
            State::Refused(errno) => Err(*errno),
        }
    }

    /// Refuses a write to the WAL that shows that recovery has lost commits.
    fn check_end_of_recovery(
        &mut self,
        fd: c_int,
        scratch: &mut Scratch,
        new: &[u8],
        off: u64,
    ) -> Result<(), Errno> {
        if !wal::is_followed() {
            return Ok(());
        }
        let OpenFile { state, path, maps, .. } = self;
        let storage = FdStorage::with_maps(fd, maps);
        wal::before_write(path, off, new, |target, at| match state {
            State::Sealed(file) => file
                .read_at(&storage, scratch, target, PlainOff(at), OnDamage::Fail)
                .map(|outcome| outcome.len),
            _ => Ok(0),
        })
    }

    /// `read` and `readv`: reads at the position and moves it.
    pub fn read(&mut self, fd: c_int, parts: &mut [&mut [u8]]) -> Result<usize, Errno> {
        let pos = self.position()?;
        let got = self.read_at(fd, parts, pos)?;
        self.pos = Some(pos + got as u64);
        Ok(got)
    }

    /// `write`: writes at the position, or at the end of a file opened for appending.
    pub fn write(&mut self, fd: c_int, buf: &[u8]) -> Result<usize, Errno> {
        let pos = if self.append { self.len(fd)? } else { self.position()? };
        let put = self.write_at(fd, buf, pos)?;
        self.pos = Some(pos + put as u64);
        Ok(put)
    }

    /// The plain length. A file that is shorter than the server left it has the length that it must
    /// have; its missing pages are invalid.
    pub fn len(&mut self, fd: c_int) -> Result<u64, Errno> {
        match self.shortage(fd)? {
            Some(shortage) => Ok(shortage.least),
            None if self.watched.is_some() => Ok(self.seen_len),
            None => self.len_on_disk(fd),
        }
    }

    /// Whether somebody made the file shorter than the server left it. If its length is kept,
    /// `seen_len` is the length that it has.
    fn shortage(&mut self, fd: c_int) -> Result<Option<Shortage>, Errno> {
        let Some(watched) = self.watched else { return Ok(None) };
        self.find_header(fd)?;
        if matches!(self.state, State::Damaged(_)) {
            self.seen_len = self.len_on_disk(fd)?;
            return Ok(None);
        }
        let found = watched.shortage(|| self.len_on_disk(fd), || lengths::is_named(fd))?;
        match found {
            Ok(len) => {
                self.seen_len = len;
                Ok(None)
            }
            Err(shortage) => {
                self.seen_len = shortage.len;
                self.tell_short(shortage);
                Ok(Some(shortage))
            }
        }
    }

    fn tell_short(&mut self, shortage: Shortage) {
        if core::mem::replace(&mut self.is_short_told, true) {
            return;
        }
        counters::add(self.counted, Counter::FailedFiles, 1);
        let (named, Shortage { len, least }) = (Named::of(&self.path), shortage);
        let remedy = named.remedy();
        log::line(format_args!(
            "ERROR: {named}: it has {len} bytes of pages and the server left {least}: somebody cut it while the server runs; its missing pages are handed on as invalid pages, {remedy}"
        ));
    }

    /// To be called before a write up to the offset `end`. Refuses one that would hide that the
    /// file was cut, except in a recovery: that writes what the WAL has, and must not fail.
    fn before_growth(&mut self, fd: c_int, off: u64, end: u64) -> Result<Option<Growth>, Errno> {
        let Some(watched) = self.watched else { return Ok(None) };
        let before = watched.before();
        let grows = end > watched.least(before);
        let is_open = matches!(self.state, State::Sealed(_));
        if is_open && !grows && off <= self.seen_len {
            return Ok(None);
        }
        let mut lost = 0..0;
        if let Some(shortage) = self.shortage(fd)?
            && (shortage.len == 0 || off > shortage.len || grows)
        {
            lost = shortage.lost(off)?;
        }
        Ok(Some(Growth { watched, before: watched.before(), end, lost }))
    }

    fn len_on_disk(&mut self, fd: c_int) -> Result<u64, Errno> {
        let storage = FdStorage::new(fd);
        if let Some(file) = self.find_header(fd)? {
            let len = file.plain_len(&storage);
            return Ok(len.map_err(|error| self.failed(&error))?.0);
        }
        let damage = match &self.state {
            State::Damaged(damage) => **damage,
            State::Refused(errno) => return Err(*errno),
            State::Sealed(_) | State::NoHeader(_) => return Ok(0),
        };
        // Redo asks for the length of a relation before it writes pages to it: the header is
        // renewed here, so that the writes succeed.
        if self.writable && damage.gets_header() {
            let _lock = RangeLock::exclusive(fd)?;
            if self.find_header(fd)?.is_none() {
                self.renew_header(fd, damage)?;
            }
            return self.len_on_disk(fd);
        }
        damage.len(&storage)
    }

    /// `ftruncate`.
    pub fn set_len(&mut self, fd: c_int, len: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(libc::EINVAL);
        }
        let Some(watched) = self.watched else { return self.set_len_on_disk(fd, len) };
        let shortage = self.shortage(fd)?;
        if let Some(shortage) = shortage.filter(|shortage| len > shortage.least) {
            let lost = shortage.lost(len)?;
            if let State::Sealed(file) = &self.state {
                file.pages_are_lost(&FdStorage::new(fd), lost);
            }
        }
        let cutting = watched.will_cut();
        // A file that is shorter already has nothing to be cut off.
        let is_done = shortage.is_some_and(|shortage| shortage.len < len && len <= shortage.least);
        let done = if is_done { Ok(()) } else { self.set_len_on_disk(fd, len) };
        cutting.ended(done.is_ok().then_some(len));
        if done.is_ok() && !is_done {
            self.seen_len = len;
        }
        done
    }

    fn set_len_on_disk(&mut self, fd: c_int, len: u64) -> Result<(), Errno> {
        manifest::before_write(self.class, &self.path, &mut self.is_told);
        let mut buffers = Buffers::get();
        if self.find_header(fd)?.is_none() && self.empty(fd, len)? {
            return Ok(());
        }
        // Extending a file seals the blocks between the old end and the new one: no other process
        // may write there meanwhile.
        self.ensure_header(fd, buffers.scratch())?;
        let inside = self.enter(fd)?;
        let (file, storage) = self.ensure_header(fd, buffers.scratch())?;
        let lock = lock_writers(file, &storage, fd, PlainOff(len), false)?;
        let done = file.set_len(&storage, buffers.scratch(), PlainLen(len), &KernelRandom);
        drop((lock, inside));
        self.count(fd);
        done.map_err(|error| self.failed(&error))
    }

    /// Truncates a file without a usable header to length 0. Returns `false` if `len` is not 0, or
    /// if another process has written a header meanwhile.
    fn empty(&mut self, fd: c_int, len: u64) -> Result<bool, Errno> {
        let sealing = match &self.state {
            State::Damaged(damage) if len == 0 => damage.sealing,
            State::Damaged(_) => return Ok(false),
            State::Refused(errno) => return Err(*errno),
            State::NoHeader(_) | State::Sealed(_) => return Ok(len == 0),
        };
        let _lock = RangeLock::exclusive(fd)?;
        // Another process has written a new header meanwhile. That header stays.
        if self.find_header(fd)?.is_some() {
            return Ok(false);
        }
        // Taken before the file is changed.
        let state = no_header(sealing)?;
        manifest::release(&self.path);
        let emptied = FdStorage::new(fd).set_len(pgseal_core::SealedLen(0));
        emptied.map_err(|error| errno_of(&error))?;
        self.state = state;
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
        // The position moves after SEEK_END as well, with which the server often asks for the
        // length.
        self.pos = Some(target);
        Ok(target)
    }

    /// Logs a failure of the sealed file and gives its `errno`.
    fn failed(&self, error: &SealError) -> Errno {
        counters::failed(self.counted, error);
        describe(error, &self.path)
    }

    /// Whether each call fails.
    pub fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused(_))
    }

    /// The path, for messages.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

fn no_header(sealing: Sealing) -> Result<State, Errno> {
    memory::boxed(sealing).map(State::NoHeader).map_err(|_| libc::ENOMEM)
}

/// Whether several processes may write parts of one block, or neighbouring blocks, at the same
/// time. Pages of relations are protected by PostgreSQL's own locks, and an ephemeral file has one
/// writer.
fn shares_blocks(file: &SealedFile) -> bool {
    let header = file.header();
    header.layout == Layout::Stream && header.generation != Generation::EPHEMERAL
}

/// Whether a failed write may put back the entry of a page as it was, in a file of two keys: that
/// may be an entry of the older key, which must not come back while that key is dropped.
fn may_undo(file: &SealedFile, storage: &FdStorage<'_>, is_whole: bool) -> Result<bool, Errno> {
    if file.header().layout != Layout::Paged || file.header().stage == Stage::Settled {
        return Ok(false);
    }
    let is_even = || file.plain_len(storage).map(|len| len.0.is_multiple_of(geometry::BLOCK_LEN));
    Ok(!is_whole || !is_even().map_err(|_| libc::EIO)?)
}

/// Whether a file belongs to no relation, as the catalogs said when this was first asked.
#[cold]
fn is_orphan(known: &mut Option<bool>, path: &[u8]) -> bool {
    *known.get_or_insert_with(|| named::is_orphan(path))
}

/// How often a read looks at the header again because a page has a key that it does not know.
const KEY_TRIES: usize = 3;

/// As [`SealedFile::refresh`], and logs a failure. A head that does not open may just be written:
/// it is read again under the lock under which headers are written.
#[cold]
fn refresh(file: &mut SealedFile, fd: c_int, path: &[u8]) -> Result<bool, Errno> {
    refresh_of(file, fd).map_err(|error| describe(&error, path))
}

fn refresh_of(file: &mut SealedFile, fd: c_int) -> Result<bool, SealError> {
    let errno = |errno| SealError::Io(std::io::Error::from_raw_os_error(errno));
    let (storage, keys) = (FdStorage::new(fd), load::of_header(file.header()).map_err(errno)?);
    match file.refresh(&storage, keys) {
        Err(SealError::Header(fault)) => match RangeLock::shared(fd) {
            Ok(_lock) => file.refresh(&storage, keys),
            Err(_) => Err(SealError::Header(fault)),
        },
        refreshed => refreshed,
    }
}

/// Takes the lock against other writers if processes may share blocks of the file, or if a file of
/// the sectored layout is about to grow up to `end`: blocks that another process writes meanwhile
/// must not be filled as a gap. `is_whole`: only whole blocks are written.
fn lock_writers(
    file: &mut SealedFile,
    storage: &FdStorage<'_>,
    fd: c_int,
    end: PlainOff,
    is_whole: bool,
) -> Result<Option<RangeLock>, Errno> {
    let is_alone = shares_blocks(file)
        || may_undo(file, storage, is_whole)?
        || file.must_be_alone(storage, end).map_err(|error| match &error {
            SealError::Io(error) => errno_of(error),
            _ => libc::EIO,
        })?;
    is_alone.then(|| RangeLock::exclusive(fd)).transpose()
}

/// Logs an error of the file at `path` and returns its `errno`. I/O errors are not logged here:
/// PostgreSQL reports them.
pub fn describe(error: &SealError, path: &[u8]) -> Errno {
    let errno = match error {
        SealError::Io(error) => return errno_of(error),
        // EACCES, not EIO: the file exists and the key is missing; the disk is not broken.
        SealError::KeyUnknown { .. } => libc::EACCES,
        // PostgreSQL reports these two to its client.
        SealError::OutOfMemory => return libc::ENOMEM,
        SealError::TooLarge => return libc::EFBIG,
        SealError::NotResealable => return libc::EOPNOTSUPP,
        _ => libc::EIO,
    };
    let next = match error {
        SealError::KeyUnknown { .. } => {
            "put the data directory whose keyring has it into PGSEAL_DATA"
        }
        SealError::BlockDamaged(_) if WalSegment::of_name(datadir::base_name(path)).is_some() => {
            "restore this segment from the archive or a standby"
        }
        SealError::BlockDamaged(_) | SealError::BlockOlder(_) | SealError::Header(_) => {
            "run \"pgseal verify\" and restore the file from a backup"
        }
        _ => "please report it",
    };
    let named = Named::of(path);
    match error {
        SealError::BlockDamaged(block) if named.is_relation() => log::line(format_args!(
            "ERROR: block {block} of {named} does not authenticate; the read fails, {}",
            named.remedy()
        )),
        _ => log::line(format_args!("ERROR: {named}: {error}; {next}")),
    }
    errno
}
