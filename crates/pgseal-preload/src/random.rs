//! Random bytes, drawn anew for each use.
//!
//! Nothing is drawn in advance: a batch in memory would be used twice when a machine is resumed
//! twice from one snapshot, and a nonce that repeats gives away pages and lets tags be forged.
//! Nobody tells a program that its machine was cloned; the kernel knows (`vmgenid`), and mixes it
//! in. Its generator in the vDSO ([`Shortcut`], Linux 6.11) knows as well, and of `fork`, and
//! costs a few dozen nanoseconds; elsewhere each draw is a `getrandom(2)`.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use std::sync::{Mutex, TryLockError};

use pgseal_core::random::{Random, RandomFailed};

use crate::module::Module;
use crate::real;

/// The generator of this process.
pub struct KernelRandom;

/// The vDSO's `getrandom`: buffer, its length, flags, state, the length of a state.
type Draw = unsafe extern "C" fn(*mut c_void, usize, c_uint, *mut c_void, usize) -> isize;

const NAME: &core::ffi::CStr =
    if cfg!(target_arch = "aarch64") { c"__kernel_getrandom" } else { c"__vdso_getrandom" };

/// The kernel's generator without a system call. Its state lies in memory of a kind that the kernel
/// empties in a child, and in no core dump; it is made anew after that, and when the kernel's own
/// generator was.
struct Shortcut {
    draw: Draw,
    state: NonNull<c_void>,
    len: usize,
}

// SAFETY: the state is memory of the process, and only touched under the mutex.
unsafe impl Send for Shortcut {}

/// `struct vgetrandom_opaque_params` of `linux/random.h`.
#[repr(C)]
#[derive(Default)]
struct Params {
    size_of_state: u32,
    mmap_prot: u32,
    mmap_flags: u32,
    reserved: [u32; 13],
}

impl Shortcut {
    fn find() -> Option<Shortcut> {
        let address = Module::of_vdso()?.exported(NAME).ok()??;
        // SAFETY: the kernel's function of this name and signature.
        let draw = unsafe { core::mem::transmute::<usize, Draw>(address) };
        let mut params = Params::default();
        let ask: *mut c_void = (&raw mut params).cast();
        // SAFETY: this length of a state asks for the parameters.
        if unsafe { draw(ptr::null_mut(), 0, 0, ask, usize::MAX) } != 0 {
            return None;
        }
        let (len, page) = (params.size_of_state as usize, real::page_size());
        // A state lies within one page.
        if len == 0 || len > page {
            return None;
        }
        let (prot, flags) = (params.mmap_prot as c_int, params.mmap_flags as c_int);
        // SAFETY: an anonymous map, at an address of the kernel's choice, as the kernel wants it.
        let state = unsafe { real::mmap(ptr::null_mut(), page, prot, flags, -1, 0) };
        if state == libc::MAP_FAILED {
            return None;
        }
        Some(Shortcut { draw, state: NonNull::new(state)?, len })
    }

    /// Fills all of `bytes`, or nothing is said of them.
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer is valid for its length, the state is one, and nobody else's now.
        let got = unsafe { (self.draw)(into, bytes.len(), 0, self.state.as_ptr(), self.len) };
        usize::try_from(got) == Ok(bytes.len())
    }
}

/// `None`: nobody has looked. `Some(None)`: the kernel has none.
static SHORTCUT: Mutex<Option<Option<Shortcut>>> = Mutex::new(None);

fn fill_quickly(bytes: &mut [u8]) -> bool {
    // Another thread draws, or drew when this process was forked off: do not wait for it.
    let mut shortcut = match SHORTCUT.try_lock() {
        Ok(shortcut) => shortcut,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    let shortcut = shortcut.get_or_insert_with(Shortcut::find);
    shortcut.as_mut().is_some_and(|shortcut| shortcut.fill(bytes))
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
        if fill_quickly(bytes) { Ok(()) } else { fill_from_kernel(bytes) }
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

    /// Where the kernel has it, it is used: else each page that is written costs a system call.
    #[test]
    fn the_shortcut_is_found_where_the_kernel_has_it() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let version = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
        if version < (6, 11) || cfg!(target_arch = "aarch64") && version < (6, 12) {
            return;
        }
        let mut shortcut = Shortcut::find().unwrap();
        let (mut first, mut second) = ([0; 300], [0; 300]);
        assert!(shortcut.fill(&mut first) && shortcut.fill(&mut second));
        assert_ne!(first[..], second[..]);
        assert_ne!(first[200..], [0; 100]);
    }
}
