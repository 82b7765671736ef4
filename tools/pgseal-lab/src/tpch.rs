//! Data and queries derived from TPC-H (specification 3.0.1), generated at run time by the crate
//! `tpchgen`: nothing is downloaded, and no file of plain rows is ever written to disk.
//!
//! The workload is only derived from TPC-H: its results cannot be compared with published TPC-H
//! results.

mod queries;
mod rows;
mod schema;

pub use queries::{Query, query};
pub use rows::{Volume, each_row, keys_hold};
pub use schema::{Column, ForeignKey, SqlType, TABLES, Table};
