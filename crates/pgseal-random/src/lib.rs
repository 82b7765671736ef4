//! Random bytes from the kernel, drawn when they are used and never in advance.
//!
//! If a machine is resumed twice from one snapshot, both copies would use the same random bytes
//! that lie in memory. A nonce that is used twice reveals plaintext and allows forged tags. A
//! program does not learn that its machine was cloned, but the kernel does (`vmgenid`), and the
//! kernel also knows of `fork`. So does the kernel's generator in the vDSO (Linux 6.11 and later),
//! which takes a few dozen nanoseconds. Where it is missing, each draw calls `getrandom(2)`.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use std::io;
use std::sync::{Mutex, TryLockError};

mod vdso;

/// The kernel gives no random bytes, for example in a sandbox that forbids `getrandom(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFailed;

/// The vDSO's `getrandom`: buffer, its length, flags, state, the length of a state.
type Draw = unsafe extern "C" fn(*mut c_void, usize, c_uint, *mut c_void, usize) -> isize;

const NAME: &CStr =
    if cfg!(target_arch = "aarch64") { c"__kernel_getrandom" } else { c"__vdso_getrandom" };

/// The kernel's generator in the vDSO, which needs no system call. Its state lies in memory that
/// the kernel zeroes in a child process and leaves out of core dumps. The generator makes a new
/// state after that, and whenever the kernel's own generator is reseeded.
struct VdsoGenerator {
    draw: Draw,
    state: NonNull<c_void>,
    len: usize,
}

// SAFETY: the state is memory of the process, and is used only under the mutex.
unsafe impl Send for VdsoGenerator {}

/// `struct vgetrandom_opaque_params` of `linux/random.h`.
#[repr(C)]
#[derive(Default)]
struct Params {
    size_of_state: u32,
    mmap_prot: u32,
    mmap_flags: u32,
    reserved: [u32; 13],
}

impl VdsoGenerator {
    fn find() -> Option<VdsoGenerator> {
        let address = vdso::function(NAME)?;
        // SAFETY: the kernel's function of this name and signature.
        let draw = unsafe { core::mem::transmute::<usize, Draw>(address) };
        let mut params = Params::default();
        let ask: *mut c_void = (&raw mut params).cast();
        // SAFETY: with `usize::MAX` as the length of the state, the function only writes `params`.
        if unsafe { draw(ptr::null_mut(), 0, 0, ask, usize::MAX) } != 0 {
            return None;
        }
        // SAFETY: no pointers involved.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let len = params.size_of_state as usize;
        // The state must lie within one page.
        if len == 0 || len > page {
            return None;
        }
        let (prot, flags) = (params.mmap_prot as c_int, params.mmap_flags as c_int);
        // SAFETY: an anonymous map with the kernel's flags, at an address that the kernel chooses.
        let state = unsafe { libc::mmap(ptr::null_mut(), page, prot, flags, -1, 0) };
        if state == libc::MAP_FAILED {
            return None;
        }
        Some(VdsoGenerator { draw, state: NonNull::new(state)?, len })
    }

    /// Fills all of `bytes` and returns `true`. If it returns `false`, their content is undefined.
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer is valid for its length; the state is initialised, and `&mut self`
        // excludes every other user of it.
        let got = unsafe { (self.draw)(into, bytes.len(), 0, self.state.as_ptr(), self.len) };
        usize::try_from(got) == Ok(bytes.len())
    }
}

/// `None` before the first use. `Some(None)` if the kernel has no such generator.
static GENERATOR: Mutex<Option<Option<VdsoGenerator>>> = Mutex::new(None);

fn fill_by_vdso(bytes: &mut [u8]) -> bool {
    // If another thread holds the lock, do not wait: in a forked child, the lock may be held by a
    // thread that exists only in the parent.
    let mut generator = match GENERATOR.try_lock() {
        Ok(generator) => generator,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    let generator = generator.get_or_insert_with(VdsoGenerator::find);
    generator.as_mut().is_some_and(|generator| generator.fill(bytes))
}

fn fill_by_getrandom(bytes: &mut [u8]) -> Result<(), RandomFailed> {
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

/// Fills `bytes` with random bytes. A child of `fork()` does not draw the same bytes, nor does a
/// clone of the machine, as soon as its kernel knows that it is a clone.
///
/// # Errors
/// [`RandomFailed`] if the kernel refuses.
pub fn fill(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    if fill_by_vdso(bytes) { Ok(()) } else { fill_by_getrandom(bytes) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_child_never_repeats_its_parents_bytes() {
        let mut first = [0; 12];
        fill(&mut first).unwrap();
        let mut pipe = [0; 2];
        // SAFETY: `pipe` has room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child only draws random bytes, writes to the pipe and leaves.
        let child = unsafe { libc::fork() };
        let mut drawn = [0_u8; 12];
        if child == 0 {
            let _ = fill(&mut drawn);
            // SAFETY: `drawn` is valid for reads.
            unsafe { libc::write(pipe[1], drawn.as_ptr().cast(), 12) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut own = [0_u8; 12];
        fill(&mut own).unwrap();
        // SAFETY: `drawn` is valid for writes.
        assert_eq!(unsafe { libc::read(pipe[0], drawn.as_mut_ptr().cast(), 12) }, 12);
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        assert!(first != own && own != drawn && own != [0; 12] && drawn != [0; 12]);
    }

    #[test]
    fn draws_differ() {
        let mut seen = HashSet::new();
        for (at, len) in (12..300).cycle().step_by(13).take(3000).enumerate() {
            let mut bytes = vec![0; len];
            if at % 2 == 0 { fill(&mut bytes) } else { fill_by_getrandom(&mut bytes) }.unwrap();
            // The buffer was filled to its end.
            assert!(bytes[len - 12..] != [0; 12] && seen.insert(bytes));
        }
    }

    /// Without the vDSO generator, each page that is written costs a system call.
    #[test]
    fn the_vdso_generator_is_found_if_the_kernel_has_it() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let version = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
        if version < (6, 11) || cfg!(target_arch = "aarch64") && version < (6, 12) {
            return;
        }
        let mut generator = VdsoGenerator::find().unwrap();
        let (mut first, mut second) = ([0; 300], [0; 300]);
        assert!(generator.fill(&mut first) && generator.fill(&mut second));
        assert!(first != second && first[200..] != [0; 100]);
    }
}
