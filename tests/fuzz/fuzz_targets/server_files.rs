//! See `cli.rs`.
#![no_main]

include!("../of_cli.rs");

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::server_files(data));
