//! See `escrow.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../escrow.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::escrow(data));
