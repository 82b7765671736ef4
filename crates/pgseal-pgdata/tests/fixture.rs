//! Classifies the names of files that real servers made.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use pgseal_pgdata::{Class, TABLE, classify};

const FIXTURE: &str = include_str!("fixtures/paths-15.txt");

/// The lines `path class` of the fixture.
fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIXTURE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
}

#[test]
fn every_path_is_of_its_class_and_none_is_unknown() {
    for (path, name) in lines() {
        let class = classify(path.as_bytes());
        assert_eq!(class.name(), name, "{path}");
        assert_ne!(class, Class::Unknown, "{path}");
    }
}

#[test]
fn the_fixture_covers_every_class() {
    let covered: HashSet<&str> = lines().map(|(_, name)| name).collect();
    for row in TABLE.iter().filter(|row| row.class != Class::Unknown) {
        assert!(covered.contains(row.name), "no path of class {}", row.name);
    }
}

/// For a new major version: start a server of it, use it, then run this test with `--ignored`.
#[test]
#[ignore = "needs PGSEAL_TEST_DATADIR, a data directory that PostgreSQL made"]
fn a_real_data_directory_has_no_unknown_file() {
    let root = PathBuf::from(env::var_os("PGSEAL_TEST_DATADIR").unwrap());
    let mut unknown = Vec::new();
    let seen = walk(&root, &root, &mut unknown);
    assert!(seen > 900, "{seen} files are too few for a data directory");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn walk(root: &Path, directory: &Path, unknown: &mut Vec<PathBuf>) -> usize {
    let mut seen = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            seen += walk(root, &path, unknown);
            continue;
        }
        seen += 1;
        let rel = path.strip_prefix(root).unwrap();
        if classify(rel.as_os_str().as_encoded_bytes()) == Class::Unknown {
            unknown.push(rel.to_owned());
        }
    }
    seen
}
