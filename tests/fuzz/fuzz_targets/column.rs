//! See `column.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../column.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::column(data));
