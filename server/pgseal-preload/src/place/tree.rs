//! Lists the directories of a data directory.

use crate::os::sys;
use crate::place::datadir::{Root, join};

/// The names in a directory below a data directory, without those that begin with a dot; none if
/// the directory cannot be read.
pub fn names_in(root: &Root, directory: &[u8]) -> Vec<Vec<u8>> {
    let path = join(root.path(), directory).into_c().ok();
    path.and_then(|path| sys::names_in(&path)).unwrap_or_default()
}

/// The directories of databases, relative to the data directory.
pub fn databases(root: &Root) -> Vec<Vec<u8>> {
    let below = |directory: &[u8]| -> Vec<Vec<u8>> {
        names_in(root, directory).iter().map(|name| join(directory, name).to_vec()).collect()
    };
    let mut all = below(b"base");
    for tablespace in below(b"pg_tblspc") {
        for directory in below(&tablespace) {
            all.extend(below(&directory));
        }
    }
    all
}
