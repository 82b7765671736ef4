//! Errors of the column ciphers, with the codes and texts of the C interface.

use core::ffi::CStr;
use core::fmt;

/// A failure of an operation on a value or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ColumnError {
    /// C interface only: a null pointer where a valid one is required.
    NullPointer,
    /// The output does not fit into the buffer.
    BufferTooSmall,
    /// Key material of a length that is not allowed.
    KeyLength,
    /// A type code, key version, mode or cost out of range.
    BadArgument,
    /// A value longer than [`crate::header::MAX_PLAIN_BYTES`].
    TooLong,
    /// FF1: the domain of this radix and length is too small or too large, or a numeral is not
    /// below the radix.
    Domain,
    /// The bytes cannot be a sealed value.
    NotSealed,
    /// The value is sealed in another mode.
    OtherMode,
    /// The value is sealed under another version of the column key.
    OtherVersion,
    /// The value was tampered with, or was sealed under another key, domain or type.
    NotAuthentic,
    /// Raw AES: length or padding is wrong.
    BadRaw,
    /// The column key is wrapped under another KEK.
    WrongKek,
    /// The wrapped column key is damaged, or belongs to another domain or key version.
    WrapDamaged,
    /// The bytes are not a wrapped column key, or a newer pgseal wrapped it.
    WrapFormat,
    /// The random generator failed; nothing was sealed.
    NoRandom,
    /// Out of memory.
    NoMemory,
    /// A FIPS build has no sealed columns, and no passphrases.
    NotApproved,
    /// A bug in pgseal.
    Internal,
}

impl ColumnError {
    /// Every error, in the order of their codes.
    pub const ALL: [ColumnError; 18] = [
        ColumnError::NullPointer,
        ColumnError::BufferTooSmall,
        ColumnError::KeyLength,
        ColumnError::BadArgument,
        ColumnError::TooLong,
        ColumnError::Domain,
        ColumnError::NotSealed,
        ColumnError::OtherMode,
        ColumnError::OtherVersion,
        ColumnError::NotAuthentic,
        ColumnError::BadRaw,
        ColumnError::WrongKek,
        ColumnError::WrapDamaged,
        ColumnError::WrapFormat,
        ColumnError::NoRandom,
        ColumnError::NoMemory,
        ColumnError::Internal,
        ColumnError::NotApproved,
    ];

    /// The code of the C interface; 0 is success.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            ColumnError::NullPointer => 1,
            ColumnError::BufferTooSmall => 2,
            ColumnError::KeyLength => 3,
            ColumnError::BadArgument => 4,
            ColumnError::TooLong => 5,
            ColumnError::Domain => 6,
            ColumnError::NotSealed => 10,
            ColumnError::OtherMode => 11,
            ColumnError::OtherVersion => 12,
            ColumnError::NotAuthentic => 13,
            ColumnError::BadRaw => 14,
            ColumnError::WrongKek => 20,
            ColumnError::WrapDamaged => 21,
            ColumnError::WrapFormat => 22,
            ColumnError::NoRandom => 30,
            ColumnError::NoMemory => 31,
            ColumnError::Internal => 32,
            ColumnError::NotApproved => 33,
        }
    }

    /// What happened and, if something can be done, what to do. The text has no full stop.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            ColumnError::NullPointer => c"a pointer is missing (a bug in the caller)",
            ColumnError::BufferTooSmall => c"the output buffer is too small (a bug in the caller)",
            ColumnError::KeyLength => c"the key has a length that is not allowed",
            ColumnError::BadArgument => {
                c"a type code, key version, mode or cost is out of range (a bug in the caller)"
            }
            ColumnError::TooLong => c"the value is longer than 1073741823 bytes",
            ColumnError::Domain => c"the domain is smaller than a million or too large for FF1",
            ColumnError::NotSealed => {
                c"not a sealed value: it was stored by other means or damaged"
            }
            ColumnError::OtherMode => c"the value is sealed in another mode than this type's",
            ColumnError::OtherVersion => c"the value is sealed under another version of the key",
            ColumnError::NotAuthentic => {
                c"the value was tampered with, or belongs to another key, domain or type"
            }
            ColumnError::BadRaw => c"decryption failed: wrong key, wrong mode or damaged value",
            ColumnError::WrongKek => {
                c"wrong key-encryption key: the column key was wrapped under another one"
            }
            ColumnError::WrapDamaged => {
                c"the wrapped column key is damaged, or belongs to another domain or key version"
            }
            ColumnError::WrapFormat => c"not a wrapped column key, or one of a newer pgseal",
            ColumnError::NoRandom => c"no random numbers; nothing was sealed",
            ColumnError::NoMemory => c"out of memory",
            ColumnError::NotApproved => {
                c"this is a FIPS build, whose module has neither AES-SIV nor FF1 nor Argon2id: no \
                  sealed columns and no passphrases (docs/fips.md)"
            }
            ColumnError::Internal => c"internal error: a bug in pgseal, please report it",
        }
    }
}

impl fmt::Display for ColumnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().to_str().unwrap_or_default())
    }
}

impl std::error::Error for ColumnError {}

impl From<pgseal_crypto::NotApproved> for ColumnError {
    fn from(_: pgseal_crypto::NotApproved) -> ColumnError {
        ColumnError::NotApproved
    }
}

impl From<pgseal_crypto::RandomFailed> for ColumnError {
    fn from(_: pgseal_crypto::RandomFailed) -> ColumnError {
        ColumnError::NoRandom
    }
}
