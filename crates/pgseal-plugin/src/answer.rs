//! What a plugin answers.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::{Zeroize, Zeroizing};

use crate::failure::Failure;
use crate::{MAX_ANCHOR_LEN, MAX_ANSWER_LEN, MAX_WRAPPED_LEN, VERSION, hex};

/// A key of 32 bytes. Zeroized on drop, never printed.
pub struct Secret(Box<[u8; 32]>);

impl Secret {
    /// A secret that `fill` writes in place, so that no copy stays on the stack.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn init_with<E>(fill: impl FnOnce(&mut [u8; 32]) -> Result<(), E>) -> Result<Secret, E> {
        let mut secret = Secret(Box::new([0; 32]));
        fill(&mut secret.0)?;
        Ok(secret)
    }

    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut text = Zeroizing::new([0u8; 64]);
        HEXLOWER.encode_mut(&*self.0, &mut text[..]);
        match std::str::from_utf8(&text[..]) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Err(serde::ser::Error::custom("hexadecimal")),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        Secret::init_with(|out| hex::fixed(from, out))
    }
}

/// The answer to `describe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name of the plugin: the program is `pgseal-provider-NAME`.
    pub name: String,
    /// The version of the plugin.
    pub version: String,
    /// The operations that the plugin has.
    pub operations: Vec<String>,
    /// The store that the URI names, for people.
    pub store: String,
    /// The name of the key that `wrap` would use, in the words of its store.
    pub key: String,
    /// Whether `unwrap` refuses a wrapped key in another context than that of its `wrap`.
    pub binds_context: bool,
}

/// The answer to `wrap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrappedKey {
    /// The wrapped key.
    #[serde(with = "hex::Limited::<MAX_WRAPPED_LEN>")]
    pub wrapped: Vec<u8>,
    /// The name of the store's key, and of its version where the store has such.
    pub key: String,
}

/// The answer to `unwrap`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unwrapped {
    /// The key.
    pub secret: Secret,
}

/// A number that only grows, with a value: what must not be older than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The sequence number.
    pub sequence: u64,
    /// The value of this number; the store does not look into it.
    #[serde(with = "hex::Limited::<MAX_ANCHOR_LEN>")]
    pub value: Vec<u8>,
}

/// The answer to `anchor-read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnchorState {
    /// The anchor; `None` if the store has none for this cluster.
    pub anchor: Option<Anchor>,
}

/// The answer to `anchor-advance`: the anchor is stored, and lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a, T> {
    protocol: u64,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    ok: Option<T>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Failure<'a>>,
}

/// What an answer of every version has.
#[derive(Deserialize)]
struct Preamble {
    protocol: u64,
}

/// The line of an answer, with its newline.
pub fn encode<T: Serialize>(answer: Result<T, Failure<'_>>) -> Zeroizing<Vec<u8>> {
    let line = match answer {
        Ok(ok) => Line { protocol: VERSION, ok: Some(ok), error: None },
        Err(error) => Line { protocol: VERSION, ok: None, error: Some(error) },
    };
    // The buffer never grows: a reallocation would leave a copy that is not wiped.
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_ANSWER_LEN + 1024));
    // Only a failing writer or a map with keys that are no strings could make this fail.
    if serde_json::to_writer(&mut *text, &line).is_err() {
        text.clear();
    }
    text.push(b'\n');
    text
}

/// Parses the answer of a plugin, strictly. The outer error says how the plugin breaks the
/// protocol; the inner one is the plugin's own.
///
/// # Errors
/// What is wrong with the answer, without any part of it.
pub fn decode<'de, T: Deserialize<'de>>(
    answer: &'de [u8],
) -> Result<Result<T, Failure<'static>>, String> {
    if answer.is_empty() {
        return Err("it gave no answer".to_owned());
    }
    if answer.len() > MAX_ANSWER_LEN {
        return Err(format!("its answer has more than {MAX_ANSWER_LEN} bytes"));
    }
    let Some(line) = answer.strip_suffix(b"\n") else {
        return Err("its answer does not end with a newline".to_owned());
    };
    if line.contains(&b'\n') {
        return Err("it gave more than one line".to_owned());
    }
    // serde's messages quote the input, which may hold a key; only the position is told.
    let at = |error: serde_json::Error| {
        format!("its answer is not JSON of the protocol, column {}", error.column())
    };
    let preamble: Preamble = serde_json::from_slice(line).map_err(at)?;
    if preamble.protocol != VERSION {
        return Err(format!(
            "it speaks version {} of the protocol, and this pgseal version {VERSION}; install the \
             plugin of this version",
            preamble.protocol
        ));
    }
    let line: Line<'de, T> = serde_json::from_slice(line).map_err(at)?;
    match (line.ok, line.error) {
        (Some(ok), None) => Ok(Ok(ok)),
        (None, Some(failure)) => Ok(Err(failure.into_owned())),
        _ => Err("its answer has not exactly one of ok and error".to_owned()),
    }
}
