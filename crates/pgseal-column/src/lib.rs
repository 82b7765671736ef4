//! The column ciphers of pgseal: values of sealed columns, their keys, and a C interface.
//!
//! The formats are those of `spec/column-cipher.md`; the C header is `include/pgseal_column.h`. Nothing
//! here knows PostgreSQL. No value allocates; unsafe code is only in `aes` and `ffi`.

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
pub use pgseal_random::{RandomFailed, fill as fill_random};
pub use raw::{RawKey, RawMode};

/// The number of the C interface; raised when a call changes.
pub const ABI: u32 = 1;
