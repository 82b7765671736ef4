//! The hooked calls, one file per family.

pub mod code;
pub mod copy;
pub mod descriptor;
pub mod directory;
pub mod map;
pub mod open;
pub mod read;
pub mod size;
pub mod stat;
pub mod stdio;
pub mod sync;
pub mod write;
