//! AES-IGE, called through the low-level function that `openssl speed` used, since EVP never had
//! it.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use super::System;
use crate::experiments::modes::work::{Work, WorkError, filler, sha256_hex};

/// Space for a key schedule: larger than any `AES_KEY` (244 bytes), and aligned like one.
#[repr(C, align(16))]
struct Schedule([u8; 512]);

type Encrypt = unsafe extern "C" fn(*const u8, *mut u8, usize, *const c_void, *mut u8, c_int);

struct Ige {
    /// Keeps libcrypto loaded.
    _system: Rc<System>,
    encrypt: Encrypt,
    schedule: Box<Schedule>,
    iv: [u8; 32],
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Prepares AES-IGE encryption of whole blocks, as one endless message.
pub fn ige(system: &Rc<System>, key_bits: u16, bytes: usize) -> Result<Box<dyn Work>, WorkError> {
    let (Some(set_key), Some(encrypt)) =
        (system.functions.AES_set_encrypt_key, system.functions.AES_ige_encrypt)
    else {
        return Err(system.missing("AES_ige_encrypt"));
    };
    let mut schedule = Box::new(Schedule([0; 512]));
    let key = filler(64);
    let room = schedule.0.as_mut_ptr().cast::<c_void>();
    // SAFETY: the key has 64 bytes, of which at most 32 are read; `room` is larger than an AES_KEY.
    if unsafe { set_key(key.as_ptr(), c_int::from(key_bits), room) } != 0 {
        return Err(system.failed("AES_set_encrypt_key"));
    }
    Ok(Box::new(Ige {
        _system: Rc::clone(system),
        encrypt,
        schedule,
        iv: [0x3c; 32],
        input: filler(bytes.next_multiple_of(16)),
        output: vec![0; bytes.next_multiple_of(16)],
    }))
}

impl Ige {
    fn once(&mut self) {
        let schedule = self.schedule.0.as_ptr().cast::<c_void>();
        let (input, output) = (self.input.as_ptr(), self.output.as_mut_ptr());
        // SAFETY: both buffers have the same number of whole blocks, the IV has two blocks, and the
        // schedule was set up for encryption.
        unsafe {
            (self.encrypt)(input, output, self.input.len(), schedule, self.iv.as_mut_ptr(), 1)
        };
    }
}

impl Work for Ige {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        (0..count).for_each(|_| self.once());
        Ok(())
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        self.iv = [0x3c; 32];
        self.once();
        Ok(Some(sha256_hex(&[&self.output])))
    }
}
