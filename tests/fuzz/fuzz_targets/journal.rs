//! See `journal.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../journal.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::journal(data));
