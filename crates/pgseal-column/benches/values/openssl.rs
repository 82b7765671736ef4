//! The functions of OpenSSL that pgcrypto calls, from the system's library, loaded at run time.

#![allow(
    clippy::missing_transmute_annotations,
    reason = "the fields of the structure are the annotation"
)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

type Init =
    unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, *const u8, *const u8) -> c_int;
type Update = unsafe extern "C" fn(*mut c_void, *mut u8, *mut c_int, *const u8, c_int) -> c_int;

/// The functions of `libcrypto.so.3`.
pub struct Library {
    new: unsafe extern "C" fn() -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    cipher: unsafe extern "C" fn() -> *const c_void,
    init: Init,
    update: Update,
    finish: unsafe extern "C" fn(*mut c_void, *mut u8, *mut c_int) -> c_int,
    set_padding: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    set_key_length: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
}

impl Library {
    /// Loads the library; `None` if it is not installed.
    pub fn open() -> Option<Library> {
        // SAFETY: a system library, with its symbols kept to itself.
        let handle =
            unsafe { libc::dlopen(c"libcrypto.so.3".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is open.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        // SAFETY: the types are those of OpenSSL 3's headers.
        Some(unsafe {
            Library {
                new: std::mem::transmute(find(c"EVP_CIPHER_CTX_new")?),
                free: std::mem::transmute(find(c"EVP_CIPHER_CTX_free")?),
                cipher: std::mem::transmute(find(c"EVP_aes_256_cbc")?),
                init: std::mem::transmute(find(c"EVP_EncryptInit_ex")?),
                update: std::mem::transmute(find(c"EVP_EncryptUpdate")?),
                finish: std::mem::transmute(find(c"EVP_EncryptFinal_ex")?),
                set_padding: std::mem::transmute(find(c"EVP_CIPHER_CTX_set_padding")?),
                set_key_length: std::mem::transmute(find(c"EVP_CIPHER_CTX_set_key_length")?),
            }
        })
    }

    /// Makes the calls that pgcrypto makes for one value. Returns the number of bytes in `out`.
    pub fn pgcrypto_encrypt(&self, key: &[u8; 32], plain: &[u8], out: &mut [u8]) -> usize {
        assert!(out.len() >= plain.len() + 32);
        let (null, iv) = (ptr::null_mut(), [0; 16]);
        let (mut updated, mut finished) = (0, 0);
        // SAFETY: the calls in the order of contrib/pgcrypto/openssl.c, a key of 32 bytes, an IV of
        // 16, an output buffer with room for one block more.
        let done = unsafe {
            let context = (self.new)();
            let done = (self.init)(context, (self.cipher)(), null, ptr::null(), ptr::null())
                & (self.set_padding)(context, 1)
                & (self.set_key_length)(context, 32)
                & (self.init)(context, ptr::null(), null, key.as_ptr(), iv.as_ptr())
                & (self.update)(
                    context,
                    out.as_mut_ptr(),
                    &raw mut updated,
                    plain.as_ptr(),
                    plain.len() as c_int,
                )
                & (self.finish)(context, out.as_mut_ptr().add(updated as usize), &raw mut finished);
            (self.free)(context);
            done
        };
        assert_eq!(done, 1);
        (updated + finished) as usize
    }
}
