//! Every family of hooked calls, held against the same program without the library.
//!
//! One C program for each behaviour; `spec/hooks.md` says which covers what.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod births;
mod config;
mod damage;
mod descriptors;
mod files;
mod memory;
mod modules;
mod places;
mod streams;
mod support;
