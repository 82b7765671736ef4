//! The system's own OpenSSL, loaded at run time and called through EVP.
//!
//! In this crate only this module, [`super::awslc`] and [`super::clock`] use `unsafe`. Every buffer
//! that libcrypto writes is as long as OpenSSL's manual requires for any cipher; the wrappers own
//! the objects that they free.

#![allow(unsafe_code)]

mod cipher;
mod digest;
mod functions;
mod ige;
mod signature;

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::rc::Rc;

use libloading::Library;

use super::work::WorkError;
pub use cipher::{CipherSpec, Style, cipher};
pub use digest::{digest, hmac};
use functions::{Functions, Object};
pub use ige::ige;
pub use signature::{make_key, signature};

/// Names of the shared library, newest first. PostgreSQL of the same distribution loads the same
/// library.
const NAMES: [&str; 3] = ["libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"];

/// The loaded libcrypto.
pub struct System {
    functions: Functions,
    name: &'static str,
}

impl System {
    /// Loads the system's libcrypto.
    pub fn load() -> Result<Rc<System>, WorkError> {
        let missing = |why: String| WorkError::Missing {
            why,
            remedy: "install OpenSSL's shared library (Debian: libssl3 or libssl3t64)".to_owned(),
        };
        for name in NAMES {
            // SAFETY: libcrypto's initialisers have no conditions; PostgreSQL loads it likewise.
            let Ok(library) = (unsafe { Library::new(name) }) else { continue };
            let functions = Functions::find(library)
                .map_err(|error| missing(format!("{name} is too old or no OpenSSL: {error}")))?;
            return Ok(Rc::new(System { functions, name }));
        }
        Err(missing(format!("no libcrypto here (looked for {})", NAMES.join(", "))))
    }

    /// The file name under which libcrypto was found.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `OpenSSL 3.0.19 27 Jan 2026`.
    pub fn version(&self) -> String {
        // SAFETY: 0 is OPENSSL_VERSION in all versions.
        text(unsafe { (self.functions.OpenSSL_version)(0) }).unwrap_or_default()
    }

    /// The CPU features that OpenSSL uses, with the variable `OPENSSL_ia32cap` applied:
    /// `OPENSSL_ia32cap=0x..:0x..` (from 3.0 on).
    pub fn cpu_settings(&self) -> Option<String> {
        const OPENSSL_INFO_CPU_SETTINGS: c_int = 1008;
        // SAFETY: the call has no conditions; it returns null for an unknown kind of information.
        text(unsafe { (self.functions.OPENSSL_info?)(OPENSSL_INFO_CPU_SETTINGS) })
    }

    /// Whether this OpenSSL has providers, as version 3 and later do.
    fn has_providers(&self) -> bool {
        self.functions.EVP_CIPHER_fetch.is_some()
    }

    /// Loads a provider for the rest of the process; false if it is not installed.
    fn load_provider(&self, name: &CStr) -> bool {
        let Some(load) = self.functions.OSSL_PROVIDER_load else { return false };
        // SAFETY: null is the default library context; `name` is a C string.
        let found = unsafe { load(ptr::null_mut(), name.as_ptr()) };
        self.forget_errors();
        !found.is_null()
    }

    /// Loads the legacy provider, and the default provider explicitly, because OpenSSL does not
    /// load the default provider by itself once another one is loaded.
    fn load_legacy(&self) -> bool {
        self.load_provider(c"default") && self.load_provider(c"legacy")
    }

    fn forget_errors(&self) {
        // SAFETY: the call has no conditions.
        unsafe { (self.functions.ERR_clear_error)() };
    }

    /// The error for a failed call: the call's name and OpenSSL's own reason.
    fn failed(&self, call: &str) -> WorkError {
        let mut reason = [0 as c_char; 256];
        if let (Some(code), Some(words)) =
            (self.functions.ERR_get_error, self.functions.ERR_error_string_n)
        {
            // SAFETY: the call has no conditions.
            let code = unsafe { code() };
            // SAFETY: the buffer has the given length; OpenSSL ends the text with a zero byte.
            unsafe { words(code, reason.as_mut_ptr(), reason.len()) };
        }
        self.forget_errors();
        let reason = text(reason.as_ptr()).unwrap_or_default();
        WorkError::Failed(format!("{}: {call} failed: {reason}", self.name))
    }

    fn missing(&self, name: &str) -> WorkError {
        let remedy = match name {
            "aes-128-gcm-siv" | "aes-256-gcm-siv" => "OpenSSL has it from 3.2 on",
            "MD2" | "IDEA-CBC" => "none: distributions build OpenSSL without it",
            _ if self.has_providers() => {
                "if it is a matter of the legacy provider, install that (Debian 13 and later: \
                 openssl-provider-legacy)"
            }
            _ => "none: the distribution left it out",
        };
        WorkError::Missing {
            why: format!("{} has no {name}", self.version()),
            remedy: remedy.to_owned(),
        }
    }
}

/// An algorithm of libcrypto, and the provider that it comes from.
struct Found {
    object: Object,
    /// Whether `object` was fetched: it is then reference-counted and must be freed. Otherwise it
    /// is static.
    fetched: bool,
    provider: Option<&'static str>,
}

/// The kind of algorithm to look up.
#[derive(Clone, Copy)]
enum Kind {
    Cipher,
    Digest,
}

impl System {
    /// Looks an algorithm up once, for any number of uses: fetched from a provider where there are
    /// providers, else from the static table.
    fn find(&self, kind: Kind, name: &str) -> Result<Found, WorkError> {
        let wanted = CString::new(name).map_err(|_| self.missing(name))?;
        let fetch = match kind {
            Kind::Cipher => self.functions.EVP_CIPHER_fetch,
            Kind::Digest => self.functions.EVP_MD_fetch,
        };
        let Some(fetch) = fetch else {
            let object = self.by_name(kind, &wanted);
            let found = Found { object, fetched: false, provider: None };
            return if object.is_null() { Err(self.missing(name)) } else { Ok(found) };
        };
        for provider in ["default", "legacy"] {
            if provider == "legacy" && !self.load_legacy() {
                break;
            }
            // SAFETY: default context, a C string, no property query; the call returns null or a
            // reference-counted object.
            let object = unsafe { fetch(ptr::null_mut(), wanted.as_ptr(), ptr::null()) };
            if !object.is_null() {
                return Ok(Found { object, fetched: true, provider: Some(provider) });
            }
        }
        self.forget_errors();
        Err(self.missing(name))
    }

    /// The static object of this name, as pgcrypto uses it; null if there is none.
    fn by_name(&self, kind: Kind, name: &CStr) -> Object {
        match kind {
            // SAFETY: `name` is a C string; the call returns null or a static object.
            Kind::Cipher => unsafe { (self.functions.EVP_get_cipherbyname)(name.as_ptr()) },
            // SAFETY: as above.
            Kind::Digest => unsafe { (self.functions.EVP_get_digestbyname)(name.as_ptr()) },
        }
    }

    fn free(&self, kind: Kind, found: &Found) {
        if !found.fetched {
            return;
        }
        let free = match kind {
            Kind::Cipher => self.functions.EVP_CIPHER_free,
            Kind::Digest => self.functions.EVP_MD_free,
        };
        if let Some(free) = free {
            // SAFETY: `find` fetched the object, and nothing else frees it.
            unsafe { free(found.object) };
        }
    }
}

/// Copies a C string of libcrypto; none for a null pointer.
fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, and all strings of libcrypto end with a zero byte.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Whether a bit of `OPENSSL_ia32cap=0xA:0xB[:...]` is set in word `word`.
pub fn capability(settings: &str, word: usize, mask: u64) -> Option<bool> {
    let (_, rest) = settings.split_once("OPENSSL_ia32cap=")?;
    let words = rest.split([' ', ',']).next()?;
    let hex = words.split(':').nth(word)?.trim().strip_prefix("0x")?;
    Some(u64::from_str_radix(hex, 16).ok()? & mask != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::modes::arm::{AES_BITS, VAES_BITS};

    #[test]
    fn capabilities_are_read_from_openssl_s_words() {
        let all = "OPENSSL_ia32cap=0xfffa3203078bffff:0x405fc6f1bf07ab";
        assert_eq!(capability(all, 0, AES_BITS), Some(true));
        assert_eq!(capability(all, 1, VAES_BITS), Some(true));
        let masked = "OPENSSL_ia32cap=0xfdfa3201078bffff:0x4059c6f1bf07ab env:~0x200000200000000";
        assert_eq!(capability(masked, 0, AES_BITS), Some(false));
        assert_eq!(capability(masked, 1, VAES_BITS), Some(false));
        assert_eq!(capability("N/A", 0, 1), None);
    }
}
