//! The protocol between pgseal and its plugins, the programs `pgseal-provider-NAME`, each of which
//! talks to one kind of key store (`spec/provider-plugin.md`).
//!
//! A plugin reads one [`Request`] from standard input, writes one answer to standard output, and
//! ends. [`serve`] is the whole program of a plugin that is written in Rust; [`uri`] and [`files`]
//! have what such plugins share.

#![forbid(unsafe_code)]

mod answer;
mod failure;
pub mod files;
mod hex;
mod random;
mod request;
mod serve;
#[cfg(feature = "tls")]
pub mod tls;
mod trust;
pub mod uri;

pub use self::{
    answer::{
        Anchor, AnchorState, Description, Done, Secret, Unwrapped, WrappedKey, decode, encode,
    },
    failure::{Failure, Fault, configuration},
    random::random,
    request::{Operation, Request, encode_request},
    serve::{Plugin, serve},
    trust::{Distrust, distrusted},
};

/// The version of the protocol.
pub const VERSION: u64 = 1;
/// The longest request, in bytes, with its newline.
pub const MAX_REQUEST_LEN: usize = 16 * 1024;
/// The longest answer, in bytes, with its newline.
pub const MAX_ANSWER_LEN: usize = 16 * 1024;
/// The longest wrapped key, in bytes.
pub const MAX_WRAPPED_LEN: usize = 1024;
/// The longest name of a key in its store, in bytes.
pub const MAX_KEY_NAME_LEN: usize = 512;
/// The longest value of an anchor, in bytes.
pub const MAX_ANCHOR_LEN: usize = 256;

/// Whether this can be the name of a plugin: a lower-case letter, then up to 31 lower-case letters,
/// digits and `-`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 32
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && name.bytes().all(rest)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_of_plugins() {
        for good in ["pkcs11", "a", "aws-kms", "x".repeat(32).as_str()] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "1a", "-a", "A", "a_b", "../a", "a/b", "a.b", "x".repeat(33).as_str()] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
