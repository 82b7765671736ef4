//! Throw-away clusters of the installed PostgreSQL, plain or sealed: for the lab, the testkit and
//! the scenarios.
//!
//! - [`Tools`]: the programs of one PostgreSQL and of pgseal, and the user and CPUs they run with;
//! - [`Cluster`]: one data directory; [`Server`]: a running server, a child of this process;
//! - [`Target`], [`Session`]: client programs on a database;
//! - [`Account`]: the ordinary user that servers run as when this process runs as root;
//! - [`Patience`]: how long to wait for a condition;
//! - [`process`], [`free_port`], [`install`]: processes by their numbers, TCP ports, copies of
//!   programs.
//!
//! ```no_run
//! # use pgseal_cluster::{Cluster, ClusterError, Tools};
//! # fn main() -> Result<(), ClusterError> {
//! # let (bindir, pgseal, work) = ("/usr/lib/postgresql/15/bin", "/usr/bin/pgseal", "/tmp/w");
//! let tools = Tools::new(bindir.as_ref(), pgseal.as_ref())?;
//! tools.give(work.as_ref())?;
//! let cluster = Cluster::create(&tools, work.as_ref(), "sealed", Some("aes-256-gcm"))?;
//! let server = cluster.start(&tools, &["shared_buffers=1GB"])?;
//! let mut session = server.target(&tools, "postgres").session()?;
//! let answer = session.query("SELECT count(*) FROM pg_class")?;
//! println!("{} rows in {} s", answer.rows, answer.seconds);
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod account;
mod client;
mod cluster;
mod command;
mod error;
mod patience;
mod port;
pub mod process;
mod programs;
mod server;
mod session;
mod tools;

pub use account::{Account, is_root, run_as};
pub use client::{Outcome, Target};
pub use cluster::{Cluster, NewCluster, SUPERUSER};
pub use command::{output_of, shown};
pub use error::{ClusterError, last_lines};
pub use patience::Patience;
pub use port::free_port;
pub use programs::{Programs, install};
pub use rustix::process::Signal;
pub use server::{Server, Stop};
pub use session::{Answer, Session};
pub use tools::Tools;
