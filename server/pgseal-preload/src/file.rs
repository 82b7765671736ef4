//! The fourth floor: what may happen to each file, and reading and writing of sealed files.
//!
//! `decide.rs` decides whether a call passes, seals or fails; `plan.rs` and `examine.rs` carry that
//! verdict out. `open_file.rs` is an open sealed file, `fds.rs` the table of descriptors,
//! `config.rs` the locked configuration.
//! May use: `os`, `place` and `keys`.

pub mod accelerators;
pub mod adopt;
pub mod anchor;
pub mod capacity;
pub mod changes;
pub mod config;
pub mod counters;
pub mod damage;
pub mod decide;
pub mod examine;
pub mod fds;
pub mod gate;
pub mod guard;
pub mod held;
pub mod leftovers;
pub mod lengths;
pub mod lost_sectors;
pub mod manifest;
pub mod named;
pub mod open_file;
pub mod own_file;
pub mod plan;
pub mod range_lock;
pub mod reseal;
pub mod sealing;
pub mod shared_tags;
pub mod storage;
pub mod usage;
pub mod versions;
pub mod wal;
pub mod window;
