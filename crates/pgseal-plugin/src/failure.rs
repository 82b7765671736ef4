//! Why a plugin could not do what was asked, by whose fault it is.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Whose fault it is, and so whether asking again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The store cannot be reached, or is busy. This may pass: pgseal asks again.
    Unavailable,
    /// The store refuses: credentials that are wrong or expired, a policy, a locked account. pgseal
    /// does not ask again, because a store may lock an account after a few wrong attempts.
    Refused,
    /// The URI, or a file that it names, is wrong.
    Configuration,
    /// The store has no such key: it was removed or disabled, or its version is gone.
    KeyGone,
    /// The store answered, but its key does not open this wrapped key.
    Wrong,
    /// The plugin does not have this operation.
    Unsupported,
    /// The anchor's sequence number is not higher than the one that the store has.
    Stale,
    /// The request is not one of this version of the protocol.
    Request,
}

/// An answer that says why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure<'a> {
    /// Whose fault it is.
    pub kind: Fault,
    /// What is wrong, where, and what to do next. Never a part of a key or of a credential.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
}

impl Failure<'static> {
    /// A failure with its message.
    #[must_use]
    pub fn new(kind: Fault, message: impl Into<String>) -> Failure<'static> {
        Failure { kind, message: Cow::Owned(message.into()) }
    }
}

/// The failure for a URI, an environment variable or a file that is wrong, or for a store that is
/// none.
pub fn configuration(what: impl Into<String>) -> Failure<'static> {
    Failure::new(Fault::Configuration, what)
}

impl Failure<'_> {
    /// The failure without its borrow of the answer.
    #[must_use]
    pub fn into_owned(self) -> Failure<'static> {
        Failure { kind: self.kind, message: Cow::Owned(self.message.into_owned()) }
    }
}
