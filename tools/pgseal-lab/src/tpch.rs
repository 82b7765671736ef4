//! Data and queries derived from TPC-H (specification 3.0.1), made on the spot by the crate `tpchgen`:
//! nothing is downloaded, and no file of plain rows ever lies on disk.
//!
//! Results are of a workload derived from TPC-H and cannot be compared with published TPC-H results.

mod queries;
mod rows;
mod schema;
mod script;

pub use queries::{Query, query};
pub use rows::{Volume, each_row, keys_hold};
pub use schema::{Column, ForeignKey, SqlType, TABLES, Table};
pub use script::write_sql;
