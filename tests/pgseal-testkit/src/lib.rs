//! For tests only: throw-away PostgreSQL clusters, plain or sealed, and a scanner that looks for
//! marker strings in raw files.
#![forbid(unsafe_code)]

pub mod canary;
mod cluster;
pub mod hostile;
pub mod modules;
mod programs;
mod terminal;

pub use cluster::{Cluster, ClusterBuilder, Sealing};
pub use pgseal_cluster::{ClusterError, Programs, Stop, install};
pub use programs::{bindir, built_programs};
pub use terminal::Terminal;
