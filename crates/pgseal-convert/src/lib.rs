//! Conversion of a stopped data directory in place: plain to sealed, sealed to plain, sealed under
//! one data key and suite to sealed under another.
//!
//! Each file is replaced separately: a new file is written beside it, synced and renamed over it. A
//! sealed file names its keyring, generation and suite, so the files themselves show which of them
//! are done, and a conversion that was interrupted at any point can simply be run again. While some
//! files have the old form and some the new form, no server may start: [`barrier`] moves
//! `global/pg_control` away and writes a text that no server accepts into `PG_VERSION`, and
//! [`journal`] records what is being done.
//!
//! The crate works on a [`media::Media`], so that tests can use a disk that loses what was not
//! synced. The crate asks for no keys and prints nothing: the program does that.
#![forbid(unsafe_code)]

pub mod barrier;
pub mod control;
pub mod copy;
pub mod engine;
pub mod error;
mod files;
pub mod journal;
pub mod lock;
pub mod media;
pub mod page;
pub mod plan;
pub mod room;
pub mod tree;

pub use control::Control;
pub use engine::{Found, Outcome};
pub use error::ConvertError;
pub use journal::{Facts, Journal, Operation, Phase};
pub use media::{Disk, Media};
pub use plan::{Action, Target};
pub use tree::{Item, Tree};

/// The suffix of an unfinished new file, which lies beside the file that it will replace.
pub const NEW_SUFFIX: &str = ".pgseal-new";
