//! Finds the files that a manifest lists.

use pgseal_pgdata::{LISTED_DIRECTORIES, catalog_version, classify};

use crate::place::datadir::{Root, join};
use crate::place::tree::{databases, names_in};

/// The paths of all files that a manifest lists, in ascending order.
pub fn listed_files(root: &Root, control: &[u8]) -> Vec<Box<[u8]>> {
    let version = catalog_version(control);
    let mut all = Vec::new();
    let mut add = |directory: &[u8]| {
        for name in names_in(root, directory) {
            let path = join(directory, &name);
            if classify(&path).is_listed_in(&path, version) {
                all.push(Box::from(&path[..]));
            }
        }
    };
    LISTED_DIRECTORIES.into_iter().for_each(&mut add);
    for directory in databases(root) {
        add(&directory);
    }
    all.sort_unstable();
    all
}
