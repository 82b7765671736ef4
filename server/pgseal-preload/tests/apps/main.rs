//! Tests every family of hooked calls by running the same program with and without the library.
//!
//! There is one C program for each behaviour; `spec/hooks.md` says which program covers which
//! calls.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod config;
mod damage;
mod descriptors;
mod files;
mod headers;
mod keyrings;
mod memory;
mod modules;
mod places;
mod streams;
mod support;
mod wal;
