//! The column ciphers of pgseal: values of sealed columns, their keys, and a C interface.
//!
//! The formats are those of `spec/column-cipher.md`; the C header is `include/pgseal_column.h`.
//! Nothing here depends on PostgreSQL. Sealing and opening a value does not allocate memory. Only
//! `aes` and `ffi` contain unsafe code.

#![deny(unsafe_code)]

mod aes;
mod error;
pub mod ff1;
pub mod ffi;
mod gcm;
pub mod header;
mod kek;
mod key;
pub mod labels;
mod raw;
pub mod siv;

pub use aes::BLOCK_BYTES;
pub use error::ColumnError;
pub use kek::{Argon2idCost, Kek, WRAPPED_BYTES};
pub use key::{ColumnKey, Domain, KEY_BYTES, MAX_SHORT_TYPE_CODE, NumberCode, TypeCode};
pub use pgseal_crypto::{RandomFailed, fill_random};
pub use raw::{RawKey, RawMode};

/// The version of the C interface, which is raised when a function changes.
pub const ABI: u32 = 1;
