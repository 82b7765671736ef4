//! Runs the fuzz targets of the library on their seeds and on small mutations of the seeds, for
//! toolchains without libFuzzer.

#[path = "../../../tests/fuzz/preload.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

use crate::os::module::Module;
use crate::os::{linker, module, paths};
use crate::place::texts;

#[test]
fn objects() {
    smoke::run("elf", 2000, bodies::elf);
    // Checks that the seeds are valid.
    let seeds = smoke::seeds("elf");
    let found = seeds.iter().filter_map(|bytes| Module::of_file(bytes).ok());
    assert_eq!(found.filter(|module| module.soname() == Some(c"libseed.so.1")).count(), 3);
}

#[test]
fn lists_of_libraries() {
    smoke::run("linker", 2000, bodies::linker);
}

#[test]
fn small_texts() {
    smoke::run("texts", 1000, bodies::texts);
}

#[test]
fn paths() {
    smoke::run("path", 2000, bodies::path);
}
