//! The second floor: which program this process runs, and where a path lies.
//!
//! A path becomes a data directory and the class of a file in it. Small files that say how a
//! server and a data directory are (`pg_control`, the lock file) are read here, too.
//! May use: `os`. No data key is loaded here; a data directory only keeps those that it was given.

pub mod datadir;
pub mod head;
pub mod program;
pub mod texts;
