//! What pgseal asks of a plugin.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::answer::{Anchor, Secret};
use crate::failure::{Failure, Fault};
use crate::{MAX_REQUEST_LEN, MAX_WRAPPED_LEN, VERSION, hex};

/// An operation, with its arguments.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation<'a> {
    /// Says what the plugin and its store are. Changes nothing.
    Describe {},
    /// Wraps the 32 bytes under the store's key.
    Wrap {
        /// The identity of the keyring, to which the wrapped key is bound.
        #[serde(with = "hex::id")]
        context: [u8; 16],
        /// The key to wrap.
        secret: Secret,
    },
    /// Unwraps what `wrap` returned.
    Unwrap {
        /// As for `wrap`.
        #[serde(with = "hex::id")]
        context: [u8; 16],
        /// The wrapped key.
        #[serde(with = "hex::Limited::<MAX_WRAPPED_LEN>")]
        wrapped: Vec<u8>,
        /// The name of the store's key that `wrap` returned: a hint that nobody has authenticated.
        #[serde(borrow)]
        key: Cow<'a, str>,
    },
    /// Returns the anchor of a cluster.
    AnchorRead {
        /// The identity of the keyring, which names the anchor.
        #[serde(with = "hex::id")]
        context: [u8; 16],
    },
    /// Replaces the anchor of a cluster, if its sequence number is higher than the stored one.
    AnchorAdvance {
        /// The identity of the keyring, which names the anchor.
        #[serde(with = "hex::id")]
        context: [u8; 16],
        /// The new anchor.
        anchor: Anchor,
    },
}

impl Operation<'_> {
    /// The name of the operation in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Describe {} => "describe",
            Operation::Wrap { .. } => "wrap",
            Operation::Unwrap { .. } => "unwrap",
            Operation::AnchorRead { .. } => "anchor-read",
            Operation::AnchorAdvance { .. } => "anchor-advance",
        }
    }
}

/// One request: the line that a plugin reads.
#[derive(Debug)]
pub struct Request<'a> {
    /// The URI of the provider, as the administrator wrote it. It contains no secret.
    pub uri: Cow<'a, str>,
    /// What to do.
    pub operation: Operation<'a>,
}

/// The members before those of the operation. `deny_unknown_fields` and `flatten` exclude each
/// other, so the operation is an object of its own.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    protocol: u64,
    #[serde(borrow)]
    uri: Cow<'a, str>,
    #[serde(borrow)]
    request: Operation<'a>,
}

/// What a request of every version has.
#[derive(Deserialize)]
struct Preamble {
    protocol: u64,
}

/// The line of a request, with its newline.
///
/// # Errors
/// The text says what cannot be written: a URI that is too long.
pub fn encode_request(
    uri: &str,
    operation: &Operation<'_>,
) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    // The buffer never grows: a reallocation would leave a copy that is not wiped.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_REQUEST_LEN + 1024));
    if uri.len() > MAX_REQUEST_LEN / 2 {
        return Err("the URI is too long");
    }
    let members = LineOut { protocol: VERSION, uri, request: operation };
    serde_json::to_writer(&mut *line, &members).map_err(|_| "the request is not JSON")?;
    line.push(b'\n');
    if line.len() > MAX_REQUEST_LEN { Err("the request is too long") } else { Ok(line) }
}

#[derive(Serialize)]
struct LineOut<'a> {
    protocol: u64,
    uri: &'a str,
    request: &'a Operation<'a>,
}

impl<'a> Request<'a> {
    /// Parses the line that a plugin read.
    ///
    /// # Errors
    /// [`Fault::Request`] if it is no request of this version; [`Fault::Unsupported`] if the
    /// operation is unknown.
    pub fn decode(line: &'a [u8]) -> Result<Request<'a>, Failure<'static>> {
        let bad = |what: String| Failure::new(Fault::Request, what);
        if line.len() > MAX_REQUEST_LEN {
            return Err(bad(format!("the request has more than {MAX_REQUEST_LEN} bytes")));
        }
        let line = line
            .strip_suffix(b"\n")
            .filter(|line| !line.contains(&b'\n'))
            .ok_or_else(|| bad("the request is not exactly one line".to_owned()))?;
        // serde's messages quote the input, which may hold a secret; only the position is told.
        let at = |error: serde_json::Error| {
            bad(format!("the request is not valid JSON of the protocol, column {}", error.column()))
        };
        let preamble: Preamble = serde_json::from_slice(line).map_err(at)?;
        if preamble.protocol != VERSION {
            return Err(bad(format!(
                "the request is of version {} of the protocol, and this plugin knows version \
                 {VERSION}",
                preamble.protocol
            )));
        }
        let line: Line<'a> = serde_json::from_slice(line).map_err(|error| {
            // serde says "unknown variant" for an unknown operation, before anything else.
            if error.is_data() && error.to_string().starts_with("unknown variant") {
                return Failure::new(Fault::Unsupported, "the plugin does not have this operation");
            }
            at(error)
        })?;
        Ok(Request { uri: line.uri, operation: line.request })
    }
}
