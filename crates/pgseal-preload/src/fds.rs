//! Which descriptors of this process are sealed files.
//!
//! A table indexed by descriptor number. A slot, once made, is never freed, so that a look-up is
//! one atomic load and needs no lock: descriptors that are no sealed files (sockets, pipes, the
//! self-pipe of a signal handler) never touch one.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file::OpenFile;

/// Descriptors beyond this are refused for sealed files.
const MAX_FDS: usize = 1 << 16;

struct Slot {
    in_use: AtomicBool,
    file: Mutex<Option<SharedFile>>,
}

/// A sealed file as one or more descriptors of this process see it (`dup` shares it).
pub type SharedFile = Arc<Mutex<OpenFile>>;

static TABLE: [AtomicPtr<Slot>; MAX_FDS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_FDS];

/// The table has no room for this descriptor.
#[derive(Debug)]
pub struct TooMany;

fn slot(fd: c_int) -> Option<&'static Slot> {
    let cell = TABLE.get(usize::try_from(fd).ok()?)?;
    let slot = cell.load(Ordering::Acquire);
    // SAFETY: a slot in the table was leaked by `claim` and lives for ever.
    unsafe { slot.as_ref() }
}

fn claim(fd: c_int) -> Option<&'static Slot> {
    if let Some(slot) = slot(fd) {
        return Some(slot);
    }
    let cell = TABLE.get(usize::try_from(fd).ok()?)?;
    let fresh =
        Box::into_raw(Box::new(Slot { in_use: AtomicBool::new(false), file: Mutex::new(None) }));
    let raced =
        cell.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    if raced.is_err() {
        // SAFETY: another thread was first; ours was never shared.
        drop(unsafe { Box::from_raw(fresh) });
    }
    slot(fd)
}

/// The sealed file behind a descriptor.
#[inline]
pub fn get(fd: c_int) -> Option<SharedFile> {
    let slot = slot(fd)?;
    if !slot.in_use.load(Ordering::Acquire) {
        return None;
    }
    slot.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a descriptor is a sealed file.
#[inline]
pub fn is_sealed(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.in_use.load(Ordering::Acquire))
}

/// Enters a file under a descriptor, in the place of what was there.
pub fn insert(fd: c_int, file: SharedFile) -> Result<(), TooMany> {
    let slot = claim(fd).ok_or(TooMany)?;
    *slot.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    slot.in_use.store(true, Ordering::Release);
    Ok(())
}

/// Forgets a descriptor; before it is closed, because its number may be handed out at once.
#[inline]
pub fn remove(fd: c_int) {
    if let Some(slot) = slot(fd)
        && slot.in_use.swap(false, Ordering::AcqRel)
    {
        *slot.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Forgets all descriptors from `first` to `last`.
pub fn remove_range(first: c_int, last: c_int) {
    let end = usize::try_from(last).unwrap_or(MAX_FDS).min(MAX_FDS - 1);
    for fd in usize::try_from(first).unwrap_or(0)..=end {
        if let Ok(fd) = c_int::try_from(fd) {
            remove(fd);
        }
    }
}

/// Locks an open file.
pub fn lock(file: &SharedFile) -> MutexGuard<'_, OpenFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}
