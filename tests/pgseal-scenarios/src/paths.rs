//! Compares data directories with the path table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pgseal_pgdata::{Class, classify};

/// The names of the path classes that have a file in a data directory.
#[must_use]
pub fn classes(data: &Path) -> BTreeSet<&'static str> {
    files(data).iter().map(|rel| class(rel).name()).collect()
}

/// The files of a data directory whose paths no class of the path table matches.
#[must_use]
pub fn unknown_files(data: &Path) -> Vec<String> {
    let mut unknown = files(data);
    unknown.retain(|rel| class(rel) == Class::Unknown);
    unknown.iter().map(|rel| rel.display().to_string()).collect()
}

fn class(rel: &Path) -> Class {
    classify(rel.as_os_str().as_encoded_bytes())
}

/// All files, those of tablespaces included, by their paths in the data directory.
fn files(data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![data.to_owned()];
    while let Some(dir) = left.pop() {
        // A running server may have removed the directory.
        let Ok(listing) = std::fs::read_dir(&dir) else { continue };
        for path in listing.flatten().map(|item| item.path()) {
            if path.is_dir() {
                left.push(path);
            } else if let Ok(rel) = path.strip_prefix(data) {
                found.push(rel.to_owned());
            }
        }
    }
    assert!(found.len() > 300, "{}: too few files for a data directory", data.display());
    found
}
