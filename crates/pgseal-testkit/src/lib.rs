//! For tests only: throw-away PostgreSQL clusters, plain or sealed, and a scanner that looks for
//! marker strings in raw files.
#![forbid(unsafe_code)]

pub mod canary;
mod cluster;
pub mod hostile;
mod process;
mod programs;
mod terminal;

pub use cluster::{Cluster, ClusterBuilder, Sealing};
pub use programs::{Programs, bindir, install};
pub use terminal::Terminal;
