//! Creates private keys, and creates and verifies signatures with them.

use std::ffi::{CStr, CString, c_int, c_long};
use std::ptr;
use std::rc::Rc;

use super::{Object, System};
use crate::experiments::modes::protocol::{KeyAlgorithm, KeyKind};
use crate::experiments::modes::work::{Work, WorkError, filler};

/// OpenSSL's `EVP_PKEY_RSA`, `EVP_PKEY_DSA` or `EVP_PKEY_EC`.
fn id_of(algorithm: KeyAlgorithm) -> c_int {
    match algorithm {
        KeyAlgorithm::Rsa => 6,
        KeyAlgorithm::Dsa => 116,
        KeyAlgorithm::Ecdsa => 408,
    }
}

/// Number of bytes that are signed: they fit the smallest key of the study with PKCS #1 padding,
/// and are no longer than DSA-512's group order.
const DIGEST_LEN: usize = 20;
/// Room for a signature, in bytes: enough for RSA with 16384 bits.
const MAX_SIGNATURE: usize = 2048;

/// An `EVP_PKEY` that is freed when this value is dropped.
struct Key {
    system: Rc<System>,
    raw: Object,
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is ours (or null, which is allowed); nothing uses it after this.
        unsafe { (self.system.functions.EVP_PKEY_free)(self.raw) };
    }
}

/// An `EVP_PKEY_CTX` that is freed when this value is dropped.
struct Context {
    system: Rc<System>,
    raw: Object,
}

impl Context {
    fn own(system: &Rc<System>, raw: Object, call: &str) -> Result<Context, WorkError> {
        if raw.is_null() {
            return Err(system.failed(call));
        }
        Ok(Context { system: Rc::clone(system), raw })
    }

    fn of_id(system: &Rc<System>, id: c_int) -> Result<Context, WorkError> {
        // SAFETY: null means no engine; the call returns null or a new context.
        let raw = unsafe { (system.functions.EVP_PKEY_CTX_new_id)(id, ptr::null_mut()) };
        Context::own(system, raw, "EVP_PKEY_CTX_new_id")
    }

    fn of_key(key: &Key) -> Result<Context, WorkError> {
        // SAFETY: the key is valid; the context holds its own reference to the key.
        let raw = unsafe { (key.system.functions.EVP_PKEY_CTX_new)(key.raw, ptr::null_mut()) };
        Context::own(&key.system, raw, "EVP_PKEY_CTX_new")
    }

    fn must(&self, result: c_int, call: &str) -> Result<(), WorkError> {
        if result > 0 { Ok(()) } else { Err(self.system.failed(call)) }
    }

    fn set(&mut self, name: &CStr, value: &str) -> Result<(), WorkError> {
        let value = CString::new(value).map_err(|_| WorkError::call("EVP_PKEY_CTX_ctrl_str"))?;
        let set = self.system.functions.EVP_PKEY_CTX_ctrl_str;
        // SAFETY: two C strings and a context of ours.
        let result = unsafe { set(self.raw, name.as_ptr(), value.as_ptr()) };
        self.must(result, "EVP_PKEY_CTX_ctrl_str")
    }

    fn begin(
        &mut self,
        call: unsafe extern "C" fn(Object) -> c_int,
        name: &str,
    ) -> Result<(), WorkError> {
        // SAFETY: all calls of this type take a context of ours and nothing else.
        let result = unsafe { call(self.raw) };
        self.must(result, name)
    }

    fn make(
        &mut self,
        call: unsafe extern "C" fn(Object, *mut Object) -> c_int,
        name: &str,
    ) -> Result<Key, WorkError> {
        let mut key = Key { system: Rc::clone(&self.system), raw: ptr::null_mut() };
        // SAFETY: the context is initialised; the call sets the key to null or to a new key of
        // ours.
        let result = unsafe { call(self.raw, &mut key.raw) };
        self.must(result, name)?;
        Ok(key)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing uses it after this.
        unsafe { (self.system.functions.EVP_PKEY_CTX_free)(self.raw) };
    }
}

/// Creates a private key and returns it as DER.
pub fn make_key(system: &Rc<System>, kind: KeyKind) -> Result<Vec<u8>, WorkError> {
    let functions = &system.functions;
    let mut context = Context::of_id(system, id_of(kind.algorithm))?;
    let mut from_parameters;
    let context = match kind.algorithm {
        KeyAlgorithm::Rsa => {
            context.begin(functions.EVP_PKEY_keygen_init, "EVP_PKEY_keygen_init")?;
            context.set(c"rsa_keygen_bits", &kind.bits.to_string())?;
            &mut context
        }
        KeyAlgorithm::Dsa | KeyAlgorithm::Ecdsa => {
            context.begin(functions.EVP_PKEY_paramgen_init, "EVP_PKEY_paramgen_init")?;
            match kind.algorithm {
                KeyAlgorithm::Dsa => {
                    context.set(c"dsa_paramgen_bits", &kind.bits.to_string())?;
                }
                _ => context.set(c"ec_paramgen_curve", &format!("P-{}", kind.bits))?,
            }
            let parameters = context.make(functions.EVP_PKEY_paramgen, "EVP_PKEY_paramgen")?;
            from_parameters = Context::of_key(&parameters)?;
            from_parameters.begin(functions.EVP_PKEY_keygen_init, "EVP_PKEY_keygen_init")?;
            &mut from_parameters
        }
    };
    let key = context.make(functions.EVP_PKEY_keygen, "EVP_PKEY_keygen")?;
    to_der(&key)
}

fn to_der(key: &Key) -> Result<Vec<u8>, WorkError> {
    let write = key.system.functions.i2d_PrivateKey;
    // SAFETY: the key is valid; null asks only for the length.
    let len = unsafe { write(key.raw, ptr::null_mut()) };
    let mut der = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut cursor = der.as_mut_ptr();
    // SAFETY: the buffer has the length that the first call returned; OpenSSL advances the cursor
    // and does not keep it.
    if len <= 0 || unsafe { write(key.raw, &mut cursor) } != len {
        return Err(key.system.failed("i2d_PrivateKey"));
    }
    Ok(der)
}

fn from_der(system: &Rc<System>, der: &[u8]) -> Result<Key, WorkError> {
    let mut cursor = der.as_ptr();
    let read = system.functions.d2i_AutoPrivateKey;
    // SAFETY: the buffer has the given length; null requests a new key.
    let raw = unsafe { read(ptr::null_mut(), &mut cursor, der.len() as c_long) };
    if raw.is_null() {
        return Err(system.failed("d2i_AutoPrivateKey"));
    }
    Ok(Key { system: Rc::clone(system), raw })
}

struct Signature {
    context: Context,
    verify: bool,
    digest: Vec<u8>,
    signature: Vec<u8>,
}

/// Prepares signing, or verifying a signature, with a key in DER; the context is kept.
pub fn signature(
    system: &Rc<System>,
    der: &[u8],
    verify: bool,
) -> Result<Box<dyn Work>, WorkError> {
    let key = from_der(system, der)?;
    let functions = &system.functions;
    let mut context = Context::of_key(&key)?;
    context.begin(functions.EVP_PKEY_sign_init, "EVP_PKEY_sign_init")?;
    let mut work = Signature {
        context,
        verify: false,
        digest: filler(DIGEST_LEN),
        signature: vec![0; MAX_SIGNATURE],
    };
    let len = work.sign()?;
    work.signature.truncate(len);
    work.context = Context::of_key(&key)?;
    work.context.begin(functions.EVP_PKEY_verify_init, "EVP_PKEY_verify_init")?;
    work.check()?;
    if !verify {
        work.context = Context::of_key(&key)?;
        work.context.begin(functions.EVP_PKEY_sign_init, "EVP_PKEY_sign_init")?;
        work.signature.resize(MAX_SIGNATURE, 0);
    }
    work.verify = verify;
    Ok(Box::new(work))
}

impl Signature {
    fn sign(&mut self) -> Result<usize, WorkError> {
        let mut len = self.signature.len();
        let sign = self.context.system.functions.EVP_PKEY_sign;
        // SAFETY: both buffers have the given lengths; the context is initialised for signing.
        let result = unsafe {
            sign(
                self.context.raw,
                self.signature.as_mut_ptr(),
                &mut len,
                self.digest.as_ptr(),
                self.digest.len(),
            )
        };
        self.context.must(result, "EVP_PKEY_sign")?;
        Ok(len)
    }

    fn check(&mut self) -> Result<(), WorkError> {
        let verify = self.context.system.functions.EVP_PKEY_verify;
        // SAFETY: both buffers have the given lengths; the context is initialised for verification.
        let result = unsafe {
            verify(
                self.context.raw,
                self.signature.as_ptr(),
                self.signature.len(),
                self.digest.as_ptr(),
                self.digest.len(),
            )
        };
        self.context.must(result, "EVP_PKEY_verify")
    }
}

impl Work for Signature {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        match self.verify {
            true => (0..count).try_for_each(|_| self.check()),
            false => (0..count).try_for_each(|_| self.sign().map(|_| ())),
        }
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        Ok(None)
    }
}
