//! `libpgseal.so`: preloaded into PostgreSQL's programs, it shows them plain files and writes
//! sealed ones.
//!
//! Hand-written `unsafe` is only allowed here and in the EVP module of `pgseal-core`. For each
//! hooked call the library seals the file, passes the call on or refuses it; `calls/symbols.rs` is
//! the table of calls, and `spec/hooks.md` is generated from it.
//!
//! There are five floors, each of which uses only the floors below it: `os`, `place`, `keys`,
//! `file`, `calls` (`pgseal-testkit` checks this in `tests/floors.rs`); `startup.rs` is on top.

pub mod calls;
mod file;
#[cfg(test)]
mod fuzz_smoke;
mod keys;
mod os;
mod place;
mod startup;
