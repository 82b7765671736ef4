//! Ciphers through EVP: with a kept context, set up for each message, or as one long message.

use std::ffi::{CString, c_int, c_uchar, c_void};
use std::ptr;
use std::rc::Rc;

use super::{Found, Kind, Object, System};
use crate::experiments::modes::work::{Work, WorkError, filler, sha256_hex};

const EVP_CTRL_AEAD_SET_IVLEN: c_int = 0x09;
const EVP_CTRL_AEAD_GET_TAG: c_int = 0x10;
const EVP_CTRL_AEAD_SET_TAG: c_int = 0x11;
/// Bytes of the tag of every AEAD here.
const TAG_LEN: usize = 16;
/// `EVP_MAX_KEY_LENGTH`, `EVP_MAX_IV_LENGTH`: no cipher reads more.
const MAX_KEY: usize = 64;
const MAX_IV: usize = 16;
/// Extra bytes behind a message: two of the longest blocks, past which no cipher writes.
const SLACK: usize = 64;

/// What is set up again for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Only the IV.
    Kept,
    /// Everything, as in pgcrypto.
    Setup,
    /// Nothing: all messages are parts of one endless message.
    Endless,
}

/// A cipher and how to run it.
#[derive(Debug, Clone)]
pub struct CipherSpec {
    /// OpenSSL's name.
    pub name: String,
    /// Bytes of key.
    pub key_len: usize,
    /// Bytes of IV; 0 for none.
    pub iv_len: usize,
    /// Whether there is a tag.
    pub aead: bool,
    /// Whether to encrypt instead of decrypt.
    pub encrypt: bool,
    /// Bytes of one message.
    pub bytes: usize,
    /// What is set up again for each message.
    pub style: Style,
}

/// An `EVP_CIPHER_CTX` that is freed when this value is dropped.
struct Context {
    system: Rc<System>,
    raw: Object,
}

impl Context {
    fn new(system: &Rc<System>) -> Result<Context, WorkError> {
        // SAFETY: the call has no conditions; it returns null or a new context.
        let raw = unsafe { (system.functions.EVP_CIPHER_CTX_new)() };
        if raw.is_null() {
            return Err(system.failed("EVP_CIPHER_CTX_new"));
        }
        Ok(Context { system: Rc::clone(system), raw })
    }

    /// `EVP_CipherInit_ex`; an argument that is none leaves its setting unchanged.
    fn init(
        &mut self,
        cipher: Option<Object>,
        key: Option<&[u8; MAX_KEY]>,
        iv: Option<&[u8; MAX_IV]>,
        encrypt: c_int,
    ) -> Result<(), WorkError> {
        // SAFETY: the context is ours; a cipher, if given, comes from libcrypto; key and IV have
        // the largest lengths that any cipher reads.
        let ok = unsafe {
            (self.system.functions.EVP_CipherInit_ex)(
                self.raw,
                cipher.unwrap_or(ptr::null_mut()),
                ptr::null_mut(),
                key.map_or(ptr::null(), |key| key.as_ptr()),
                iv.map_or(ptr::null(), |iv| iv.as_ptr()),
                encrypt,
            )
        };
        if ok == 1 { Ok(()) } else { Err(self.system.failed("EVP_CipherInit_ex")) }
    }

    fn no_padding(&mut self) {
        // SAFETY: an initialised context of ours.
        unsafe { (self.system.functions.EVP_CIPHER_CTX_set_padding)(self.raw, 0) };
    }

    fn set_key_length(&mut self, len: usize) -> Result<(), WorkError> {
        // SAFETY: an initialised context of ours; OpenSSL refuses an unsuitable length.
        let ok = unsafe {
            (self.system.functions.EVP_CIPHER_CTX_set_key_length)(self.raw, len as c_int)
        };
        if ok == 1 { Ok(()) } else { Err(self.system.failed("EVP_CIPHER_CTX_set_key_length")) }
    }

    fn tag(&mut self, command: c_int, tag: &mut [u8; TAG_LEN]) -> Result<(), WorkError> {
        // SAFETY: both commands read or write exactly TAG_LEN bytes.
        let ok = unsafe {
            (self.system.functions.EVP_CIPHER_CTX_ctrl)(
                self.raw,
                command,
                TAG_LEN as c_int,
                tag.as_mut_ptr().cast::<c_void>(),
            )
        };
        if ok == 1 { Ok(()) } else { Err(self.system.failed("EVP_CIPHER_CTX_ctrl (tag)")) }
    }

    fn iv_length(&mut self, len: usize) -> Result<(), WorkError> {
        // SAFETY: the command only sets a number; it reads and writes no buffer.
        let ok = unsafe {
            (self.system.functions.EVP_CIPHER_CTX_ctrl)(
                self.raw,
                EVP_CTRL_AEAD_SET_IVLEN,
                len as c_int,
                ptr::null_mut(),
            )
        };
        if ok == 1 { Ok(()) } else { Err(self.system.failed("EVP_CIPHER_CTX_ctrl (IV length)")) }
    }

    fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, WorkError> {
        if output.len() < input.len() + SLACK {
            return Err(WorkError::Failed("buffer too short".to_owned()));
        }
        let mut written: c_int = 0;
        // SAFETY: a cipher writes at most one block more than it reads; the length is checked
        // above.
        let ok = unsafe {
            (self.system.functions.EVP_CipherUpdate)(
                self.raw,
                output.as_mut_ptr(),
                &mut written,
                input.as_ptr(),
                input.len() as c_int,
            )
        };
        if ok == 1 { Ok(written as usize) } else { Err(self.system.failed("EVP_CipherUpdate")) }
    }

    fn finish(&mut self, output: &mut [u8]) -> Result<(), WorkError> {
        if output.len() < SLACK / 2 {
            return Err(WorkError::Failed("buffer too short".to_owned()));
        }
        let mut written: c_int = 0;
        let start: *mut c_uchar = output.as_mut_ptr();
        // SAFETY: the call writes at most one block; the length is checked above.
        let ok =
            unsafe { (self.system.functions.EVP_CipherFinal_ex)(self.raw, start, &mut written) };
        if ok == 1 { Ok(()) } else { Err(self.system.failed("EVP_CipherFinal_ex")) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing uses it after this.
        unsafe { (self.system.functions.EVP_CIPHER_CTX_free)(self.raw) };
    }
}

/// Everything that one message needs besides a context: key, IV and buffers.
struct Message {
    spec: CipherSpec,
    key: [u8; MAX_KEY],
    iv: [u8; MAX_IV],
    tag: [u8; TAG_LEN],
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Message {
    fn new(spec: &CipherSpec) -> Message {
        let mut key = [0; MAX_KEY];
        key.copy_from_slice(&filler(MAX_KEY));
        Message {
            spec: spec.clone(),
            key,
            iv: [0x3c; MAX_IV],
            tag: [0; TAG_LEN],
            input: filler(spec.bytes),
            output: vec![0; spec.bytes + SLACK],
        }
    }

    fn iv(&self) -> Option<&[u8; MAX_IV]> {
        (self.spec.iv_len > 0).then_some(&self.iv)
    }

    /// Sets up a context: cipher, lengths, key and IV.
    fn prepare(
        &self,
        context: &mut Context,
        cipher: Object,
        encrypt: bool,
    ) -> Result<(), WorkError> {
        let encrypt = c_int::from(encrypt);
        context.init(Some(cipher), None, None, encrypt)?;
        context.no_padding();
        if self.spec.aead {
            context.iv_length(self.spec.iv_len)?;
        } else {
            context.set_key_length(self.spec.key_len)?;
        }
        context.init(None, Some(&self.key), self.iv(), encrypt)
    }

    /// Runs one message through a context whose IV is set.
    fn run(&mut self, context: &mut Context, encrypt: bool) -> Result<(), WorkError> {
        if self.spec.aead && !encrypt {
            context.tag(EVP_CTRL_AEAD_SET_TAG, &mut self.tag)?;
        }
        let written = context.update(&self.input, &mut self.output)?;
        if self.spec.aead || self.spec.style == Style::Setup {
            context.finish(self.output.get_mut(written..).unwrap_or_default())?;
        }
        if self.spec.aead && encrypt {
            context.tag(EVP_CTRL_AEAD_GET_TAG, &mut self.tag)?;
        }
        Ok(())
    }
}

struct CipherWork {
    system: Rc<System>,
    found: Found,
    /// The static object, as pgcrypto uses it; OpenSSL 3 fetches its implementation at each use.
    by_name: Object,
    kept: Context,
    message: Message,
}

/// Prepares a cipher for measurement.
pub fn cipher(system: &Rc<System>, spec: &CipherSpec) -> Result<Box<dyn Work>, WorkError> {
    let found = system.find(Kind::Cipher, &spec.name)?;
    let name = CString::new(spec.name.as_str()).map_err(|_| system.missing(&spec.name))?;
    let mut by_name = system.by_name(Kind::Cipher, &name);
    if by_name.is_null() {
        by_name = found.object;
    }
    let mut message = Message::new(spec);
    if !spec.encrypt {
        // The input for decryption must be real ciphertext, or the tag would not match.
        let mut context = Context::new(system)?;
        message.prepare(&mut context, found.object, true)?;
        message.run(&mut context, true)?;
        message.input.copy_from_slice(message.output.get(..spec.bytes).unwrap_or_default());
    }
    let mut kept = Context::new(system)?;
    message.prepare(&mut kept, found.object, spec.encrypt)?;
    Ok(Box::new(CipherWork { system: Rc::clone(system), found, by_name, kept, message }))
}

impl Work for CipherWork {
    fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
        let CipherWork { system, by_name, kept, message, .. } = self;
        let encrypt = message.spec.encrypt;
        match message.spec.style {
            Style::Kept => (0..count).try_for_each(|_| {
                if message.iv().is_some() {
                    kept.init(None, None, message.iv(), -1)?;
                }
                message.run(kept, encrypt)
            }),
            Style::Endless => (0..count)
                .try_for_each(|_| kept.update(&message.input, &mut message.output).map(|_| ())),
            Style::Setup => (0..count).try_for_each(|_| {
                let mut context = Context::new(system)?;
                message.prepare(&mut context, *by_name, encrypt)?;
                message.run(&mut context, encrypt)
            }),
        }
    }

    fn outcome(&mut self) -> Result<Option<String>, WorkError> {
        let mut context = Context::new(&self.system)?;
        let message = &mut self.message;
        message.prepare(&mut context, self.found.object, message.spec.encrypt)?;
        message.run(&mut context, message.spec.encrypt)?;
        let out = message.output.get(..message.spec.bytes).unwrap_or_default();
        let tag = if message.spec.aead { message.tag.as_slice() } else { &[] };
        Ok(Some(sha256_hex(&[out, tag])))
    }

    fn provider(&self) -> Option<String> {
        self.found.provider.map(str::to_owned)
    }
}

impl Drop for CipherWork {
    fn drop(&mut self) {
        self.system.free(Kind::Cipher, &self.found);
    }
}
