//! The fourth floor: files. What may happen to each, and how a sealed one is read and written.
//!
//! `verdict.rs` decides about a path, `open_file.rs` is a sealed file that is open, `fds.rs` is the
//! table of descriptors, `config.rs` the configuration of a locked data directory.
//! May use: `os`, `place` and `keys`.

pub mod adopt;
pub mod changes;
pub mod config;
pub mod counters;
pub mod damage;
pub mod fds;
pub mod guard;
pub mod holes;
pub mod open_file;
pub mod storage;
pub mod verdict;
pub mod want;
pub mod window;
