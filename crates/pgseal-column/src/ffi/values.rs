//! The C functions that are called once for each value.

use core::ffi::c_int;

use super::handles::borrow;
use super::{Done, bytes, bytes_mut, call, need, put};
use crate::error::ColumnError;
use crate::header::{Header, Mode};
use crate::key::{ColumnKey, NumberCode, TypeCode};
use crate::raw::RawKey;

/// Defines a C function of FF1. They differ in the type of the number and in the direction.
macro_rules! ff1 {
    ($name:ident, $method:ident, $number:ty, $result:expr) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            key: *const ColumnKey,
            type_code: u32,
            input: $number,
            output: *mut $number,
        ) -> c_int {
            call(|| {
                let type_code = NumberCode::new(type_code)?;
                // SAFETY: the contract of the header.
                let result = unsafe { borrow(key) }?.$method(type_code, input);
                // SAFETY: the contract of the header.
                unsafe { put(output, $result(result)?) }
            })
        }
    };
}

ff1!(pgseal_column_ff1_encrypt32, encrypt32, u32, Ok::<_, ColumnError>);
ff1!(pgseal_column_ff1_decrypt32, decrypt32, u32, Ok::<_, ColumnError>);
ff1!(pgseal_column_ff1_encrypt64, encrypt64, u64, Ok::<_, ColumnError>);
ff1!(pgseal_column_ff1_decrypt64, decrypt64, u64, Ok::<_, ColumnError>);
ff1!(pgseal_column_ff1_encrypt60, encrypt60, u64, core::convert::identity);
ff1!(pgseal_column_ff1_decrypt60, decrypt60, u64, core::convert::identity);

/// `pgseal_column_inspect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_inspect(
    sealed: *const u8,
    sealed_len: usize,
    mode: *mut c_int,
    key_version: *mut u32,
    plain_len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the contract of the header.
        let (header, body) = Header::parse(unsafe { bytes(sealed, sealed_len) }?)?;
        let len = body.len().saturating_sub(header.mode.overhead_bytes());
        if !mode.is_null() {
            // SAFETY: the contract of the header.
            unsafe { put(mode, header.mode as c_int) }?;
        }
        if !key_version.is_null() {
            // SAFETY: the contract of the header.
            unsafe { put(key_version, header.key_version) }?;
        }
        if !plain_len.is_null() {
            // SAFETY: the contract of the header.
            unsafe { put(plain_len, len) }?;
        }
        Ok(())
    })
}

unsafe fn sealed_len(key: *const ColumnKey, mode: Mode, plain_len: usize) -> usize {
    // SAFETY: the contract of the header.
    unsafe { borrow(key) }.map_or(0, |key| key.sealed_len(mode, plain_len))
}

/// `pgseal_column_det_sealed_len`; 0 for a null key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_det_sealed_len(
    key: *const ColumnKey,
    plain_len: usize,
) -> usize {
    // SAFETY: the contract of the header.
    unsafe { sealed_len(key, Mode::Deterministic, plain_len) }
}

/// `pgseal_column_rnd_sealed_len`; 0 for a null key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_rnd_sealed_len(
    key: *const ColumnKey,
    plain_len: usize,
) -> usize {
    // SAFETY: the contract of the header.
    unsafe { sealed_len(key, Mode::Randomised, plain_len) }
}

/// An input and an output buffer, and where the length of the output goes.
struct Buffers {
    input: *const u8,
    input_len: usize,
    output: *mut u8,
    output_cap: usize,
    output_len: *mut usize,
}

impl Buffers {
    unsafe fn run(
        &self,
        work: impl FnOnce(&[u8], &mut [u8]) -> Result<usize, ColumnError>,
    ) -> Done {
        need(self.output_len)?;
        // SAFETY: the contract of the header.
        let input = unsafe { bytes(self.input, self.input_len) }?;
        // SAFETY: the contract of the header: it does not overlap the input.
        let output = unsafe { bytes_mut(self.output, self.output_cap) }?;
        let len = work(input, output)?;
        // SAFETY: the contract of the header.
        unsafe { put(self.output_len, len) }
    }
}

/// Sealing and opening differ in direction and mode.
macro_rules! authenticated {
    ($name:ident, $method:ident, $mode:ident) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            key: *const ColumnKey,
            type_code: u32,
            input: *const u8,
            input_len: usize,
            output: *mut u8,
            output_cap: usize,
            output_len: *mut usize,
        ) -> c_int {
            call(|| {
                // SAFETY: the contract of the header.
                let key = unsafe { borrow(key) }?;
                let code = TypeCode::new(type_code)?;
                let buffers = Buffers { input, input_len, output, output_cap, output_len };
                // SAFETY: the contract of the header.
                unsafe {
                    buffers.run(|input, output| key.$method(Mode::$mode, code, input, output))
                }
            })
        }
    };
}

authenticated!(pgseal_column_det_seal, seal, Deterministic);
authenticated!(pgseal_column_det_open, open, Deterministic);
authenticated!(pgseal_column_rnd_seal, seal, Randomised);
authenticated!(pgseal_column_rnd_open, open, Randomised);

/// Both directions of raw AES.
macro_rules! raw {
    ($name:ident, $method:ident) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            raw: *const RawKey,
            iv: *const u8,
            iv_len: usize,
            input: *const u8,
            input_len: usize,
            output: *mut u8,
            output_cap: usize,
            output_len: *mut usize,
        ) -> c_int {
            call(|| {
                // SAFETY: the contract of the header.
                let raw = unsafe { borrow(raw) }?;
                // SAFETY: the contract of the header.
                let iv = unsafe { bytes(iv, iv_len) }?;
                let buffers = Buffers { input, input_len, output, output_cap, output_len };
                // SAFETY: the contract of the header.
                unsafe { buffers.run(|input, output| raw.$method(iv, input, output)) }
            })
        }
    };
}

raw!(pgseal_column_raw_encrypt, encrypt);
raw!(pgseal_column_raw_decrypt, decrypt);
