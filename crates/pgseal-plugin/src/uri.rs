//! The parts of a plugin's URI: attributes `NAME=VALUE` with percent-encoded values (RFC 3986), in
//! the form of the URIs of PKCS #11 (RFC 7512).

use std::path::PathBuf;

use crate::failure::{Failure, configuration};

/// The longest name of an attribute that a message shows, in bytes.
const MAX_SHOWN_LEN: usize = 24;

/// The names and decoded values of one part of a URI, whose attributes `separator` separates. Empty
/// attributes do not count.
///
/// # Errors
/// [`crate::Fault::Configuration`] if an attribute has no value, or none that is percent-encoded.
pub fn attributes(part: &str, separator: char) -> Result<Vec<(&str, Vec<u8>)>, Failure<'static>> {
    part.split(separator)
        .filter(|attribute| !attribute.is_empty())
        .map(|attribute| {
            let (name, value) = attribute
                .split_once('=')
                .ok_or_else(|| configuration("an attribute of the URI has no value"))?;
            let value = decoded(value).ok_or_else(|| {
                configuration(format!(
                    "{}: the value is not percent-encoded as RFC 3986 wants it (%20 is a space)",
                    shown(name)
                ))
            })?;
            Ok((name, value))
        })
        .collect()
}

/// The names and values of one part of a URI, as [`attributes`]. The values are text, and none is
/// empty.
///
/// # Errors
/// As [`attributes`]; [`crate::Fault::Configuration`] if a value is empty or not UTF-8.
pub fn texts(part: &str, separator: char) -> Result<Vec<(&str, String)>, Failure<'static>> {
    let text = |(name, value)| match string(name, value)? {
        value if value.is_empty() => {
            Err(configuration(format!("{}: the value is empty", shown(name))))
        }
        value => Ok((name, value)),
    };
    attributes(part, separator)?.into_iter().map(text).collect()
}

/// The bytes that a percent-encoded text stands for (RFC 3986, section 2.1); `None` if two
/// hexadecimal digits do not follow each `%`.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>()?;
        rest = behind;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    Some(bytes)
}

/// Puts the value of an attribute into its slot.
///
/// # Errors
/// [`crate::Fault::Configuration`] if the slot has a value already: an attribute stands once.
pub fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Failure<'static>> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(configuration(format!("{name}: the attribute stands twice"))),
    }
}

/// A value as text.
///
/// # Errors
/// [`crate::Fault::Configuration`] if it is not UTF-8.
pub fn string(name: &str, value: Vec<u8>) -> Result<String, Failure<'static>> {
    String::from_utf8(value)
        .map_err(|_| configuration(format!("{}: the value is not UTF-8", shown(name))))
}

/// A value as an absolute path.
///
/// # Errors
/// [`crate::Fault::Configuration`] if it is no absolute path.
pub fn absolute(name: &str, value: &str) -> Result<PathBuf, Failure<'static>> {
    let path = PathBuf::from(value);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(configuration(format!("{name}: give an absolute path of a file"))),
    }
}

/// The name of an attribute for messages. What stands where a name belongs may be a secret: only a
/// short word of letters, digits, `-` and `_` is shown.
#[must_use]
pub fn shown(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_short = name.len() <= MAX_SHOWN_LEN;
    if is_short && name.chars().all(is_name) { name.to_owned() } else { "...".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_of_rfc_3986() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("a b", b"a b"),
            ("a%20b%2F", b"a b/"),
            ("%00%fF", &[0, 255]),
            ("%25%32%35", b"%25"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(bytes), "{text}");
        }
        for bad in ["%", "%4", "a%", "%+1", "% 1", "%g0", "%%20"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn attributes_of_one_part() {
        let found = attributes("a=1;;b=x=y%3b;", ';').map_err(|failure| failure.message);
        assert_eq!(found, Ok(vec![("a", b"1".to_vec()), ("b", b"x=y;".to_vec())]));
        assert!(attributes("a", ';').is_err() && attributes("a=%", ';').is_err());
        let mut slot = None;
        assert!(once(&mut slot, "a", 1).is_ok() && once(&mut slot, "a", 1).is_err());
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        assert_eq!(shown("secret-id-file"), "secret-id-file");
        assert_eq!(shown(&"a".repeat(24)), "a".repeat(24));
        for hidden in ["sek/rit", "a.b", "a b", &"a".repeat(25)] {
            assert_eq!(shown(hidden), "...");
        }
        let failure = attributes("se.krit=%", ';').err().map(|failure| failure.message);
        assert!(failure.is_some_and(|message| !message.contains("krit")));
    }
}
