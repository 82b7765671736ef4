//! Parses the small files that a server keeps in its data directory. An attacker who can write
//! there may have written them: only harmless values are returned.

/// The process id in the text of `postmaster.pid`.
pub fn pid_of(lock_file: &str) -> Option<u32> {
    // The number of a single-user server (postgres --single) is negative.
    let pid: i32 = lock_file.lines().next()?.trim().parse().ok()?;
    Some(pid.unsigned_abs())
}

/// Whether the text of `PG_VERSION` is a version, which may be part of a path: a number, or two
/// (9.6).
pub fn is_major(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 8 && text.split('.').all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_names_a_process() {
        for (text, pid) in [
            ("4711\n/data\n", Some(4711)),
            ("-12\n", Some(12)),
            ("-2147483648", Some(1 << 31)),
            ("2147483648\n", None),
            ("\n4711\n", None),
            ("", None),
        ] {
            assert_eq!(pid_of(text), pid, "{text:?}");
        }
    }

    #[test]
    fn a_version_is_no_path() {
        assert!(is_major("15") && is_major("9.6"));
        for text in ["", "..", ".", "15/", "/15", "1.", "123456789"] {
            assert!(!is_major(text), "{text:?}");
        }
    }
}
