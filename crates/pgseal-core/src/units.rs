//! Offsets and lengths, plain (what PostgreSQL sees) and sealed (what the kernel sees).
//!
//! Both are counts of bytes; the types only keep them from being mixed up.

use core::fmt;

macro_rules! byte_unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

byte_unit!(
    /// An offset in the plain file, in bytes.
    PlainOff
);
byte_unit!(
    /// A length of the plain file, in bytes.
    PlainLen
);
byte_unit!(
    /// An offset in the sealed file, in bytes.
    SealedOff
);
byte_unit!(
    /// A length of the sealed file, in bytes.
    SealedLen
);
byte_unit!(
    /// The number of an 8192-byte block of the plain file, from 0.
    BlockNo
);
