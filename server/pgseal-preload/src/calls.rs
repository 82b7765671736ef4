//! The top floor: the hooked calls of the C library, one file for each family.
//!
//! `symbols.rs` is the table of all calls that touch files, `audit.rs` checks programs and modules
//! against that table, and `server.rs` prepares a server when it takes its lock file.
//! May use: `os`, `place`, `keys` and `file`. Only `startup.rs` is above it.

pub mod audit;
pub mod children;
pub mod code;
pub mod copy;
pub mod descriptor;
pub mod directory;
mod jump;
pub mod map;
pub mod open;
pub mod raw;
pub mod read;
pub mod receive;
pub mod rename;
pub mod rings;
pub mod send;
mod server;
pub mod shared_memory;
pub mod size;
pub mod stat;
pub mod stdio;
pub mod symbols;
pub mod sync;
pub mod temporary;
pub mod unlink;
pub mod walk;
pub mod write;

use libc::ssize_t;

/// The most bytes that one call moves, as in the kernel.
const MAX_RW_COUNT: usize = 0x7FFF_F000;

/// Converts a number of bytes to the return type of `read` and `write`.
fn count(bytes: usize) -> ssize_t {
    ssize_t::try_from(bytes).unwrap_or(ssize_t::MAX)
}
