//! The functions of libcrypto that this program calls, looked up at run time: the program also
//! starts without OpenSSL, and measures the system's OpenSSL, which may be 1.1.1 or 3.

#![allow(non_snake_case)] // the names are OpenSSL's

use std::ffi::{c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};

use libloading::Library;

/// An opaque object of libcrypto.
pub type Object = *mut c_void;

/// Declares the table: required functions, without which a libcrypto cannot be used, and optional
/// ones, which some versions lack.
macro_rules! functions {
    (
        required { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* }
        optional { $($maybe:ident($($maybe_argument:ty),*) $(-> $maybe_result:ty)?;)* }
    ) => {
        /// Pointers into the loaded libcrypto, which stays loaded as long as the table lives.
        #[allow(missing_docs)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>,)*
            _library: Library,
        }

        impl Functions {
            /// Finds the functions in `library`.
            pub fn find(library: Library) -> Result<Functions, libloading::Error> {
                $(
                    // SAFETY: the type is that of the function in OpenSSL's manual, the same in
                    // 1.1.1 and 3; the table keeps the library, so the pointer stays valid.
                    let $name = *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    }?;
                )*
                $(
                    // SAFETY: as above.
                    let $maybe = unsafe {
                        library.get::<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>(
                            concat!(stringify!($maybe), "\0").as_bytes(),
                        )
                    }.ok().map(|symbol| *symbol);
                )*
                Ok(Functions { $($name,)* $($maybe,)* _library: library })
            }
        }
    };
}

functions! {
    required {
        OpenSSL_version(c_int) -> *const c_char;
        ERR_clear_error();
        EVP_get_cipherbyname(*const c_char) -> Object;
        EVP_get_digestbyname(*const c_char) -> Object;
        EVP_CIPHER_CTX_new() -> Object;
        EVP_CIPHER_CTX_free(Object);
        EVP_CIPHER_CTX_set_padding(Object, c_int) -> c_int;
        EVP_CIPHER_CTX_set_key_length(Object, c_int) -> c_int;
        EVP_CIPHER_CTX_ctrl(Object, c_int, c_int, *mut c_void) -> c_int;
        EVP_CipherInit_ex(Object, Object, Object, *const c_uchar, *const c_uchar, c_int) -> c_int;
        EVP_CipherUpdate(Object, *mut c_uchar, *mut c_int, *const c_uchar, c_int) -> c_int;
        EVP_CipherFinal_ex(Object, *mut c_uchar, *mut c_int) -> c_int;
        EVP_MD_CTX_new() -> Object;
        EVP_MD_CTX_free(Object);
        EVP_DigestInit_ex(Object, Object, Object) -> c_int;
        EVP_DigestUpdate(Object, *const c_void, usize) -> c_int;
        EVP_DigestFinal_ex(Object, *mut c_uchar, *mut c_uint) -> c_int;
        EVP_PKEY_CTX_new_id(c_int, Object) -> Object;
        EVP_PKEY_CTX_new(Object, Object) -> Object;
        EVP_PKEY_CTX_free(Object);
        EVP_PKEY_CTX_ctrl_str(Object, *const c_char, *const c_char) -> c_int;
        EVP_PKEY_keygen_init(Object) -> c_int;
        EVP_PKEY_keygen(Object, *mut Object) -> c_int;
        EVP_PKEY_paramgen_init(Object) -> c_int;
        EVP_PKEY_paramgen(Object, *mut Object) -> c_int;
        EVP_PKEY_sign_init(Object) -> c_int;
        EVP_PKEY_sign(Object, *mut c_uchar, *mut usize, *const c_uchar, usize) -> c_int;
        EVP_PKEY_verify_init(Object) -> c_int;
        EVP_PKEY_verify(Object, *const c_uchar, usize, *const c_uchar, usize) -> c_int;
        EVP_PKEY_free(Object);
        i2d_PrivateKey(Object, *mut *mut c_uchar) -> c_int;
        d2i_AutoPrivateKey(*mut Object, *mut *const c_uchar, c_long) -> Object;
    }
    optional {
        OPENSSL_info(c_int) -> *const c_char;
        OSSL_PROVIDER_load(Object, *const c_char) -> Object;
        EVP_CIPHER_fetch(Object, *const c_char, *const c_char) -> Object;
        EVP_CIPHER_free(Object);
        EVP_MD_fetch(Object, *const c_char, *const c_char) -> Object;
        EVP_MD_free(Object);
        HMAC_CTX_new() -> Object;
        HMAC_CTX_free(Object);
        HMAC_Init_ex(Object, *const c_void, c_int, Object, Object) -> c_int;
        HMAC_Update(Object, *const c_uchar, usize) -> c_int;
        HMAC_Final(Object, *mut c_uchar, *mut c_uint) -> c_int;
        AES_set_encrypt_key(*const c_uchar, c_int, *mut c_void) -> c_int;
        AES_ige_encrypt(*const c_uchar, *mut c_uchar, usize, *const c_void, *mut c_uchar, c_int);
        ERR_get_error() -> c_ulong;
        ERR_error_string_n(c_ulong, *mut c_char, usize);
    }
}
