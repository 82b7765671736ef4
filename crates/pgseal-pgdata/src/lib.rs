//! What a file of a PostgreSQL data directory is, and what pgseal does with it.
//!
//! [`classify`] turns a path relative to the root of a data directory into a [`Class`];
//! [`Class::policy`] says whether files of that class are sealed, stay plain or are refused.
//! [`TABLE`] shows every class with an example, its policy and the reason. [`counters`] is what a
//! server counts of each class.
//!
//! The crate is pure: no input or output, no allocation (`no_std` without `alloc`), because the
//! library asks it inside every `open()` of the server. Paths are bytes, as the kernel sees them.
//!
//! Names follow the sources of PostgreSQL 15 to 19. Much of what users think of as separate
//! things has no file of its own: large objects (`pg_largeobject`), enum labels (`pg_enum`),
//! comments (`pg_description`), defaults (`pg_attrdef`), function bodies (`pg_proc`), planner
//! statistics (`pg_statistic`, `pg_statistic_ext_data`), TOAST values, materialised views,
//! sequences and indexes all live in relations, so [`Class::Relation`] covers them.
//!
//! The names of directories are not classified: a directory itself (`base`, `pg_wal/summaries`)
//! is [`Class::Unknown`], and the caller must tell directories from files first.
#![forbid(unsafe_code)]
#![no_std]

mod class;
mod classify;
pub mod counters;
mod form;
mod names;
mod place;
mod policy;
mod renewal;
mod table;
mod tablespace;

pub use class::{Class, Fork};
pub use classify::classify;
pub use form::Misplaced;
pub use place::{WAL, locate, locate_in_tablespace, place};
pub use policy::{KeyScope, Policy};
pub use renewal::Renewal;
pub use table::{Row, TABLE};
pub use tablespace::{classify_in_tablespace, tablespace_relative};
