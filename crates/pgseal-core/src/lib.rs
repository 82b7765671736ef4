//! The sealed file of pgseal: suites, geometry, header, blocks and the file itself.
//!
//! The format is `spec/sealed-file.md`. This crate knows nothing of PostgreSQL and makes no
//! system call of its own; bytes come and go through [`storage::Storage`].

#![deny(unsafe_code)]

pub mod keyset;
pub mod suite;

pub use keyset::{DataKey, Generation, KeySet, KeyringId};
pub use suite::{FileKind, Layout, Suite};
