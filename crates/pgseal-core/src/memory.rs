//! Memory that may be missing.
//!
//! What Rust's standard library allocates on its own ends the process when there is no memory. In a
//! server that would end every session for the sake of one. So this crate takes memory in two ways:
//! with the `try_reserve` of a vector, and with the functions here, which stable Rust does not have.

#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};

use zeroize::Zeroize;

/// There is no memory. Nothing was done.
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
        // Takes no memory.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout has a size.
    let place = unsafe { alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: fresh memory of the layout of `T`.
    unsafe { place.write(value) };
    // SAFETY: it has a value, is nobody else's, and is from the allocator that a box frees it with.
    Ok(unsafe { Box::from_raw(place) })
}

/// `vec![0; len]`, or an error. As there, the zeros are fresh from the allocator: large memory costs
/// something as it is used, not at once.
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
    // SAFETY: memory of the global allocator, `len` bytes that all have a value, aligned as bytes are.
    Ok(unsafe { Vec::from_raw_parts(place, len, len) })
}

/// A copy of bytes, or an error.
pub fn copied(bytes: &[u8]) -> Result<Box<[u8]>, OutOfMemory> {
    let mut copy = zeros(bytes.len())?;
    copy.copy_from_slice(bytes);
    // Its capacity is its length: nothing is allocated here.
    Ok(copy.into_boxed_slice())
}

/// From now on AWS-LC takes its memory from Rust's global allocator, which the library has made one
/// with a reserve. Called once, before anything is sealed.
pub fn use_for_ciphers() {
    // SAFETY: three functions that keep what AWS-LC expects of its own.
    unsafe {
        aws_lc_sys::CRYPTO_set_mem_functions(Some(take), Some(take_again), Some(give_back));
    }
}

/// Bytes before a piece of AWS-LC's memory, for its length. As AWS-LC has them, so that it may give
/// back here what it took before.
const PREFIX: usize = 16;

fn with_prefix(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(PREFIX)?, PREFIX).ok()
}

unsafe extern "C" fn take(len: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    let Some(layout) = with_prefix(len) else { return core::ptr::null_mut() };
    // SAFETY: the layout has a size.
    let start = unsafe { alloc(layout) };
    if start.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: within the memory, and aligned.
    unsafe { start.cast::<usize>().write(len) };
    // SAFETY: as above.
    unsafe { start.add(PREFIX) }.cast()
}

/// The length of a piece, and where it starts.
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
    unsafe { core::slice::from_raw_parts_mut(piece.cast::<u8>(), len) }.zeroize();
    let Some(layout) = with_prefix(len) else { return };
    // SAFETY: taken with this layout.
    unsafe { dealloc(start, layout) };
}

unsafe extern "C" fn take_again(
    piece: *mut c_void,
    len: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void {
    // SAFETY: as in C.
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
    fn values_are_what_they_were() {
        assert_eq!(*boxed([7_u64; 3]).unwrap(), [7; 3]);
        assert_eq!(*boxed(()).unwrap(), ());
        assert_eq!(boxed(String::from("dropped once")).unwrap().len(), 12);
        assert_eq!(zeros(0).unwrap(), [0; 0]);
        assert_eq!(zeros(3).unwrap(), [0; 3]);
        assert_eq!(*copied(b"ab").unwrap(), *b"ab");
    }
}
