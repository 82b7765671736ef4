//! The sealed file of pgseal: suites, geometry, header, blocks and the file itself.
//!
//! The format is `spec/sealed-file.md`. This crate knows nothing of PostgreSQL and makes no
//! system call of its own; bytes come and go through [`storage::Storage`].

#![deny(unsafe_code)]

pub mod broken;
pub mod capacity;
mod cipher;
pub mod error;
mod evp;
pub mod file;
mod fingerprint;
pub mod geometry;
pub mod header;
pub mod keyset;
pub mod memory;
mod place;
pub mod random;
pub mod shared_tags;
pub mod storage;
pub mod suite;
mod suites;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;
pub mod usage;
pub mod verify;
pub mod versions;

pub use error::{HeaderFault, SealError};
pub use file::{
    Buffer, Census, FlushRecord, GroupKeys, OnDamage, Opened, ReadOutcome, Scratch, SealedFile,
    fill_with_invalid_pages,
};
pub use fingerprint::Fingerprint;
pub use header::Form;
pub use keyset::{DataKey, Generation, KeySet, KeyringId};
pub use memory::OutOfMemory;
pub use place::Place;
pub use suite::{FileKind, Layout, Suite};
pub use suites::Suites;
pub use units::{BlockNo, PlainLen, PlainOff, SealedLen, SealedOff};
