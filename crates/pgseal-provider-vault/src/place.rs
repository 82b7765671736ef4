//! Places below the API of the store: mounts, names of keys, paths of secrets.

use std::fmt;

use pgseal_plugin::{Failure, configuration};

/// The longest path, in bytes.
const MAX_LEN: usize = 256;

/// A path of one or more segments, such as `secret/pgseal`. No segment is empty, `.` or `..`, so
/// that a path stays below the one that it is appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place(String);

impl Place {
    /// A path from the URI; slashes at its ends do not count.
    pub(crate) fn parse(attribute: &str, text: &str) -> Result<Place, Failure<'static>> {
        let path = text.trim_matches('/');
        let is_segment = |segment: &str| {
            !segment.is_empty()
                && segment != "."
                && segment != ".."
                && !segment.chars().any(char::is_control)
        };
        if path.len() > MAX_LEN || !path.split('/').all(is_segment) {
            return Err(configuration(format!(
                "{attribute}: give a path such as a/b, of at most {MAX_LEN} bytes"
            )));
        }
        Ok(Place(path.to_owned()))
    }

    /// One segment: the name of a key, as the transit engine takes it.
    pub(crate) fn name(attribute: &str, text: &str) -> Result<Place, Failure<'static>> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !text.chars().all(is_plain) {
            return Err(configuration(format!(
                "{attribute}: a name consists of letters, digits, -, _ and ."
            )));
        }
        Place::parse(attribute, text)
    }

    /// The path as a part of a URL (RFC 3986).
    pub(crate) fn encoded(&self) -> String {
        let mut text = String::with_capacity(self.0.len());
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                    text.push(char::from(byte));
                }
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        text
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn paths_stay_below_their_mount() {
        for bad in ["", "/", "a//b", "..", "a/../b", "./a", "a\nb", &"x".repeat(257)] {
            assert!(Place::parse("mount", bad).is_err(), "{bad}");
        }
        for bad in ["a/b", "a b", "a%2fb", "", "..", "a?b"] {
            assert!(Place::name("key", bad).is_err(), "{bad}");
        }
        let place = Place::parse("mount", "/team a/transit/").unwrap();
        assert_eq!(place.to_string(), "team a/transit");
        assert_eq!(place.encoded(), "team%20a/transit");
        assert_eq!(Place::parse("secret", "a?b#c%d").unwrap().encoded(), "a%3Fb%23c%25d");
    }
}
