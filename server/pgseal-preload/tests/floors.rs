//! The floors of the library: each floor uses only the floors below it, and there is no cycle of
//! files that use each other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The floors, from the lowest to the highest.
const FLOORS: [&str; 5] = ["os", "place", "keys", "file", "calls"];

/// Files at the root that belong to no floor.
const ABOVE: [&str; 3] = ["lib", "startup", "fuzz_smoke"];

/// The only two files that may use each other: the log writes with the C library's own `write`, and
/// a function missing in the C library is logged.
const PAIR: [&str; 2] = ["os/log", "os/real"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All files below a directory, as `file/config/record`.
fn files(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            let path = path.strip_prefix(sources()).unwrap().with_extension("");
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}

/// The code of a file, without its comments and its tests.
fn code(file: &str) -> String {
    let text = std::fs::read_to_string(sources().join(file).with_extension("rs")).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The paths in the tree `a::{b, c::{d, e}}` at the beginning of `text`, each with `::`.
fn paths(text: &str) -> Vec<String> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let Some(rest) = rest.strip_prefix("::") else { return vec![word.to_owned()] };
    let below = match rest.strip_prefix('{') {
        None => paths(rest),
        Some(group) => members(group).into_iter().flat_map(paths).collect(),
    };
    below.into_iter().map(|path| format!("{word}::{path}")).collect()
}

/// The members of a group, up to its closing brace.
fn members(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut members) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                members.push(group[start..at].trim());
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

/// The files of the crate that a file uses: for each path, its longest part that is a file.
fn uses(file: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let code = code(file);
    assert!(!code.contains("super::super"), "{file}: paths to other files begin with crate::");
    let found = code.split("crate::").skip(1).flat_map(paths).map(|path| {
        let words: Vec<&str> = path.split("::").collect();
        let lengths = (1..=words.len()).rev();
        let known = lengths.map(|len| words[..len].join("/")).find(|path| all.contains(path));
        known.unwrap_or_else(|| panic!("{file}: crate::{path} is in no file"))
    });
    found.filter(|used| used != file).collect()
}

fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = Vec::new();
    files(&sources(), &mut all);
    let all: BTreeSet<String> = all.into_iter().collect();
    assert!(all.len() > 50, "the files are not found");
    all.iter().map(|file| (file.clone(), uses(file, &all))).collect()
}

fn floor(file: &str) -> usize {
    let first = file.split('/').next().unwrap();
    if ABOVE.contains(&first) {
        return FLOORS.len();
    }
    let floor = FLOORS.iter().position(|floor| *floor == first);
    floor.unwrap_or_else(|| panic!("{file} is on no floor"))
}

#[test]
fn no_file_uses_a_higher_floor() {
    for (file, used) in graph() {
        for other in used {
            assert!(floor(&other) <= floor(&file), "{file} uses {other}, of a higher floor");
        }
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let graph = graph();
    for start in graph.keys().filter(|file| !PAIR.contains(&file.as_str())) {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(file) = next.pop() {
            for used in &graph[file] {
                assert!(used != start, "{start} uses itself through {file}");
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
    }
}

#[test]
fn each_floor_says_what_it_may_use() {
    for floor in FLOORS {
        let text = std::fs::read_to_string(sources().join(floor).with_extension("rs")).unwrap();
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(head.len() <= 6 && text.contains("\n//! May use: "), "{floor}.rs: {head:?}");
    }
}

#[test]
fn groups_of_imports_are_told_apart() {
    let found = paths("file::{self, fds::{self, SharedFile}, want::Want};\nuse std::io;");
    assert_eq!(
        found,
        ["file::self", "file::fds::self", "file::fds::SharedFile", "file::want::Want"]
    );
    assert_eq!(paths("os::sys::stat(path)"), ["os::sys::stat"]);
}
