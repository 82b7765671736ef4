//! The engine KV version 2: versions of secrets, and writing only over the version that was read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pgseal_plugin::Failure;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::failures::of_status;
use crate::http::Path;
use crate::reply::Reply;
use crate::session::Session;

/// A version of a secret, as it was read.
pub(crate) struct Read {
    reply: Reply,
    /// The number of the version; 0 if there is none.
    pub version: u64,
    /// Whether it has content: not if it is not there, or was deleted or destroyed.
    pub is_there: bool,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    data: Option<BTreeMap<Cow<'a, str>, Field<'a>>>,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    version: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Field<'a> {
    // Borrowed, so that no copy of a key stays. Base64 needs no escapes.
    Text(&'a str),
    Other(IgnoredAny),
}

/// Reads a secret: a version of it, or the latest.
pub(crate) fn read(
    session: &Session,
    path: Path<'_>,
    version: Option<u32>,
) -> Result<Read, Failure<'static>> {
    let path = match version {
        Some(version) => path.query(format!("version={version}")),
        None => path,
    };
    let reply = session.get(&path)?;
    if !reply.is_ok() && !reply.is_missing() {
        return Err(of_status(&reply, "read"));
    }
    // A deleted version is a 404 that has metadata.
    let parsed = match reply.json::<Answer<'_>>() {
        Ok(answer) => Some((answer.data.metadata.version, answer.data.data.is_some())),
        Err(failure) if reply.status == 200 => return Err(failure),
        Err(_) => None,
    };
    let (version, is_there) = parsed.unwrap_or((0, false));
    Ok(Read { is_there: is_there && reply.status == 200, version, reply })
}

impl Read {
    /// A field whose value is text without escapes.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let answer: Answer<'_> = self.reply.json().ok()?;
        match answer.data.data?.get(name)? {
            Field::Text(text) => Some(text),
            Field::Other(_) => None,
        }
    }

    /// What was asked, for messages.
    pub(crate) fn asked(&self) -> &str {
        &self.reply.asked
    }
}

/// Writes a new version, if `over` is still the latest. Returns whether it was.
pub(crate) fn write(
    session: &Session,
    path: &Path<'_>,
    over: u64,
    data: &impl Serialize,
) -> Result<bool, Failure<'static>> {
    #[derive(Serialize)]
    struct Body<'a, T> {
        options: Options,
        data: &'a T,
    }
    #[derive(Serialize)]
    struct Options {
        cas: u64,
    }
    let reply = session.post(path, &Body { options: Options { cas: over }, data })?;
    match reply.status {
        _ if reply.is_ok() => Ok(true),
        400 if reply.errors().contains("check-and-set") => Ok(false),
        // The store asks for "create" where the secret is new.
        _ => Err(of_status(&reply, "create\", \"update")),
    }
}
