//! What the scenario tests share: whole servers, plain and sealed, as a newcomer would run them.
//!
//! The scenarios are in `scenarios/`, one file for each promise of pgseal. They run with
//! `cargo test -p pgseal-scenarios` after `make build`, on the real PostgreSQL, as root or as any
//! user. Steps that fail end the test with a text that says what was being done: this crate is
//! test code only.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test ends where a step fails")]

pub mod backup;
pub mod files;
pub mod key_store;
pub mod kmip;
mod load;
pub mod mount;
mod node;
mod outcome;
pub mod pages;
pub mod paths;
mod programs;
mod replica;
pub mod resealing;
mod session;
mod sound;

pub use load::Ledger;
pub use node::{Node, limit_address_space, with_file_limit};
pub use outcome::{Outcome, ends, succeeds};
pub use pgseal_cluster::is_root;
pub use programs::{
    Older, escrow_lock, from_major, is_fips, not_applicable, older, programs, server_major,
};
pub use replica::{Keys, assert_same_contents};
pub use session::Session;
pub use sound::{SUM, assert_hidden, assert_shown};
