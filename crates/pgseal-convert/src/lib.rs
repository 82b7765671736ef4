//! Conversion of a stopped data directory in place: plain to sealed, sealed to plain, sealed under
//! one data key and suite to sealed under another.
//!
//! Each file is replaced on its own: a new file is written beside it, synced and renamed over it.
//! What is done shows in the files themselves, since a sealed file names its keyring, generation and
//! suite; so a run that was cut off at any point is simply run again. As long as some files are
//! of the old form and some of the new, no server may start: [`barrier`] puts `global/pg_control`
//! away and a text that no server accepts into `PG_VERSION`, and [`journal`] remembers what is under
//! way.
//!
//! The crate works on a [`media::Media`], so that tests can run it on a disk that forgets what was
//! not synced. It asks for no keys and prints nothing: that is the program's part.
#![forbid(unsafe_code)]

pub mod barrier;
pub mod control;
pub mod copy;
pub mod engine;
pub mod error;
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

/// What the name of a file in the making ends in; it lies beside the file that it will replace.
pub const NEW_SUFFIX: &str = ".pgseal-new";
