//! Records for each descriptor of this process whether it is a sealed file, plain, or unknown.
//!
//! The table is indexed by descriptor number. Its slots are static memory: a look-up needs no
//! allocation and, for a descriptor that is no sealed file, no lock, so that it also works in a
//! signal handler.
//!
//! A descriptor that the table does not know is examined before a byte goes through
//! ([`crate::file::adopt`]): one that was inherited, received from another process, or made by a
//! system call that no hook saw. An entry is valid for one *generation*. Each call that may have
//! changed descriptors without a hook raises the generation, and the next use of each descriptor
//! then asks the kernel (`fstat(2)`) whether its entry is still right. So a missed open or close
//! does not lead to plaintext in a sealed file.
//!
//! PostgreSQL keeps as many files open as `max_files_per_process` allows. An open sealed file takes
//! more than a kilobyte (header, key schedule, state), so only [`MOST_AWAKE`] of them have that; a
//! file of a relation beyond that *falls asleep* when it was not used for a while: the table keeps
//! its path and its position, and the next call examines it again ([`adopt::wake`]), as if it were
//! opened.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file::adopt;
use crate::file::open_file::{OpenFile, Resumed};
use crate::os::memory::{self, with_reserve};
use crate::os::real;
use crate::os::sys;
use crate::place::head;
use crate::place::program;

/// Descriptors from this number on are refused for sealed files.
const MAX_FDS: usize = 1 << 16;

/// The standard streams: a shell redirects them, often into a file in the data directory.
const STANDARD: core::ops::RangeInclusive<c_int> = 0..=2;

/// A sealed file behind one or more descriptors of this process: `dup` shares the file.
pub type SharedFile = Arc<Mutex<OpenFile>>;

/// Which file a descriptor refers to: `st_dev` and `st_ino`. Zeros: the kernel was not asked.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
}

impl Identity {
    const NONE: Identity = Identity { dev: 0, ino: 0 };

    fn of(st: &libc::stat) -> Identity {
        Identity { dev: st.st_dev, ino: st.st_ino }
    }
}

/// The kinds of entry, in the low two bits of a slot's state; above them is the generation.
const UNKNOWN: u64 = 0;
const PLAIN: u64 = 1;
const SEALED: u64 = 2;
const KIND_BITS: u32 = 2;

/// An empty slot is all zeros, so the table takes no room in the library's file, and untouched
/// pages of it take no memory.
struct Slot {
    /// Generation and kind.
    state: AtomicU64,
    dev: AtomicU64,
    ino: AtomicU64,
    held: Mutex<Held>,
}

/// The part of a slot that belongs to a sealed file.
struct Held {
    entry: Entry,
    /// The state of the file that is asleep, or of the one that was removed from this slot last.
    /// The latter is restored if the descriptor turns out to be still open, because the close was
    /// that of a child that shared this memory.
    state: Option<Resumed>,
}

/// What a slot has of a sealed file.
enum Entry {
    Nothing,
    Awake {
        file: SharedFile,
        /// Whether it was used since [`Seats`] looked at it.
        is_used: bool,
        /// Its seat in [`AWAKE`], if it has one.
        seat: Option<u16>,
    },
    /// The path of a file that is asleep.
    Asleep(Box<[u8]>),
}

impl Held {
    /// The file, if it is awake.
    fn awake(&mut self) -> Option<SharedFile> {
        let Entry::Awake { file, is_used, .. } = &mut self.entry else { return None };
        *is_used = true;
        Some(file.clone())
    }

    /// Replaces the entry. The caller drops the one before when the slot is not locked any more.
    fn replace(&mut self, fd: c_int, entry: Entry) -> Entry {
        let before = core::mem::replace(&mut self.entry, entry);
        if let Entry::Awake { seat, .. } = before {
            AWAKE.leave(seat, fd);
        }
        before
    }

    /// Lets the file fall asleep if nobody uses it now or has used it lately. The caller drops what
    /// is returned when the slot is not locked any more.
    fn fall_asleep(&mut self, fd: c_int) -> Option<Entry> {
        let Entry::Awake { file, is_used, .. } = &mut self.entry else { return None };
        if core::mem::take(is_used) {
            return None;
        }
        // No call is under way, and no other descriptor has the file.
        let open = Arc::get_mut(file)?.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (path, state) = open.fall_asleep()?;
        self.state = Some(state);
        Some(self.replace(fd, Entry::Asleep(path)))
    }
}

/// How many sealed files of a process are awake at most, but for those that may not sleep.
const MOST_AWAKE: usize = 512;

/// The descriptors of the files that are awake, each plus 1; 0: the seat is free.
struct Seats {
    seats: [AtomicI32; MOST_AWAKE],
    taken: AtomicUsize,
    /// The seat that is looked at next.
    hand: AtomicUsize,
}

static AWAKE: Seats = Seats {
    seats: [const { AtomicI32::new(0) }; MOST_AWAKE],
    taken: AtomicUsize::new(0),
    hand: AtomicUsize::new(0),
};

impl Seats {
    /// A seat for a file that is about to be awake. If all are taken, another file falls asleep
    /// that was not used since the hand came to it the last time. `None`: all must stay awake.
    fn take(&self, fd: c_int) -> Option<u16> {
        for _ in 0..2 * MOST_AWAKE {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % MOST_AWAKE;
            let other = self.seats[at].load(Ordering::Acquire);
            if other != 0 && self.taken.load(Ordering::Acquire) >= MOST_AWAKE {
                put_to_sleep(other - 1);
            }
            // A file that fell asleep has left its seat.
            let free =
                self.seats[at].compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                self.taken.fetch_add(1, Ordering::AcqRel);
                return u16::try_from(at).ok();
            }
        }
        None
    }

    fn leave(&self, seat: Option<u16>, fd: c_int) {
        let Some(seat) = seat.and_then(|seat| self.seats.get(seat as usize)) else { return };
        let order = Ordering::AcqRel;
        if seat.compare_exchange(fd + 1, 0, order, Ordering::Relaxed).is_ok() {
            self.taken.fetch_sub(1, order);
        }
    }
}

fn put_to_sleep(fd: c_int) {
    // Whoever holds the lock is using the file.
    let before = slot(fd).and_then(|slot| slot.held.try_lock().ok()?.fall_asleep(fd));
    drop(before);
}

impl Slot {
    const fn new() -> Slot {
        let held = Held { entry: Entry::Nothing, state: None };
        Slot {
            state: AtomicU64::new(UNKNOWN),
            dev: AtomicU64::new(0),
            ino: AtomicU64::new(0),
            held: Mutex::new(held),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> Identity {
        Identity { dev: self.dev.load(Ordering::Relaxed), ino: self.ino.load(Ordering::Relaxed) }
    }

    fn set(&self, kind: u64, identity: Identity) {
        self.dev.store(identity.dev, Ordering::Relaxed);
        self.ino.store(identity.ino, Ordering::Relaxed);
        self.state.store(GENERATION.load(Ordering::Acquire) << KIND_BITS | kind, Ordering::Release);
    }
}

static TABLE: [Slot; MAX_FDS] = [const { Slot::new() }; MAX_FDS];
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// The highest descriptor that was ever entered; `remove_range` stops there.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// The table has no room for this descriptor.
#[derive(Debug)]
pub struct TooMany;

fn slot(fd: c_int) -> Option<&'static Slot> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The sealed file behind a descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<SharedFile> {
    let Some(slot) = slot(fd) else { return beyond_the_table(fd) };
    let generation = GENERATION.load(Ordering::Acquire);
    let state = slot.state.load(Ordering::Acquire);
    if state == generation << KIND_BITS | PLAIN {
        return None;
    }
    if state == generation << KIND_BITS | SEALED
        && let Some(file) = slot.held().awake()
    {
        return Some(file);
    }
    look(fd, slot, state & 3)
}

/// Asks the kernel about a descriptor that has no entry, or one of an older generation.
#[cold]
fn look(fd: c_int, slot: &'static Slot, kind: u64) -> Option<SharedFile> {
    if !program::active() {
        return None;
    }
    let errno = real::errno();
    let file = look_with(fd, slot, kind);
    real::set_errno(errno);
    file
}

fn look_with(fd: c_int, slot: &'static Slot, kind: u64) -> Option<SharedFile> {
    // If the descriptor is not open, the real call reports the error.
    let st = sys::fstat(fd)?;
    let identity = Identity::of(&st);
    let same = identity == slot.identity();
    let regular = sys::is_regular(st.st_mode);
    if kind == SEALED && same && regular {
        let awake = slot.held().awake();
        let file = awake.or_else(|| wake(fd, slot));
        if file.is_some() {
            slot.set(SEALED, identity);
            return file;
        }
    }
    if !regular || (kind == PLAIN && same) {
        enter(fd);
        slot.set(PLAIN, identity);
        return None;
    }
    match adopt::examine(fd) {
        None => {
            enter(fd);
            slot.set(PLAIN, identity);
            None
        }
        Some(mut open) => {
            let last = slot.held().state.filter(|_| same);
            if let Some(state) = last {
                open.resume(state);
            }
            // Without memory for the entry, the slot stays unknown and the call fails.
            let Ok(file) = memory::shared(Mutex::new(open)) else { return Some(refused()) };
            set_awake(fd, slot, file.clone());
            enter(fd);
            slot.set(SEALED, identity);
            Some(file)
        }
    }
}

/// A descriptor above the table is examined on each call. If its file is sealed, the call fails
/// with EMFILE.
#[cold]
fn beyond_the_table(fd: c_int) -> Option<SharedFile> {
    if fd < 0 || !program::active() {
        return None;
    }
    let errno = real::errno();
    let regular = sys::fstat(fd).is_some_and(|st| sys::is_regular(st.st_mode));
    let file = if regular { adopt::examine(fd) } else { None };
    let file = file.map(|file| {
        with_reserve(|| Arc::new(Mutex::new(OpenFile::refused(libc::EMFILE, file.path()))))
    });
    real::set_errno(errno);
    file
}

/// Enters a file that is awake into a slot, and replaces what is there.
fn set_awake(fd: c_int, slot: &'static Slot, file: SharedFile) {
    let seat = AWAKE.take(fd);
    let before = slot.held().replace(fd, Entry::Awake { file, is_used: true, seat });
    drop(before);
}

/// The file in this slot that fell asleep, awake again. `None`: there is none.
#[cold]
fn wake(fd: c_int, slot: &'static Slot) -> Option<SharedFile> {
    // Another file makes room first.
    let seat = AWAKE.take(fd);
    let mut held = slot.held();
    let (Entry::Asleep(path), Some(state)) = (&held.entry, held.state) else {
        // Another thread was faster.
        AWAKE.leave(seat, fd);
        return held.awake();
    };
    let open = adopt::wake(fd, path, state);
    let is_refused = open.is_refused();
    let Ok(file) = memory::shared(Mutex::new(open)) else {
        AWAKE.leave(seat, fd);
        return Some(refused());
    };
    if is_refused {
        // The next call tries again.
        AWAKE.leave(seat, fd);
        return Some(file);
    }
    let entry = Entry::Awake { file: file.clone(), is_used: true, seat };
    let before = held.replace(fd, entry);
    drop(held);
    drop(before);
    Some(file)
}

/// Stands in for a sealed file while there is no memory to open it: each call fails with ENOMEM.
fn refused() -> SharedFile {
    with_reserve(|| Arc::new(Mutex::new(OpenFile::refused(libc::ENOMEM, b""))))
}

fn enter(fd: c_int) {
    HIGHEST.fetch_max(fd, Ordering::AcqRel);
}

/// Whether a descriptor is a sealed file.
#[inline]
pub fn is_sealed(fd: c_int) -> bool {
    get(fd).is_some()
}

/// Enters a sealed file under a descriptor and replaces any earlier entry.
pub fn insert(fd: c_int, file: SharedFile) -> Result<(), TooMany> {
    let slot = slot(fd).ok_or(TooMany)?;
    let identity = sys::fstat(fd).map_or(Identity::NONE, |st| Identity::of(&st));
    set_awake(fd, slot, file);
    enter(fd);
    slot.set(SEALED, identity);
    Ok(())
}

/// Enters a descriptor as plain, because the verdict on its path was to pass.
#[inline]
pub fn set_plain(fd: c_int) {
    set_plain_as(fd, Identity::NONE);
}

/// Enters a descriptor as plain for as long as it refers to this file.
pub fn keep_plain(fd: c_int, st: &libc::stat) {
    set_plain_as(fd, Identity::of(st));
}

fn set_plain_as(fd: c_int, identity: Identity) {
    let Some(slot) = slot(fd) else { return };
    if slot.state.load(Ordering::Acquire) & 3 == SEALED {
        remove(fd);
    }
    enter(fd);
    slot.set(PLAIN, identity);
}

/// Removes the entry of a descriptor. Called before the close, because the number may be reused at
/// once.
#[inline]
pub fn remove(fd: c_int) {
    let Some(slot) = slot(fd) else { return };
    if slot.state.load(Ordering::Acquire) == UNKNOWN {
        return;
    }
    if slot.state.swap(UNKNOWN, Ordering::AcqRel) & 3 == SEALED {
        let mut held = slot.held();
        let entry = held.replace(fd, Entry::Nothing);
        match &entry {
            // If the lock is held, a call on this file is in progress, and its position is not
            // saved.
            Entry::Awake { file, .. } => {
                held.state = file.try_lock().ok().and_then(|file| file.resumed());
            }
            Entry::Nothing => held.state = None,
            Entry::Asleep(_) => {}
        }
        drop(held);
        drop(entry);
    }
}

/// Removes the entries of all descriptors from `first` to `last`.
pub fn remove_range(first: c_int, last: c_int) {
    let end = last.min(HIGHEST.load(Ordering::Acquire));
    for fd in first.max(0)..=end {
        remove(fd);
    }
}

/// Called when descriptors may have changed without a hook: from now on each entry is checked
/// against the kernel before its next use.
#[inline]
pub fn doubt_all() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Enters the standard streams that this program was started with as plain, unless they start with
/// a sealed header: the caller chose where they go, and `pg_ctl -l` often names a file in the data
/// directory.
pub fn keep_standard_streams() {
    if !program::active() {
        return;
    }
    for fd in STANDARD {
        if let Some(st) = sys::fstat(fd)
            && sys::is_regular(st.st_mode)
            && !head::starts_sealed(fd)
        {
            keep_plain(fd, &st);
        }
    }
}

/// Locks an open file.
pub fn lock(file: &SharedFile) -> MutexGuard<'_, OpenFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}
