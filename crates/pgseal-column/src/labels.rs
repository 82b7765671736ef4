//! All labels of column keys, the strings that separate one use of a key from another.
//!
//! A test compares this table with that of `spec/column-cipher.md`. A label is never changed, and
//! never used for a second purpose.

/// HKDF info: column key to the AES key of FF1.
pub const KDF_FF1: &str = "pgseal/v1/kdf/column-ff1";
/// HKDF info: column key to the two AES keys of AES-SIV.
pub const KDF_SIV: &str = "pgseal/v1/kdf/column-siv";
/// HKDF info: column key to the AES-GCM key.
pub const KDF_GCM: &str = "pgseal/v1/kdf/column-gcm";
/// HKDF info: KEK to the key of the key check value.
pub const KDF_KEK_CHECK: &str = "pgseal/v1/kdf/column-kek-check";
/// HMAC message: the key check value.
pub const MAC_KEK_CHECK: &str = "pgseal/v1/mac/column-kek-check";
/// HKDF info: KEK to the key that wraps column keys.
pub const KDF_WRAP: &str = "pgseal/v1/kdf/column-key-wrap";
/// AES-GCM associated data: a column key under the wrapping key.
pub const AAD_WRAP: &str = "pgseal/v1/aad/column-key";

/// Every label, in the order of the specification.
pub const ALL: [&str; 7] =
    [KDF_FF1, KDF_SIV, KDF_GCM, KDF_KEK_CHECK, MAC_KEK_CHECK, KDF_WRAP, AAD_WRAP];
