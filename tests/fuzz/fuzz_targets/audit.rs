//! See `keys.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../keys.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::audit(data));
