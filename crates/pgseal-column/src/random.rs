//! Random bytes: nonces, column keys, salts. No forked child gets those of its parent.
//!
//! The generator is the kernel's (getrandom): that of AWS-LC gathers entropy of its own for a tenth of a second in every
//! new process, which each connection would pay. A system call takes several times what sealing takes, so
//! small draws come from a batch. It lies in a page that the kernel zeroes in a forked child
//! (`MADV_WIPEONFORK`), and the count of what is left lies in the same page: a child starts empty.

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use std::io;
use std::sync::{Mutex, TryLockError};

/// The generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFailed;

/// Bytes of the batch, a page of every machine that we know or a part of it.
const BATCH_BYTES: usize = 4096;
/// The first bytes count the random ones that are left.
const COUNT_BYTES: usize = 8;
/// Larger draws go to the generator.
const MAX_FROM_BATCH: usize = 64;

struct Batch(NonNull<[u8; BATCH_BYTES]>);

// SAFETY: the mapping belongs to the batch alone and is only touched under the mutex.
unsafe impl Send for Batch {}

enum State {
    New,
    /// The kernel does not promise to wipe it: every draw goes to the generator.
    Unsupported,
    Ready(Batch),
}

static STATE: Mutex<State> = Mutex::new(State::New);

impl Batch {
    fn new() -> Option<Batch> {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address of the kernel's choice; zeros.
        let page = unsafe { libc::mmap(ptr::null_mut(), BATCH_BYTES, prot, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is ours and of this length. Best effort: keeps the batch out of core dumps.
        unsafe { libc::madvise(page, BATCH_BYTES, libc::MADV_DONTDUMP) };
        // SAFETY: as above.
        let wiped = unsafe { libc::madvise(page, BATCH_BYTES, libc::MADV_WIPEONFORK) } == 0;
        if !wiped {
            // SAFETY: the mapping is ours, and nothing points to it.
            unsafe { libc::munmap(page, BATCH_BYTES) };
        }
        NonNull::new(page.cast()).filter(|_| wiped).map(Batch)
    }

    fn take(&mut self, out: &mut [u8]) -> Result<(), RandomFailed> {
        // SAFETY: the mapping has this length, is ours, and is borrowed mutably through `self`.
        let bytes = unsafe { self.0.as_mut() };
        let (count, batch) = bytes.split_at_mut(COUNT_BYTES);
        let mut number = [0; COUNT_BYTES];
        number.copy_from_slice(count);
        let mut left = u64::from_le_bytes(number) as usize;
        if left < out.len() || left > batch.len() {
            // Nothing is left if the generator fails half way.
            count.fill(0);
            generate(batch)?;
            left = batch.len();
        }
        let left_after = left.checked_sub(out.len()).ok_or(RandomFailed)?;
        let from = batch.get_mut(left_after..left).ok_or(RandomFailed)?;
        out.copy_from_slice(from);
        from.fill(0);
        count.copy_from_slice(&(left_after as u64).to_le_bytes());
        Ok(())
    }
}

/// The generator of the kernel.
fn generate(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: `rest` is valid for writes of its length.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => rest = rest.get_mut(got..).ok_or(RandomFailed)?,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(RandomFailed),
        }
    }
    Ok(())
}

/// Fills `bytes` with random ones that nobody else gets, also not after `fork()`.
///
/// # Errors
/// [`RandomFailed`] when the kernel refuses (a sandbox without getrandom).
pub fn fill_random(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    if bytes.len() > MAX_FROM_BATCH {
        return generate(bytes);
    }
    // Another thread draws, or drew when this process was forked off: do not wait for it.
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return generate(bytes),
    };
    if matches!(*state, State::New) {
        *state = Batch::new().map_or(State::Unsupported, State::Ready);
    }
    match &mut *state {
        State::Ready(batch) => batch.take(bytes),
        _ => generate(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_never_repeats_its_parents_bytes() {
        let draw = || {
            let mut bytes = [0_u8; 12];
            fill_random(&mut bytes).unwrap();
            bytes
        };
        let first = draw();
        let mut pipe = [0; 2];
        // SAFETY: `pipe` has room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // Held, so that no other thread's draw is under way in the child.
        let state = STATE.lock().unwrap();
        let State::Ready(batch) = &*state else { panic!("this kernel does not wipe on fork") };
        // SAFETY: the batch is alive and locked.
        let left_here = unsafe { &batch.0.as_ref()[..COUNT_BYTES] }.to_vec();
        // SAFETY: the child reads the batch, writes to the pipe and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child has its own copy of the mapping, which nobody writes.
            let bytes = unsafe { batch.0.as_ref() };
            let empty = [u8::from(bytes.iter().all(|byte| *byte == 0))];
            // SAFETY: one byte is valid for reads.
            unsafe { libc::write(pipe[1], empty.as_ptr().cast(), 1) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        drop(state);
        let mut empty = [2_u8];
        // SAFETY: one byte is valid for writes.
        assert_eq!(unsafe { libc::read(pipe[0], empty.as_mut_ptr().cast(), 1) }, 1);
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        assert_eq!(empty, [1], "the child's batch is empty");
        assert_ne!(left_here, [0; COUNT_BYTES], "the parent's is not");
        assert!(first != draw() && first != [0; 12]);
    }

    #[test]
    fn draws_differ_over_many_batches() {
        let mut seen = std::collections::HashSet::new();
        for len in (1..=MAX_FROM_BATCH).cycle().skip(11).step_by(13).take(3000) {
            let mut bytes = vec![0; len.max(12)];
            fill_random(&mut bytes).unwrap();
            assert!(seen.insert(bytes));
        }
    }
}
