//! Runs the fuzz target of the journal over its seeds and over mutated seeds, on toolchains without
//! libFuzzer.

#[path = "../../../tests/fuzz/journal.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

#[test]
fn journals() {
    smoke::run("journal", 2000, bodies::journal);
}
