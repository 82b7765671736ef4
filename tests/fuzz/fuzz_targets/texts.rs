//! See `preload.rs`.
#![no_main]

include!("../of_preload.rs");

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::texts(data));
