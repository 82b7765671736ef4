//! Simulates thousands of power cuts from one recorded run.
//!
//! [`Recorder`] is a file system in memory (FUSE) that a whole server runs on. It records every
//! change in order, with its bytes ([`Log`]). [`Cut`] then builds a disk that a power cut at any
//! place of the log could leave: all synced changes, and a random part of the unsynced changes,
//! decided by a seed. One run of a few seconds yields any number of disks, and each disk can be
//! rebuilt from its seed.
//!
//! [`Place`] writes one disk after another to a directory, and [`Timeline`] tells what the files of
//! a log are called, to find the moments at which cuts are aimed.
//!
//! The model of the disk allows what POSIX and common file systems allow:
//!
//! - Bytes that a returned `fsync` or `fdatasync` covers are on the disk. Later bytes may be lost,
//!   each sector (512 bytes, `spec/media.md`), page (4096 bytes) or whole write independently.
//! - The operations on names that survive are a prefix of the journal: an operation on names
//!   survives only with all earlier ones. `fsync` of a file makes its own names durable (ext4, XFS,
//!   btrfs do so), `fsync` of a directory makes the names in it durable.
//! - The length of a file is independent of its bytes: a file may have grown without its new bytes,
//!   which then read as zeros, or new bytes may be on the disk without the new length.
//!
//! The disk can also do wrong while a server runs on it ([`Rule`]): errors, no room, lost and
//! misdirected writes, syncs that do not return.
#![forbid(unsafe_code)]

mod cut;
mod disk;
mod faults;
mod log;
mod place;
mod recorder;
mod timeline;

pub use cut::{Cut, Image, Survival, Unit};
pub use disk::{Disk, DiskError, Ino};
pub use faults::{Call, Fault, Rule};
pub use log::{Log, Op};
pub use place::Place;
pub use recorder::{Mounted, Recorder};
pub use timeline::Timeline;
