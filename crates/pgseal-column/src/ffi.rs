//! The C interface: `include/pgseal_column.h` says what each function does.
//!
//! Every pointer is checked for null, and every length against the maximum length of a slice. A
//! panic would be a bug. If the crate is built to unwind, the panic is caught here; if it is built
//! to abort, the panic ends the process.

#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod handles;
mod keys;
mod values;

use core::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::ColumnError;
use pgseal_crypto::fill_random;

pub use keys::*;
pub use values::*;

type Done = Result<(), ColumnError>;

/// Runs the body of a C function and returns its result as a code.
fn call(body: impl FnOnce() -> Done) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.code(),
        Err(_) => ColumnError::Internal.code(),
    }
}

/// A slice from C. An empty slice may have a null pointer.
unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], ColumnError> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(ColumnError::NullPointer);
    }
    if len > isize::MAX as usize {
        return Err(ColumnError::TooLong);
    }
    // SAFETY: not null, and the caller says that `len` bytes may be read there until the call ends.
    Ok(unsafe { core::slice::from_raw_parts(pointer, len) })
}

/// An output buffer from C. An empty buffer may have a null pointer.
unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], ColumnError> {
    if len == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(ColumnError::NullPointer);
    }
    if len > isize::MAX as usize {
        return Err(ColumnError::TooLong);
    }
    // SAFETY: not null, and the caller says that `len` bytes may be written there, by nobody else,
    // until the call ends.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer, len) })
}

/// Writes a result to a pointer from C.
unsafe fn put<T>(pointer: *mut T, value: T) -> Done {
    if pointer.is_null() {
        return Err(ColumnError::NullPointer);
    }
    // SAFETY: not null, and the caller says that a `T` may be written there.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Fails for a null result pointer, before any work is done.
fn need<T>(pointer: *const T) -> Done {
    if pointer.is_null() { Err(ColumnError::NullPointer) } else { Ok(()) }
}

/// `pgseal_column_error_text`.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_column_error_text(code: c_int) -> *const c_char {
    if code == 0 {
        return c"success".as_ptr();
    }
    let known = ColumnError::ALL.iter().find(|error| error.code() == code);
    known.map_or(c"unknown error", |error| error.text()).as_ptr()
}

/// `pgseal_column_abi`.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_column_abi() -> u32 {
    crate::ABI
}

/// `pgseal_column_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_random(out: *mut u8, len: usize) -> c_int {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { bytes_mut(out, len) }?;
        Ok(fill_random(out)?)
    })
}

/// `pgseal_column_wipe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_wipe(out: *mut c_void, len: usize) {
    // SAFETY: the contract of the header.
    if let Ok(out) = unsafe { bytes_mut(out.cast(), len) } {
        zeroize::Zeroize::zeroize(out);
    }
}
