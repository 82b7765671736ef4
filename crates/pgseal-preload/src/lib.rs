//! `libpgseal.so`: preloaded into PostgreSQL's programs, it shows them plain files and writes
//! sealed ones.
//!
//! The only home of hand-written `unsafe` besides the EVP module of `pgseal-core`. Each hooked call
//! ends in a verdict: seal, pass or refuse; `calls/symbols.rs` is the table, `spec/hooks.md` is made
//! from it.
//!
//! Five floors, each of which uses those below it only: `os`, `place`, `keys`, `file`, `calls`
//! (`tests/floors.rs` checks it); `startup.rs` is on top.

pub mod calls;
mod file;
#[cfg(test)]
mod fuzz_smoke;
mod keys;
mod os;
mod place;
mod startup;
