//! The program of a plugin that is written in Rust.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, Resource, Rlimit};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::MAX_REQUEST_LEN;
use crate::answer::{
    Anchor, AnchorState, Description, Done, Secret, Unwrapped, WrappedKey, encode,
};
use crate::failure::{Failure, Fault};
use crate::request::{Operation, Request};

/// What a plugin does. Each method gets the URI of the request.
pub trait Plugin {
    /// What the plugin and the store of this URI are.
    ///
    /// # Errors
    /// A [`Failure`] by whose fault it is; so for each method.
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>>;

    /// Wraps a key under the store's key.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    fn wrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        secret: &Secret,
    ) -> Result<WrappedKey, Failure<'static>>;

    /// Unwraps a key; `key` is the name that [`Plugin::wrap`] returned, and only a hint.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        key: &str,
    ) -> Result<Secret, Failure<'static>>;

    /// The anchor of a cluster.
    ///
    /// # Errors
    /// As [`Plugin::describe`]; [`Fault::Unsupported`] if the plugin has no anchors.
    fn anchor_read(
        &self,
        _uri: &str,
        _context: &[u8; 16],
    ) -> Result<AnchorState, Failure<'static>> {
        Err(no_anchors())
    }

    /// Replaces the anchor of a cluster.
    ///
    /// # Errors
    /// As [`Plugin::anchor_read`]; [`Fault::Stale`].
    fn anchor_advance(
        &self,
        _uri: &str,
        _context: &[u8; 16],
        _anchor: &Anchor,
    ) -> Result<(), Failure<'static>> {
        Err(no_anchors())
    }
}

fn no_anchors() -> Failure<'static> {
    Failure::new(Fault::Unsupported, "this plugin keeps no anchors")
}

/// Reads one request from standard input, and writes one answer to standard output. The process
/// leaves no core dump.
pub fn serve(plugin: &impl Plugin) -> ExitCode {
    // Keys and credentials pass through this process. If these calls fail, only a core dump is less
    // safe.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    match exchange(plugin) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Uses the descriptors directly: the buffers of `io::stdin` and `io::stdout` would keep copies of
/// keys that nobody wipes.
fn exchange(plugin: &impl Plugin) -> io::Result<()> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_REQUEST_LEN + 64));
    let limit = u64::try_from(MAX_REQUEST_LEN + 1).unwrap_or(u64::MAX);
    input.take(limit).read_to_end(&mut line)?;
    output.write_all(&answer(plugin, &line))
}

fn answer(plugin: &impl Plugin, line: &[u8]) -> Zeroizing<Vec<u8>> {
    let request = match Request::decode(line) {
        Ok(request) => request,
        Err(failure) => return encode::<Done>(Err(failure)),
    };
    let uri = &*request.uri;
    match &request.operation {
        Operation::Describe {} => encoded(plugin.describe(uri)),
        Operation::Wrap { context, secret } => encoded(plugin.wrap(uri, context, secret)),
        Operation::Unwrap { context, wrapped, key } => {
            encoded(plugin.unwrap(uri, context, wrapped, key).map(|secret| Unwrapped { secret }))
        }
        Operation::AnchorRead { context } => encoded(plugin.anchor_read(uri, context)),
        Operation::AnchorAdvance { context, anchor } => {
            encoded(plugin.anchor_advance(uri, context, anchor).map(|()| Done {}))
        }
    }
}

fn encoded<T: Serialize>(answer: Result<T, Failure<'static>>) -> Zeroizing<Vec<u8>> {
    encode(answer)
}
