//! See `pgdata.rs`.
#![no_main]

#[path = "../pgdata.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::catalog(data));
