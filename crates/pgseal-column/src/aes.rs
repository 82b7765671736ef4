//! The AES block of AWS-LC with a kept key schedule, and the modes over it that have one.
//!
//! AWS-LC uses the processor's AES instructions, or else code whose timing does not depend on data.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;

use aws_lc_sys as sys;

use crate::error::ColumnError;

/// Bytes of an AES block.
pub const BLOCK_BYTES: usize = 16;

/// One AES block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// A key schedule, on the heap so that it is never moved; wiped when dropped.
struct Schedule(Box<MaybeUninit<sys::AES_KEY>>);

type SetKey = unsafe extern "C" fn(*const u8, core::ffi::c_uint, *mut sys::AES_KEY) -> i32;

impl Schedule {
    /// Expands a key of 16, 24 or 32 bytes.
    fn new(key: &[u8], set_key: SetKey) -> Result<Schedule, ColumnError> {
        let bits = match key.len() {
            16 => 128,
            24 => 192,
            32 => 256,
            _ => return Err(ColumnError::KeyLength),
        };
        let mut schedule = Schedule(Box::new(MaybeUninit::zeroed()));
        // SAFETY: `key` has `bits / 8` bytes; the schedule is ours, for writing.
        let failed = unsafe { set_key(key.as_ptr(), bits, schedule.0.as_mut_ptr()) };
        if failed == 0 { Ok(schedule) } else { Err(ColumnError::Internal) }
    }

    fn get(&self) -> *const sys::AES_KEY {
        self.0.as_ptr()
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        let len = size_of::<sys::AES_KEY>();
        // SAFETY: the schedule is ours and `len` bytes long.
        unsafe { sys::OPENSSL_cleanse(self.0.as_mut_ptr().cast(), len) };
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AES key")
    }
}

/// AES with an encryption key schedule.
#[derive(Debug)]
pub(crate) struct Aes(Schedule);

impl Aes {
    /// AES-128, -192 or -256 by the length of `key`.
    pub(crate) fn new(key: &[u8]) -> Result<Aes, ColumnError> {
        Schedule::new(key, sys::AES_set_encrypt_key).map(Aes)
    }

    /// Enciphers one block (FIPS 197).
    #[inline]
    pub(crate) fn encrypt(&self, block: &Block) -> Block {
        let mut out = [0; BLOCK_BYTES];
        // SAFETY: both blocks are 16 bytes; the schedule is initialised.
        unsafe { sys::AES_encrypt(block.as_ptr(), out.as_mut_ptr(), self.0.get()) };
        out
    }

    /// CTR mode (SP 800-38A) with a 128-bit big-endian counter, from `input` to `output`.
    pub(crate) fn ctr(
        &self,
        counter: &Block,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), ColumnError> {
        if input.len() != output.len() {
            return Err(ColumnError::Internal);
        }
        let (mut counter, mut stream, mut used) = (*counter, [0; BLOCK_BYTES], 0);
        // SAFETY: both buffers have `input.len()` bytes, the blocks 16; the schedule is initialised.
        unsafe {
            sys::AES_ctr128_encrypt(
                input.as_ptr(),
                output.as_mut_ptr(),
                input.len(),
                self.0.get(),
                counter.as_mut_ptr(),
                stream.as_mut_ptr(),
                &raw mut used,
            );
        }
        Ok(())
    }

    /// CBC mode (SP 800-38A) of whole blocks; `iv` becomes the last ciphertext block.
    pub(crate) fn cbc_encrypt(
        &self,
        iv: &mut Block,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), ColumnError> {
        whole_blocks(input, output)?;
        // SAFETY: both buffers have `input.len()` bytes, the IV 16; the schedule is for encrypting.
        unsafe {
            sys::AES_cbc_encrypt(
                input.as_ptr(),
                output.as_mut_ptr(),
                input.len(),
                self.0.get(),
                iv.as_mut_ptr(),
                sys::AES_ENCRYPT,
            );
        }
        Ok(())
    }
}

/// AES with a decryption key schedule.
#[derive(Debug)]
pub(crate) struct AesInverse(Schedule);

impl AesInverse {
    /// AES-128, -192 or -256 by the length of `key`.
    pub(crate) fn new(key: &[u8]) -> Result<AesInverse, ColumnError> {
        Schedule::new(key, sys::AES_set_decrypt_key).map(AesInverse)
    }

    /// Deciphers one block (FIPS 197).
    pub(crate) fn decrypt(&self, block: &Block) -> Block {
        let mut out = [0; BLOCK_BYTES];
        // SAFETY: both blocks are 16 bytes; the schedule is initialised for decryption.
        unsafe { sys::AES_decrypt(block.as_ptr(), out.as_mut_ptr(), self.0.get()) };
        out
    }

    /// CBC mode (SP 800-38A) of whole blocks.
    pub(crate) fn cbc_decrypt(
        &self,
        iv: &Block,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), ColumnError> {
        whole_blocks(input, output)?;
        let mut iv = *iv;
        // SAFETY: both buffers have `input.len()` bytes, the IV 16; the schedule is for decrypting.
        unsafe {
            sys::AES_cbc_encrypt(
                input.as_ptr(),
                output.as_mut_ptr(),
                input.len(),
                self.0.get(),
                iv.as_mut_ptr(),
                sys::AES_DECRYPT,
            );
        }
        Ok(())
    }
}

fn whole_blocks(input: &[u8], output: &[u8]) -> Result<(), ColumnError> {
    let fits = input.len() == output.len() && input.len().is_multiple_of(BLOCK_BYTES);
    if fits { Ok(()) } else { Err(ColumnError::Internal) }
}
