//! The fourth floor: files. What may happen to each, and how a sealed one is read and written.
//!
//! `decide.rs` has the verdict, `plan.rs` and `examine.rs` follow it; `open_file.rs` is an open
//! sealed file, `fds.rs` the table of descriptors, `config.rs` the locked configuration.
//! May use: `os`, `place` and `keys`.

pub mod adopt;
pub mod changes;
pub mod config;
pub mod counters;
pub mod damage;
pub mod decide;
pub mod examine;
pub mod fds;
pub mod guard;
pub mod holes;
pub mod open_file;
pub mod plan;
pub mod storage;
pub mod want;
pub mod window;
