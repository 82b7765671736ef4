//! Compares the symbol table with the built library, its documentation and its tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/hooks_md.rs"]
mod hooks_md;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal::calls::symbols::{FAMILIES, Treatment, may_touch_files, treatment_of};

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of dynamic symbols of a file, without versions.
fn dynamic_symbols(which: &str, file: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", which]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libpgseal.so")
}

#[test]
fn the_documentation_is_what_the_table_says() {
    let path = manifest().join("../../spec/hooks.md");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == hooks_md::text(), "spec/hooks.md is outdated; run 'make spec'");
}

#[test]
fn every_family_names_tests_that_exist() {
    for family in FAMILIES {
        assert!(!family.tests.is_empty(), "{} has no test", family.name);
        for test in family.tests {
            let dirs: &[&str] = match test.ends_with(".c") {
                true => &["tests/apps"],
                false => &["tests", "../../tests/pgseal-scenarios/scenarios"],
            };
            let exists = dirs.iter().any(|dir| manifest().join(dir).join(test).exists());
            assert!(exists, "{}: {test}", family.name);
        }
    }
}

#[test]
fn every_program_is_run_by_a_test() {
    let dir = manifest().join("tests");
    let mut sources = std::fs::read_to_string(dir.join("steady.rs")).unwrap();
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(dir.join("apps")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        } else if path.extension().is_some_and(|end| end == "c") {
            programs.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    assert!(programs.len() > 30);
    for program in programs {
        assert!(sources.contains(&format!("\"{program}\"")), "no test runs {program}.c");
    }
}

#[test]
fn the_library_exports_exactly_the_hooked_functions() {
    let mut exported = dynamic_symbols("--defined-only", &library());
    // Functions for the guard module (`server/guard/pgseal_guard.c`).
    exported.retain(|name| !name.starts_with("pgseal_"));
    let hooked: BTreeSet<String> = FAMILIES
        .iter()
        .filter(|family| family.treatment == Treatment::Hooked)
        .flat_map(|family| family.symbols)
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(hooked.difference(&exported).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(exported.difference(&hooked).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// `make hooks-audit` reports functions that the table refuses or does not know.
#[test]
fn rare_calls_are_refused_by_name() {
    for name in
        ["open_by_handle_at", "aio_read", "io_submit", "vmsplice", "fts_children", "dlmopen"]
    {
        assert_eq!(treatment_of(name), Some(Treatment::Refused), "{name}");
    }
    for name in ["preadv3", "openat3", "copy_file_range2"] {
        assert!(may_touch_files(name) && treatment_of(name).is_none(), "{name}");
    }
    for name in ["setpwent", "fopencookie", "fts_open"] {
        assert_eq!(treatment_of(name), Some(Treatment::Passed), "{name}");
    }
}
