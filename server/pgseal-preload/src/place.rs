//! The second floor: which program this process runs, and where a path lies.
//!
//! This floor maps a path to a data directory and the class of a file in it. It also reads the
//! small files that tell the state of a server and a data directory (`pg_control`, the lock file).
//! May use: `os`. No data key is loaded here; a data directory only keeps the keys that it was
//! given.

pub mod datadir;
pub mod head;
pub mod program;
pub mod symbol;
pub mod texts;
pub mod tree;
