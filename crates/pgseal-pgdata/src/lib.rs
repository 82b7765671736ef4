//! What a file of a PostgreSQL data directory is, and what pgseal does with it.
//!
//! [`classify`] turns a path relative to the root of a data directory into a [`Class`];
//! [`Class::policy`] says whether files of that class are sealed, stay plain or are refused.
//! [`TABLE`] lists every class with an example, its policy and the reason. [`counters`] defines
//! what a server counts for each class.
//!
//! The crate does no input or output and no allocation (`no_std` without `alloc`), because the
//! preloaded library calls it in every `open()` of the server. Paths are bytes, as for the kernel.
//!
//! Names follow the sources of PostgreSQL 15 to 19. Much of what users think of as separate
//! things has no file of its own: large objects (`pg_largeobject`), enum labels (`pg_enum`),
//! comments (`pg_description`), defaults (`pg_attrdef`), function bodies (`pg_proc`), planner
//! statistics (`pg_statistic`, `pg_statistic_ext_data`), TOAST values, materialised views,
//! sequences and indexes all live in relations, so [`Class::Relation`] covers them.
//!
//! Directories are not classified: the class of a directory (`base`, `pg_wal/summaries`) is
//! [`Class::Unknown`], so the caller must first check that the path is a file.
#![forbid(unsafe_code)]
#![no_std]

mod catalog;
mod checkpoint;
mod class;
mod classify;
pub mod counters;
mod form;
mod listed;
mod names;
mod place;
mod policy;
mod renewal;
mod table;
mod tablespace;
mod wal;

pub use catalog::{PlainFiles, Relation, RelationKind, WatchedFiles, is_orphan, relation_of};
pub use checkpoint::{Checkpoint, has_checksums, is_shut_down};
pub use class::{Class, Fork};
pub use classify::classify;
pub use form::Misplaced;
pub use listed::{LISTED_DIRECTORIES, catalog_version, segment_of};
pub use place::{WAL, locate, locate_in_tablespace, place};
pub use policy::{KeyScope, Policy};
pub use renewal::Renewal;
pub use table::{Row, TABLE};
pub use tablespace::{classify_in_tablespace, tablespace_relative};
pub use wal::{WalPosition, WalSegment, wal_segment_bytes};
