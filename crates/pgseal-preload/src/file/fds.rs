//! What each descriptor of this process is: a sealed file, plain, or unknown.
//!
//! A table indexed by descriptor number. Its slots are static memory: a look-up needs no allocation
//! and, for what is no sealed file, no lock, so that it also works in a signal handler.
//!
//! What the table does not know is examined before a byte goes through
//! ([`crate::file::adopt`]): a descriptor that was inherited, received from another process, or
//! made by a system call that no hook saw. An entry is good for one *generation*. Whatever may
//! have changed descriptors behind the table's back raises the generation, and the next use of
//! each descriptor then asks the kernel (`fstat(2)`) whether the entry still fits. So the table
//! heals itself: that no plaintext is written does not rest on having seen every open and close.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file::adopt;
use crate::file::open_file::{OpenFile, Resumed};
use crate::os::memory::{self, with_reserve};
use crate::os::real;
use crate::os::sys;
use crate::place::head;
use crate::place::program;

/// Descriptors beyond this are refused for sealed files.
const MAX_FDS: usize = 1 << 16;

/// The descriptors that a shell redirects, often into a file beside the data it is about.
const STANDARD: core::ops::RangeInclusive<c_int> = 0..=2;

/// A sealed file as one or more descriptors of this process see it (`dup` shares it).
pub type SharedFile = Arc<Mutex<OpenFile>>;

/// Which file a descriptor refers to: `st_dev` and `st_ino`. Zeros: not asked for.
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

/// Zeros are an empty slot: the table takes no room in the library's file, and no memory where
/// nobody looked.
struct Slot {
    /// Generation and kind.
    state: AtomicU64,
    dev: AtomicU64,
    ino: AtomicU64,
    held: Mutex<Held>,
}

/// What a slot has of a sealed file.
struct Held {
    file: Option<SharedFile>,
    /// What the kernel does not know of the file that was here last, should its descriptor turn
    /// out to be open still: the close was that of a child that shared this memory.
    last: Identity,
    resumed: Resumed,
}

impl Slot {
    const fn new() -> Slot {
        let held = Held { file: None, last: Identity::NONE, resumed: Resumed::START };
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
/// The highest number that was ever entered: no search goes beyond it.
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
        && let Some(file) = slot.held().file.clone()
    {
        return Some(file);
    }
    look(fd, slot, state & 3)
}

/// Asks the kernel what a descriptor is, of which the table knows nothing or nothing of late.
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
    // Not open: the call itself says so.
    let st = sys::fstat(fd)?;
    let identity = Identity::of(&st);
    let same = identity == slot.identity();
    let regular = sys::is_regular(st.st_mode);
    if kind == SEALED && same && regular {
        let file = slot.held().file.clone();
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
            let mut held = slot.held();
            if held.last == identity {
                open.resume(held.resumed);
            }
            // Without memory for it nothing is known of the descriptor, and the call fails.
            let Ok(file) = memory::shared(Mutex::new(open)) else { return Some(refused()) };
            held.file = Some(file.clone());
            enter(fd);
            slot.set(SEALED, identity);
            Some(file)
        }
    }
}

/// A descriptor with a number that no slot has is examined each time.
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

/// What stands for a sealed file while there is no memory to open it: its calls say so.
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

/// Enters a file under a descriptor; an entry that was there is replaced.
pub fn insert(fd: c_int, file: SharedFile) -> Result<(), TooMany> {
    let slot = slot(fd).ok_or(TooMany)?;
    let identity = sys::fstat(fd).map_or(Identity::NONE, |st| Identity::of(&st));
    let before = slot.held().file.replace(file);
    drop(before);
    enter(fd);
    slot.set(SEALED, identity);
    Ok(())
}

/// Enters a descriptor that the verdict on its path let pass.
#[inline]
pub fn set_plain(fd: c_int) {
    set_plain_as(fd, Identity::NONE);
}

/// Enters a descriptor as plain for as long as it is this very file.
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

/// Forgets a descriptor; before it is closed, because its number may be handed out at once.
#[inline]
pub fn remove(fd: c_int) {
    let Some(slot) = slot(fd) else { return };
    if slot.state.load(Ordering::Acquire) == UNKNOWN {
        return;
    }
    if slot.state.swap(UNKNOWN, Ordering::AcqRel) & 3 == SEALED {
        let mut held = slot.held();
        let file = held.file.take();
        // The holder of the lock is in the middle of a call: then nothing is known of the file.
        let resumed = file.as_ref().and_then(|file| file.try_lock().ok()?.resumed());
        held.last = if resumed.is_some() { slot.identity() } else { Identity::NONE };
        held.resumed = resumed.unwrap_or(Resumed::START);
        drop(held);
        drop(file);
    }
}

/// Forgets all descriptors from `first` to `last`.
pub fn remove_range(first: c_int, last: c_int) {
    let end = last.min(HIGHEST.load(Ordering::Acquire));
    for fd in first.max(0)..=end {
        remove(fd);
    }
}

/// Descriptors may have changed, and no hook saw how: from now on each entry is held against the
/// kernel before it is used again.
#[inline]
pub fn doubt_all() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Lets the standard streams that this program was started with pass if they are plain: the program
/// that started it chose where they go, and `pg_ctl -l` often names a file in the data directory.
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
