//! The floors of the preloaded library: each module uses only its own floor and the floors below.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use pgseal_testkit::modules::Modules;

/// The floors, from the lowest to the highest.
const FLOORS: [&str; 5] = ["os", "place", "keys", "file", "calls"];

/// Modules above all floors; the empty name is the root of the crate.
const ABOVE: [&str; 3] = ["", "startup", "fuzz_smoke"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../server/pgseal-preload/src")
}

/// The floor of a module, for example 3 for `crate::file::config`.
fn floor(module: &str) -> usize {
    let first = module.split("::").nth(1).unwrap_or_default();
    if ABOVE.contains(&first) {
        return FLOORS.len();
    }
    let floor = FLOORS.iter().position(|floor| *floor == first);
    floor.unwrap_or_else(|| panic!("{module} is on no floor"))
}

#[test]
fn no_module_uses_a_higher_floor() {
    let uses = Modules::read(&sources().join("lib.rs")).unwrap().uses();
    assert!(uses.len() > 50, "the modules are not found");
    assert!(uses["crate::calls::open"].contains("crate::file::plan"), "a use is not found");
    for (module, used) in uses {
        for other in used {
            assert!(floor(&other) <= floor(&module), "{module} uses {other}, of a higher floor");
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
