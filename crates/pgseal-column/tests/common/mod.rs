//! Helpers for several tests.

#![allow(dead_code, missing_docs)]

/// Bytes from hexadecimal.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| (digit(pair[0]) << 4) | digit(pair[1])).collect()
}

/// Hexadecimal of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
