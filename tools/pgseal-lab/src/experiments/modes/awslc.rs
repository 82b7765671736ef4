//! AWS-LC as `pgseal-core` calls it: GCM and the other AEADs through `aws-lc-rs`; the modes that
//! `aws-lc-rs` does not offer through `EVP_Cipher` with a kept context.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::{self, NonNull};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_sys as sys;

use super::algorithm::{Algorithm, Direction, Mode};
use super::work::{Work, WorkError, filler, sha256_hex};

const NONCE: [u8; 12] = [0x3c; 12];
const IV: [u8; 16] = [0x3c; 16];
const TAG_LEN: usize = 16;

/// `AWS-LC 1.2.3`.
pub fn version() -> String {
    // SAFETY: 0 is OPENSSL_VERSION; the call returns a static string that ends with a zero byte.
    let pointer = unsafe { sys::OpenSSL_version(0) };
    if pointer.is_null() {
        return "AWS-LC".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Whether AWS-LC encrypts with AES instructions.
pub fn has_aes_instructions() -> bool {
    // SAFETY: the call has no conditions.
    unsafe { sys::EVP_has_aes_hardware() == 1 }
}

/// Prepares a cipher for measurement.
pub fn cipher(
    algorithm: Algorithm,
    direction: Direction,
    bytes: usize,
) -> Result<Box<dyn Work>, WorkError> {
    match aead_of(algorithm) {
        Some(aead) => Ok(Box::new(Sealing::new(aead, direction, bytes)?)),
        None => Ok(Box::new(Evp::new(algorithm, direction, bytes)?)),
    }
}

fn aead_of(algorithm: Algorithm) -> Option<&'static aead::Algorithm> {
    match (algorithm.mode, algorithm.key_bits) {
        (Mode::Gcm, 128) => Some(&aead::AES_128_GCM),
        (Mode::Gcm, 192) => Some(&aead::AES_192_GCM),
        (Mode::Gcm, _) => Some(&aead::AES_256_GCM),
        (Mode::GcmSiv, 128) => Some(&aead::AES_128_GCM_SIV),
        (Mode::GcmSiv, _) => Some(&aead::AES_256_GCM_SIV),
        (Mode::ChaCha20Poly1305, _) => Some(&aead::CHACHA20_POLY1305),
        _ => None,
    }
}

fn missing(algorithm: Algorithm) -> WorkError {
    WorkError::Missing {
        why: format!("AWS-LC has no {}", algorithm.title()),
        remedy: match algorithm.mode {
            Mode::Xts => {
                "pgseal puts it together from AES-128-ECB; \"pgseal lab instance\" \
                          measures that"
            }
            _ => "none",
        }
        .to_owned(),
    }
}

struct Sealing {
    key: LessSafeKey,
    direction: Direction,
    input: Vec<u8>,
    output: Vec<u8>,
    tag: [u8; TAG_LEN],
}

impl Sealing {
    fn new(
        aead: &'static aead::Algorithm,
        direction: Direction,
        bytes: usize,
    ) -> Result<Sealing, WorkError> {
        let key = filler(aead.key_len());
        let key = UnboundKey::new(aead, &key).map_err(|_| WorkError::call("UnboundKey::new"))?;
        let mut work = Sealing {
            key: LessSafeKey::new(key),
            direction,
            input: filler(bytes),
            output: vec![0; bytes],
            tag: [0; TAG_LEN],
        };
        if direction == Direction::Decrypt {
            work.seal()?;
            std::mem::swap(&mut work.input, &mut work.output);
        }
        Ok(work)
    }

    fn seal(&mut self) -> Result<(), WorkError> {
        self.key
            .seal_out_of_place_scatter(
                Nonce::assume_unique_for_key(NONCE),
                Aad::empty(),
                &self.input,
                &mut self.output,
                &[],
                &mut self.tag,
            )
            .map(|_| ())
            .map_err(|_| WorkError::call("seal_out_of_place_scatter"))
    }

    fn open(&mut self) -> Result<(), WorkError> {
        self.key
            .open_separate_gather(
                Nonce::assume_unique_for_key(NONCE),
                Aad::empty(),
                &self.input,
                &self.tag,
                &mut self.output,
            )
            .map_err(|_| WorkError::call("open_separate_gather"))
    }
}

impl Work for Sealing {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        match self.direction {
            Direction::Encrypt => (0..count).try_for_each(|_| self.seal()),
            Direction::Decrypt => (0..count).try_for_each(|_| self.open()),
        }
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        self.repeat(1)?;
        Ok(Some(sha256_hex(&[&self.output, &self.tag])))
    }
}

struct Evp {
    context: NonNull<sys::EVP_CIPHER_CTX>,
    has_iv: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Evp {
    fn new(algorithm: Algorithm, direction: Direction, bytes: usize) -> Result<Evp, WorkError> {
        if !bytes.is_multiple_of(16) {
            return Err(WorkError::Failed(format!("{bytes} bytes are no whole blocks")));
        }
        let cipher = evp_of(algorithm).ok_or_else(|| missing(algorithm))?;
        let mut work = Evp {
            context: context(cipher, algorithm, true)?,
            has_iv: algorithm.mode.iv_len() > 0,
            input: filler(bytes),
            output: vec![0; bytes],
        };
        if direction == Direction::Decrypt {
            work.once()?;
            std::mem::swap(&mut work.input, &mut work.output);
            let decrypting = context(cipher, algorithm, false)?;
            let encrypting = std::mem::replace(&mut work.context, decrypting);
            // SAFETY: the context is ours, and nothing uses it after this.
            unsafe { sys::EVP_CIPHER_CTX_free(encrypting.as_ptr()) };
        }
        Ok(work)
    }

    fn once(&mut self) -> Result<(), WorkError> {
        let (context, none) = (self.context.as_ptr(), ptr::null_mut());
        if self.has_iv {
            // SAFETY: the context has its key; every cipher of ours reads 16 bytes of IV.
            let ok = unsafe {
                sys::EVP_CipherInit_ex(context, ptr::null(), none, ptr::null(), IV.as_ptr(), -1)
            };
            if ok != 1 {
                return Err(WorkError::call("EVP_CipherInit_ex of AWS-LC"));
            }
        }
        let output = self.output.as_mut_ptr();
        // SAFETY: both buffers have the same number of whole blocks; without padding the call
        // writes no more than it reads.
        let done =
            unsafe { sys::EVP_Cipher(context, output, self.input.as_ptr(), self.input.len()) };
        if done < 0 {
            return Err(WorkError::call("EVP_Cipher of AWS-LC"));
        }
        Ok(())
    }
}

impl Drop for Evp {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing uses it after this.
        unsafe { sys::EVP_CIPHER_CTX_free(self.context.as_ptr()) };
    }
}

impl Work for Evp {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        (0..count).try_for_each(|_| self.once())
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        self.once()?;
        Ok(Some(sha256_hex(&[&self.output])))
    }
}

fn context(
    cipher: *const sys::EVP_CIPHER,
    algorithm: Algorithm,
    encrypt: bool,
) -> Result<NonNull<sys::EVP_CIPHER_CTX>, WorkError> {
    // SAFETY: the call has no conditions; it returns null or a new context.
    let raw = unsafe { sys::EVP_CIPHER_CTX_new() };
    let context = NonNull::new(raw).ok_or_else(|| WorkError::call("EVP_CIPHER_CTX_new"))?;
    let key = filler(64);
    let none = ptr::null_mut();
    let direction = i32::from(encrypt);
    // SAFETY: the context is new and the cipher static; no cipher reads more than 64 bytes of key
    // or more than 16 bytes of IV.
    let ok =
        unsafe { sys::EVP_CipherInit_ex(raw, cipher, none, key.as_ptr(), IV.as_ptr(), direction) };
    // SAFETY: an initialised context.
    unsafe { sys::EVP_CIPHER_CTX_set_padding(raw, 0) };
    if ok != 1 {
        // SAFETY: the context is ours, and nothing uses it after this.
        unsafe { sys::EVP_CIPHER_CTX_free(raw) };
        return Err(WorkError::Failed(format!("AWS-LC refuses the key of {}", algorithm.title())));
    }
    Ok(context)
}

/// AWS-LC's static table of a cipher; none if AWS-LC does not have the cipher.
fn evp_of(algorithm: Algorithm) -> Option<*const sys::EVP_CIPHER> {
    let table: unsafe extern "C" fn() -> *const sys::EVP_CIPHER =
        match (algorithm.mode, algorithm.key_bits) {
            (Mode::Ecb, 128) => sys::EVP_aes_128_ecb,
            (Mode::Ecb, 192) => sys::EVP_aes_192_ecb,
            (Mode::Ecb, 256) => sys::EVP_aes_256_ecb,
            (Mode::Cbc, 128) => sys::EVP_aes_128_cbc,
            (Mode::Cbc, 192) => sys::EVP_aes_192_cbc,
            (Mode::Cbc, 256) => sys::EVP_aes_256_cbc,
            (Mode::Cfb, 128) => sys::EVP_aes_128_cfb128,
            (Mode::Cfb, 192) => sys::EVP_aes_192_cfb128,
            (Mode::Cfb, 256) => sys::EVP_aes_256_cfb128,
            (Mode::Ofb, 128) => sys::EVP_aes_128_ofb,
            (Mode::Ofb, 192) => sys::EVP_aes_192_ofb,
            (Mode::Ofb, 256) => sys::EVP_aes_256_ofb,
            (Mode::Ctr, 128) => sys::EVP_aes_128_ctr,
            (Mode::Ctr, 192) => sys::EVP_aes_192_ctr,
            (Mode::Ctr, 256) => sys::EVP_aes_256_ctr,
            (Mode::Xts, 256) => sys::EVP_aes_256_xts,
            _ => return None,
        };
    // SAFETY: the call has no conditions; it returns a static table.
    Some(unsafe { table() })
}
