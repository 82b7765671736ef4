//! Lets whoever changes the file keys of a file wait until no write is under way by a process that
//! does not know of the change (`spec/sealed-file.md`, section 6.1).
//!
//! Each write of pages enters the gate of its file, and then looks whether a header behind that
//! gate has changed since this process read its header. Whoever has written a header counts the
//! change and then waits until all are out who may have entered before. Who enters later sees the
//! change. Files share gates by their random identity: then a process looks at a header once too
//! often.
//!
//! The same memory has counters of resealings.
//! The postmaster makes the memory before its first fork. Without it no file gets another key.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::os::log;
use crate::os::sys;

const GATES: usize = 1024;

/// How long a change of a header waits for writes that are under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate, on a cache line of its own.
#[repr(C, align(64))]
#[derive(Default)]
struct Gate {
    /// How often a header behind this gate was changed.
    changes: AtomicU64,
    /// On which side the next write enters. There are two, so that a wait for one of them ends.
    side: AtomicU64,
    /// Writes that are under way, by side.
    inside: [AtomicU64; 2],
    /// How often the gate was emptied because all processes had been killed.
    emptied: AtomicU64,
}

/// What the processes of a server share.
#[repr(C)]
struct Shared {
    gates: [Gate; GATES],
    /// How often a file came so near to the limit of its key that it is to get a new one.
    asked: AtomicU64,
    /// How many workers have come to the end of a resealing.
    ended: AtomicU64,
    /// How many files they left with two keys, or with their old one.
    failed: AtomicU64,
}

/// Null before [`share`].
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn gates() -> Option<&'static [Gate; GATES]> {
    Some(&shared()?.gates)
}

fn gate(file_id: &[u8; 16]) -> Option<&'static Gate> {
    let number = u16::from_le_bytes([file_id[0], file_id[1]]) as usize;
    gates()?.get(number % GATES)
}

/// A write that is under way.
pub struct Inside {
    gate: &'static Gate,
    side: usize,
    emptied: u64,
    /// How often a header behind the gate had been changed when the write entered.
    pub changes: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.gate.emptied.load(Ordering::Relaxed) == self.emptied {
            self.gate.inside[self.side].fetch_sub(1, Ordering::Release);
        }
    }
}

impl Gate {
    #[inline]
    fn enter(&'static self) -> Inside {
        let emptied = self.emptied.load(Ordering::Relaxed);
        let side = (self.side.load(Ordering::Relaxed) & 1) as usize;
        // Before the look at the changes: either this write sees a change, or the change sees it.
        self.inside[side].fetch_add(1, Ordering::SeqCst);
        Inside { gate: self, side, emptied, changes: self.changes.load(Ordering::SeqCst) }
    }

    /// Counts a change, and waits until each write that entered before is out.
    fn change(&self, patience: Duration) -> Result<(), TooLong> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + patience;
        for side in [0, 1] {
            self.side.store(1 - side, Ordering::SeqCst);
            while self.inside[side as usize].load(Ordering::SeqCst) != 0 {
                if Instant::now() > end {
                    return Err(TooLong);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }
}

/// Enters the gate of a file, before its header is looked at and a page is sealed. `None`: there
/// are no gates, and so no file keys change.
#[inline]
pub fn enter(file_id: &[u8; 16]) -> Option<Inside> {
    Some(gate(file_id)?.enter())
}

/// A write did not end in time.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// To be called after the header of a file was written: counts the change, and waits until no write
/// is under way that does not know it. The caller holds no lock of the file.
pub fn header_has_changed(file_id: &[u8; 16]) -> Result<(), TooLong> {
    gate(file_id).ok_or(TooLong)?.change(PATIENCE)
}

/// Whether this process shares gates with the others of its server.
pub fn is_shared() -> bool {
    gates().is_some()
}

/// Empties the gates: a recovery begins, and a process may have been killed while it wrote.
pub fn forget() {
    for gate in gates().into_iter().flatten() {
        gate.emptied.fetch_add(1, Ordering::SeqCst);
        gate.inside.iter().for_each(|side| side.store(0, Ordering::SeqCst));
    }
}

/// Asks for new keys for files that come near the limit of theirs.
pub fn ask_for_keys() {
    if let Some(shared) = shared() {
        shared.asked.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often [`ask_for_keys`] was called since the server started.
pub fn asked_for_keys() -> u64 {
    shared().map_or(0, |shared| shared.asked.load(Ordering::Relaxed))
}

/// A worker has come to its end, and has left so many files with two keys, or with their old one.
pub fn resealing_ended(failed: u64) {
    if let Some(shared) = shared() {
        shared.failed.fetch_add(failed, Ordering::Relaxed);
        shared.ended.fetch_add(1, Ordering::Release);
    }
}

/// How often [`resealing_ended`] was called since the server started, and the sum of the files.
pub fn resealings() -> [u64; 2] {
    shared().map_or([0; 2], |shared| {
        [shared.ended.load(Ordering::Acquire), shared.failed.load(Ordering::Relaxed)]
    })
}

/// Makes the shared memory. The postmaster calls this once, before it forks.
pub fn share() {
    if is_shared() {
        return;
    }
    match sys::shared_memory(size_of::<Shared>()) {
        Ok(map) => SHARED.store(map.cast(), Ordering::Release),
        Err(errno) => log::line(format_args!(
            "WARNING: no shared memory for changes of file keys (errno {errno}); no file can be resealed before the next start"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const SHORT: Duration = Duration::from_millis(50);

    fn gate() -> &'static Gate {
        Box::leak(Box::default())
    }

    #[test]
    fn a_change_waits_for_writes_of_before_and_for_no_later_ones() {
        let gate = gate();
        assert_eq!(gate.change(SHORT), Ok(()));
        for _ in 0..3 {
            let before = gate.enter();
            assert_eq!(gate.change(SHORT), Err(TooLong));
            let later = gate.enter();
            assert!(later.changes > before.changes);
            drop(before);
            drop(later);
            assert_eq!(gate.change(SHORT), Ok(()));
        }
    }

    /// A write that is under way when a change has returned knows the change.
    #[test]
    fn no_write_outlasts_a_change_that_it_does_not_know() {
        let gate = gate();
        static STOP: AtomicBool = AtomicBool::new(false);
        // What each writer knows while it writes; 0: it does not write.
        static KNOWN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
        let writers: Vec<_> = KNOWN
            .iter()
            .map(|known| {
                std::thread::spawn(move || {
                    while !STOP.load(Ordering::Relaxed) {
                        let inside = gate.enter();
                        known.store(inside.changes + 1, Ordering::SeqCst);
                        std::hint::spin_loop();
                        known.store(0, Ordering::SeqCst);
                        drop(inside);
                    }
                })
            })
            .collect();
        for number in 1..=500 {
            assert_eq!(gate.change(PATIENCE), Ok(()));
            for known in &KNOWN {
                let known = known.load(Ordering::SeqCst);
                assert!(known == 0 || known > number, "{known} at change {number}");
            }
        }
        STOP.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(gate.inside.iter().all(|side| side.load(Ordering::SeqCst) == 0));
    }
}
