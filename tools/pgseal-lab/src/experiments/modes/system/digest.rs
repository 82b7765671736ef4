//! Digests and HMAC: one message at a time through a kept context.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;

use super::{Found, Kind, Object, System};
use crate::experiments::modes::work::{Work, WorkError, filler, sha256_hex};

/// `EVP_MAX_MD_SIZE`.
const MAX_DIGEST: usize = 64;
/// The key for HMAC; `openssl speed` of 2013 also used a short key.
const HMAC_KEY: &[u8; 16] = b"This is a key...";

struct DigestWork {
    system: Rc<System>,
    found: Found,
    context: Object,
    input: Vec<u8>,
    output: [u8; MAX_DIGEST],
    len: c_uint,
}

/// Prepares a digest for measurement.
pub fn digest(system: &Rc<System>, name: &str, bytes: usize) -> Result<Box<dyn Work>, WorkError> {
    let found = system.find(Kind::Digest, name)?;
    // SAFETY: the call has no conditions; it returns null or a new context.
    let context = unsafe { (system.functions.EVP_MD_CTX_new)() };
    let mut work = DigestWork {
        system: Rc::clone(system),
        found,
        context,
        input: filler(bytes),
        output: [0; MAX_DIGEST],
        len: 0,
    };
    if context.is_null() {
        return Err(system.failed("EVP_MD_CTX_new"));
    }
    work.once()?;
    Ok(Box::new(work))
}

impl DigestWork {
    fn once(&mut self) -> Result<(), WorkError> {
        let functions = &self.system.functions;
        // SAFETY: context and digest come from libcrypto, and we own both.
        if unsafe {
            (functions.EVP_DigestInit_ex)(self.context, self.found.object, ptr::null_mut())
        } != 1
        {
            return Err(self.system.failed("EVP_DigestInit_ex"));
        }
        let start = self.input.as_ptr().cast::<c_void>();
        // SAFETY: the input has the given length.
        if unsafe { (functions.EVP_DigestUpdate)(self.context, start, self.input.len()) } != 1 {
            return Err(self.system.failed("EVP_DigestUpdate"));
        }
        let out = self.output.as_mut_ptr();
        // SAFETY: the output has room for the longest digest.
        if unsafe { (functions.EVP_DigestFinal_ex)(self.context, out, &mut self.len) } != 1 {
            return Err(self.system.failed("EVP_DigestFinal_ex"));
        }
        Ok(())
    }
}

impl Work for DigestWork {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        (0..count).try_for_each(|_| self.once())
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        self.once()?;
        Ok(Some(sha256_hex(&[self.output.get(..self.len as usize).unwrap_or_default()])))
    }

    fn provider(&self) -> Option<String> {
        self.found.provider.map(str::to_owned)
    }
}

impl Drop for DigestWork {
    fn drop(&mut self) {
        // SAFETY: the context is ours (or null, which is allowed); nothing uses it after this.
        unsafe { (self.system.functions.EVP_MD_CTX_free)(self.context) };
        self.system.free(Kind::Digest, &self.found);
    }
}

/// The HMAC functions of libcrypto, which are either all present or all absent.
#[derive(Clone, Copy)]
struct HmacCalls {
    free: unsafe extern "C" fn(Object),
    init: unsafe extern "C" fn(Object, *const c_void, c_int, Object, Object) -> c_int,
    update: unsafe extern "C" fn(Object, *const u8, usize) -> c_int,
    finish: unsafe extern "C" fn(Object, *mut u8, *mut c_uint) -> c_int,
}

struct HmacWork {
    system: Rc<System>,
    calls: HmacCalls,
    found: Found,
    context: Object,
    input: Vec<u8>,
    output: [u8; MAX_DIGEST],
    len: c_uint,
}

/// Prepares HMAC with a digest and a kept key for measurement.
pub fn hmac(system: &Rc<System>, name: &str, bytes: usize) -> Result<Box<dyn Work>, WorkError> {
    let functions = &system.functions;
    let (Some(new), Some(free), Some(init), Some(update), Some(finish)) = (
        functions.HMAC_CTX_new,
        functions.HMAC_CTX_free,
        functions.HMAC_Init_ex,
        functions.HMAC_Update,
        functions.HMAC_Final,
    ) else {
        return Err(system.missing("HMAC"));
    };
    let found = system.find(Kind::Digest, name)?;
    // SAFETY: the call has no conditions; it returns null or a new context.
    let context = unsafe { new() };
    let mut work = HmacWork {
        system: Rc::clone(system),
        calls: HmacCalls { free, init, update, finish },
        found,
        context,
        input: filler(bytes),
        output: [0; MAX_DIGEST],
        len: 0,
    };
    if context.is_null() {
        return Err(system.failed("HMAC_CTX_new"));
    }
    let key = HMAC_KEY.as_ptr().cast::<c_void>();
    let digest = work.found.object;
    // SAFETY: the context is ours, and the key has the given length.
    if unsafe { init(context, key, HMAC_KEY.len() as c_int, digest, ptr::null_mut()) } != 1 {
        return Err(system.failed("HMAC_Init_ex"));
    }
    work.once()?;
    Ok(Box::new(work))
}

impl HmacWork {
    fn once(&mut self) -> Result<(), WorkError> {
        let (calls, none) = (self.calls, ptr::null_mut());
        // SAFETY: the context has its key and digest; null arguments keep both.
        if unsafe { (calls.init)(self.context, ptr::null(), 0, none, none) } != 1 {
            return Err(self.system.failed("HMAC_Init_ex"));
        }
        // SAFETY: the input has the given length.
        if unsafe { (calls.update)(self.context, self.input.as_ptr(), self.input.len()) } != 1 {
            return Err(self.system.failed("HMAC_Update"));
        }
        let out = self.output.as_mut_ptr();
        // SAFETY: the output has room for the longest digest.
        if unsafe { (calls.finish)(self.context, out, &mut self.len) } != 1 {
            return Err(self.system.failed("HMAC_Final"));
        }
        Ok(())
    }
}

impl Work for HmacWork {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        (0..count).try_for_each(|_| self.once())
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        self.once()?;
        Ok(Some(sha256_hex(&[self.output.get(..self.len as usize).unwrap_or_default()])))
    }

    fn provider(&self) -> Option<String> {
        self.found.provider.map(str::to_owned)
    }
}

impl Drop for HmacWork {
    fn drop(&mut self) {
        // SAFETY: the context is ours (or null, which is allowed); nothing uses it after this.
        unsafe { (self.calls.free)(self.context) };
        self.system.free(Kind::Digest, &self.found);
    }
}
