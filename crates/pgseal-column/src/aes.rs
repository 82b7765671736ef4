//! AES on single blocks, CBC, CTR and the rounds of FF1, each with a key schedule that is made
//! once.
//!
//! AWS-LC uses the processor's AES instructions or, where there are none, code whose timing does
//! not depend on data. On x86-64 and aarch64, operations that go block by block use the
//! instructions inline instead of calling AWS-LC for each block.

#![allow(unsafe_code)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod instructions;
#[cfg(test)]
mod tests;

use core::fmt;
use core::mem::MaybeUninit;

use pgseal_crypto::sys;

use crate::error::ColumnError;

/// Bytes of an AES block.
pub const BLOCK_BYTES: usize = 16;

/// One AES block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// A key schedule. It lies on the heap, so that it is never moved, and is wiped when dropped.
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
        // SAFETY: `key` has `bits / 8` bytes, and nobody else uses the new schedule.
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

/// The parameters of FF1's Feistel rounds over a number of 2 * `half_bits` bits.
#[derive(Clone, Copy)]
pub(crate) struct Feistel {
    /// CIPH(P), xored with the tweak.
    pub(crate) chain: u128,
    /// Bits of a half, at most 32.
    pub(crate) half_bits: u32,
    /// Number of rounds.
    pub(crate) rounds: u64,
}

/// AES with an encryption key schedule.
pub(crate) struct Aes {
    library: Schedule,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    instructions: Option<Box<instructions::RoundKeys>>,
}

/// Uses the inline instructions if the processor has them, or else AWS-LC.
macro_rules! inline_or {
    ($aes:expr, $keys:ident => $inline:expr, $library:expr) => {{
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some($keys) = &$aes.instructions {
            return $inline;
        }
        $library
    }};
}

impl Aes {
    /// AES-128, -192 or -256 by the length of `key`.
    pub(crate) fn new(key: &[u8]) -> Result<Aes, ColumnError> {
        Ok(Aes {
            library: Schedule::new(key, sys::AES_set_encrypt_key)?,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            instructions: instructions::RoundKeys::new(key),
        })
    }

    /// As [`Aes::new`], but always with AWS-LC.
    #[cfg(test)]
    pub(crate) fn by_library(key: &[u8]) -> Result<Aes, ColumnError> {
        Ok(Aes {
            library: Schedule::new(key, sys::AES_set_encrypt_key)?,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            instructions: None,
        })
    }

    /// Enciphers one block (FIPS 197).
    #[inline]
    pub(crate) fn encrypt(&self, block: &Block) -> Block {
        inline_or!(self, keys => keys.encrypt(block), self.encrypt_by_library(block))
    }

    fn encrypt_by_library(&self, block: &Block) -> Block {
        let mut out = [0; BLOCK_BYTES];
        // SAFETY: both blocks are 16 bytes; the schedule is initialised.
        unsafe { sys::AES_encrypt(block.as_ptr(), out.as_mut_ptr(), self.library.get()) };
        out
    }

    /// CBC-MAC: enciphers `chain` xored with the first block, and so on.
    pub(crate) fn chain(&self, chain: &Block, blocks: &[Block]) -> Block {
        inline_or!(
            self,
            keys => keys.chain(chain, blocks),
            blocks.iter().fold(*chain, |chain, block| self.encrypt(&xor(&chain, block)))
        )
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
        inline_or!(self, keys => { keys.ctr(counter, input, output); Ok(()) }, {
            let (mut counter, mut stream, mut used) = (*counter, [0; BLOCK_BYTES], 0);
            // SAFETY: both buffers have `input.len()` bytes, the blocks 16; the schedule is
            // initialised.
            unsafe {
                sys::AES_ctr128_encrypt(
                    input.as_ptr(),
                    output.as_mut_ptr(),
                    input.len(),
                    self.library.get(),
                    counter.as_mut_ptr(),
                    stream.as_mut_ptr(),
                    &raw mut used,
                );
            }
            Ok(())
        })
    }

    /// Rounds of FF1 forward over the halves A and B (SP 800-38G, algorithm 7, step 6).
    #[inline]
    pub(crate) fn feistel(&self, shape: &Feistel, mut a: u64, mut b: u64) -> (u64, u64) {
        inline_or!(self, keys => keys.feistel(shape, a, b), {
            for i in 0..shape.rounds {
                (a, b) = (b, a.wrapping_add(self.feistel_round(shape, i, b)) & shape.mask());
            }
            (a, b)
        })
    }

    /// Rounds of FF1 backward (algorithm 8, step 6).
    #[inline]
    pub(crate) fn feistel_inverse(&self, shape: &Feistel, mut a: u64, mut b: u64) -> (u64, u64) {
        inline_or!(self, keys => keys.feistel_inverse(shape, a, b), {
            for i in (0..shape.rounds).rev() {
                (a, b) = (b.wrapping_sub(self.feistel_round(shape, i, a)) & shape.mask(), a);
            }
            (a, b)
        })
    }

    /// NUM(S), S being the first 8 bytes of the block that ends with the round and the half.
    fn feistel_round(&self, shape: &Feistel, i: u64, half: u64) -> u64 {
        let round = u128::from(i) << (8 * shape.half_bits.div_ceil(8));
        let block = (shape.chain ^ round ^ u128::from(half)).to_be_bytes();
        (u128::from_be_bytes(self.encrypt(&block)) >> 64) as u64
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
                self.library.get(),
                iv.as_mut_ptr(),
                sys::AES_ENCRYPT,
            );
        }
        Ok(())
    }
}

impl Feistel {
    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }
}

impl fmt::Debug for Aes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AES key")
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

/// The xor of two blocks.
#[inline]
pub(crate) fn xor(a: &Block, b: &Block) -> Block {
    core::array::from_fn(|at| a[at] ^ b[at])
}

fn whole_blocks(input: &[u8], output: &[u8]) -> Result<(), ColumnError> {
    let fits = input.len() == output.len() && input.len().is_multiple_of(BLOCK_BYTES);
    if fits { Ok(()) } else { Err(ColumnError::Internal) }
}
