//! The lowest floor: the C library, the kernel and the dynamic linker, as the library uses them.
//!
//! Nothing here knows what a data directory is. No call from here passes through the hooks.
//! Functions report a failure as an error number, or as a line on standard error.
//! May use: no other floor.

pub mod fault;
pub mod linker;
pub mod log;
pub mod mapped;
pub mod memory;
pub mod module;
pub mod mutex;
pub mod paths;
pub mod random;
pub mod real;
pub mod search;
pub mod sys;
