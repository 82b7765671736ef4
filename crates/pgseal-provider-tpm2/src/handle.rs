//! Handles: the numbers of keys and indices in the TPM.

/// A handle from text: `0x81000001`.
pub(crate) fn parse(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x")?;
    // The parser of numbers takes a sign, too.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn handles() {
        assert_eq!(parse("0x81000001"), Some(0x8100_0001));
        assert_eq!(parse("0x01aBcDeF"), Some(0x01ab_cdef));
        for bad in ["", "0x", "81000001", "0x+1", "0x-1", "0x1g", "0x100000000", " 0x1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
