//! How a key is named.

use std::fmt;

/// The longest name or identifier of a key, in bytes.
pub(crate) const MAX_LEN: usize = 200;

/// A Unique Identifier or a Name of an object: printable, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id(String);

impl Id {
    /// `None` if this cannot be one.
    pub(crate) fn parse(text: &str) -> Option<Id> {
        let is_good =
            !text.is_empty() && text.len() <= MAX_LEN && !text.chars().any(|c| c.is_control());
        is_good.then(|| Id(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
