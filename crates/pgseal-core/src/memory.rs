//! Allocation that returns an error when there is no memory.
//!
//! Allocations of Rust's standard library end the process when there is no memory. In a server,
//! that would end every session because of one. So this crate allocates in two ways: with the
//! `try_reserve` of a vector, and with the functions here, for which stable Rust has no equivalent.

#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::sync::OnceLock;

use pgseal_crypto::sys;

/// There is no memory. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<std::collections::TryReserveError> for OutOfMemory {
    fn from(_: std::collections::TryReserveError) -> OutOfMemory {
        OutOfMemory
    }
}

/// `Box::new`, or an error.
pub fn boxed<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        // A value without size needs no allocation.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout has a size.
    let place = unsafe { alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: fresh memory of the layout of `T`.
    unsafe { place.write(value) };
    // SAFETY: the memory holds a value, has no other owner, and is from the allocator with which a
    // box frees its memory.
    Ok(unsafe { Box::from_raw(place) })
}

/// `vec![0; len]`, or an error. As with `vec!`, the allocator supplies the zeros, so large memory
/// costs time only as it is used.
pub fn zeros(len: usize) -> Result<Vec<u8>, OutOfMemory> {
    let layout = Layout::array::<u8>(len).map_err(|_| OutOfMemory)?;
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size.
    let place = unsafe { alloc_zeroed(layout) };
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: memory of the global allocator: `len` initialised bytes, with the alignment of bytes.
    Ok(unsafe { Vec::from_raw_parts(place, len, len) })
}

/// A copy of bytes, or an error.
pub fn copied(bytes: &[u8]) -> Result<Box<[u8]>, OutOfMemory> {
    let mut copy = zeros(bytes.len())?;
    copy.copy_from_slice(bytes);
    // The capacity equals the length, so this allocates nothing.
    Ok(copy.into_boxed_slice())
}

/// The allocator of memory for keys: for [`KeyBytes`] and for all allocations of AWS-LC, most of
/// which are key schedules.
#[derive(Clone, Copy)]
pub struct KeyMemory {
    /// Allocates, as [`alloc`] does.
    pub take: unsafe fn(Layout) -> *mut u8,
    /// Frees, as [`dealloc`] does, also memory that came from the global allocator. The caller has
    /// wiped the memory.
    pub give: unsafe fn(*mut u8, Layout),
}

static KEY_MEMORY: OnceLock<KeyMemory> = OnceLock::new();

fn key_memory() -> KeyMemory {
    KEY_MEMORY.get().copied().unwrap_or(KeyMemory { take: alloc, give: dealloc })
}

/// Makes `memory` the allocator for keys from now on. Called once, before anything is sealed.
pub fn use_for_keys(memory: KeyMemory) {
    if KEY_MEMORY.set(memory).is_ok() {
        // SAFETY: the three functions keep the contract of AWS-LC's own allocation functions.
        unsafe {
            sys::CRYPTO_set_mem_functions(Some(take), Some(take_again), Some(give_back));
        }
    }
}

/// A key in memory for keys ([`KeyMemory`]). The key is never moved, and is wiped when it is
/// dropped.
pub struct KeyBytes<const N: usize>(NonNull<[u8; N]>);

// SAFETY: a key owns its memory, as a box does.
unsafe impl<const N: usize> Send for KeyBytes<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for KeyBytes<N> {}

impl<const N: usize> KeyBytes<N> {
    /// A key of zeros, or an error.
    pub fn zeros() -> Result<KeyBytes<N>, OutOfMemory> {
        const { assert!(N > 0) };
        // SAFETY: the layout has a size.
        let place = unsafe { (key_memory().take)(Layout::new::<[u8; N]>()) };
        let place = NonNull::new(place.cast::<[u8; N]>()).ok_or(OutOfMemory)?;
        // SAFETY: fresh memory of this length.
        unsafe { place.write([0; N]) };
        Ok(KeyBytes(place))
    }
}

impl<const N: usize> Deref for KeyBytes<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        // SAFETY: valid as long as this lives.
        unsafe { self.0.as_ref() }
    }
}

impl<const N: usize> DerefMut for KeyBytes<N> {
    fn deref_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: valid as long as this lives, and borrowed mutably.
        unsafe { self.0.as_mut() }
    }
}

impl<const N: usize> Drop for KeyBytes<N> {
    fn drop(&mut self) {
        let place = self.0.as_ptr().cast::<u8>();
        // SAFETY: our own memory of this length.
        unsafe { wipe(place, N) };
        // SAFETY: taken with this layout, and not used after this.
        unsafe { (key_memory().give)(place, Layout::new::<[u8; N]>()) };
    }
}

/// Writes zeros that no optimisation removes, eight bytes at a time where possible: this runs each
/// time a file is closed.
///
/// # Safety
/// `place` is valid for writes of `len` bytes.
unsafe fn wipe(place: *mut u8, len: usize) {
    let (words, bytes) =
        if place.cast::<u64>().is_aligned() { (len / 8, len % 8) } else { (0, len) };
    for at in 0..words {
        // SAFETY: within the memory, and aligned.
        let word = unsafe { place.cast::<u64>().add(at) };
        // SAFETY: as above.
        unsafe { word.write_volatile(0) };
    }
    for at in len - bytes..len {
        // SAFETY: within the memory.
        let byte = unsafe { place.add(at) };
        // SAFETY: as above.
        unsafe { byte.write_volatile(0) };
    }
    compiler_fence(Ordering::SeqCst);
}

/// Bytes before each piece of memory of AWS-LC, which hold its length. AWS-LC uses the same prefix,
/// so that pieces that it allocated before [`use_for_keys`] can be freed here.
const PREFIX: usize = 16;

fn with_prefix(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(PREFIX)?, PREFIX).ok()
}

unsafe extern "C" fn take(len: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    let Some(layout) = with_prefix(len) else { return core::ptr::null_mut() };
    // SAFETY: the layout has a size.
    let start = unsafe { (key_memory().take)(layout) };
    if start.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: within the memory, and aligned.
    unsafe { start.cast::<usize>().write(len) };
    // SAFETY: as above.
    unsafe { start.add(PREFIX) }.cast()
}

/// The start of the allocation of a piece, and the length of the piece.
///
/// # Safety
/// `piece` is from [`take`], and not given back.
unsafe fn prefix_of(piece: *mut c_void) -> (*mut u8, usize) {
    // SAFETY: the caller's contract.
    let start = unsafe { piece.cast::<u8>().sub(PREFIX) };
    // SAFETY: as above.
    (start, unsafe { start.cast::<usize>().read() })
}

unsafe extern "C" fn give_back(piece: *mut c_void, _file: *const c_char, _line: c_int) {
    if piece.is_null() {
        return;
    }
    // SAFETY: AWS-LC gives back what it took.
    let (start, len) = unsafe { prefix_of(piece) };
    // SAFETY: the piece is valid for its length; it may hold a key.
    unsafe { wipe(piece.cast(), len) };
    let Some(layout) = with_prefix(len) else { return };
    // SAFETY: taken with this layout.
    unsafe { (key_memory().give)(start, layout) };
}

unsafe extern "C" fn take_again(
    piece: *mut c_void,
    len: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void {
    // SAFETY: `take` accepts every length.
    let longer = unsafe { take(len, file, line) };
    if !longer.is_null() && !piece.is_null() {
        // SAFETY: AWS-LC passes a piece that it took.
        let (_, had) = unsafe { prefix_of(piece) };
        // SAFETY: both are valid for the shorter length, and different memory.
        unsafe { core::ptr::copy_nonoverlapping(piece.cast::<u8>(), longer.cast(), had.min(len)) };
        // SAFETY: not used any more.
        unsafe { give_back(piece, file, line) };
    }
    longer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_memory_for_is_an_error() {
        assert_eq!(zeros(usize::MAX / 2), Err(OutOfMemory));
        assert_eq!(zeros(usize::MAX), Err(OutOfMemory));
    }

    #[test]
    fn all_of_a_key_is_wiped() {
        for (from, len) in [(0, 64), (0, 63), (3, 40), (1, 1), (8, 0)] {
            let mut memory = [0xAA_u8; 80];
            let part = &mut memory[from..from + len];
            // SAFETY: valid for its length.
            unsafe { wipe(part.as_mut_ptr(), part.len()) };
            for (at, byte) in memory.iter().enumerate() {
                assert_eq!(*byte == 0, (from..from + len).contains(&at), "{from} {len} {at}");
            }
        }
        let mut key = KeyBytes::<64>::zeros().unwrap();
        key.fill(7);
        assert_eq!(*key, [7; 64]);
    }

    #[test]
    fn values_are_what_they_were() {
        assert_eq!(*boxed([7_u64; 3]).unwrap(), [7; 3]);
        assert_eq!(*boxed(()).unwrap(), ());
        assert_eq!(boxed(String::from("dropped once")).unwrap().len(), 12);
        assert_eq!(zeros(0).unwrap(), [0; 0]);
        assert_eq!(zeros(3).unwrap(), [0; 3]);
        assert_eq!(*copied(b"ab").unwrap(), *b"ab");
    }
}
