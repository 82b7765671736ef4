//! The fuzz target of the journal over its seeds and what small changes make of them, for toolchains
//! without libFuzzer.

#[path = "../../../fuzz/journal.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../fuzz/smoke.rs"]
mod smoke;
#[allow(dead_code)]
#[path = "../../pgseal-preload/src/place/texts.rs"]
mod texts;

#[test]
fn journals() {
    smoke::run("journal", 2000, bodies::journal);
}
