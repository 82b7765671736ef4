//! Random bytes in batches, from the kernel, that no child inherits.
//!
//! A nonce is needed for every page that is written; a system call for each would be the dearest
//! part of it. The batch lies in a page that the kernel zeroes in a forked child
//! (`MADV_WIPEONFORK`), and the count of what is left lies in the same page: a child starts empty.

use core::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use pgseal_core::random::{Random, RandomFailed};

use crate::real;

/// The generator of this process.
pub struct KernelRandom;

struct Batch {
    page: NonNull<u8>,
    len: usize,
}

// SAFETY: the page belongs to the batch alone and is only touched under the mutex.
unsafe impl Send for Batch {}

static BATCH: Mutex<Option<Batch>> = Mutex::new(None);
/// The first bytes of the page count the random bytes that are left.
const COUNT: usize = 8;

impl Batch {
    /// A fresh page, or `None` where the kernel cannot promise to wipe it: then every request
    /// goes to the kernel.
    fn new() -> Option<Batch> {
        let len = real::page_size();
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let page = unsafe { real::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is ours and of this length.
        let wiped = unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) };
        // SAFETY: as above. Best effort: keeps the batch out of core dumps.
        unsafe { libc::madvise(page, len, libc::MADV_DONTDUMP) };
        (wiped == 0).then_some(Batch { page: NonNull::new(page.cast())?, len })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes, ours alone, and borrowed mutably through `self`.
        unsafe { core::slice::from_raw_parts_mut(self.page.as_ptr(), self.len) }
    }

    fn take(&mut self, out: &mut [u8]) -> Result<(), RandomFailed> {
        let page = self.bytes();
        let (head, body) = page.split_at_mut(COUNT);
        let mut count = [0; COUNT];
        count.copy_from_slice(head);
        let mut left = (u64::from_le_bytes(count) as usize).min(body.len());
        if left < out.len() {
            fill_from_kernel(body)?;
            left = body.len();
        }
        let from = &mut body[left - out.len()..left];
        out.copy_from_slice(from);
        from.fill(0);
        head.copy_from_slice(&((left - out.len()) as u64).to_le_bytes());
        Ok(())
    }
}

fn fill_from_kernel(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: `rest` is valid for writes of its length.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => done += got,
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(RandomFailed),
        }
    }
    Ok(())
}

impl Random for KernelRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        if bytes.len() > 256 {
            return fill_from_kernel(bytes);
        }
        let mut batch = BATCH.lock().unwrap_or_else(PoisonError::into_inner);
        if batch.is_none() {
            *batch = Batch::new();
        }
        match batch.as_mut() {
            Some(batch) => batch.take(bytes),
            None => fill_from_kernel(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_never_repeats_its_parents_bytes() {
        let mut first = [0; 12];
        KernelRandom.fill(&mut first).unwrap();
        let mut pipe = [0; 2];
        // SAFETY: `pipe` has room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child only draws random bytes, writes to the pipe and leaves.
        let child = unsafe { libc::fork() };
        let mut drawn = [0_u8; 12];
        if child == 0 {
            let _ = KernelRandom.fill(&mut drawn);
            // SAFETY: `drawn` is valid for reads.
            unsafe { real::write(pipe[1], drawn.as_ptr().cast(), 12) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut own = [0_u8; 12];
        KernelRandom.fill(&mut own).unwrap();
        // SAFETY: `drawn` is valid for writes.
        assert_eq!(unsafe { real::read(pipe[0], drawn.as_mut_ptr().cast(), 12) }, 12);
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        assert_ne!(own, drawn);
        assert_ne!(own, [0; 12]);
        assert_ne!(drawn, [0; 12]);
    }
}
