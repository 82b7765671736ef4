//! The plugin under test, and what the checks of it share.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pgseal_plugin::{
    Failure, Fault, Operation, Secret, Unwrapped, WrappedKey, decode, encode_request,
};
use rustix::fs::MemfdFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::super::plugin::{Broken, exchange, shown_message};
use crate::wrap;

/// The longest that one run of the plugin may take in a test.
const ATTEMPT: Duration = Duration::from_secs(15);

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The plugin does what the protocol says.
    Pass,
    /// It does not.
    Fail,
    /// The check does not apply to this plugin, or an earlier failure prevents it.
    Skip,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What must hold.
    pub name: &'static str,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What the plugin did instead, why the check was skipped, or a measurement.
    pub detail: String,
    /// How long the check took, in milliseconds.
    pub ms: u64,
}

/// What a plugin wrote.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// The plugin under test.
pub(super) struct Suite {
    pub program: PathBuf,
    pub uri: String,
}

/// A key that was wrapped.
pub(super) struct Sample {
    pub context: [u8; 16],
    pub secret: Zeroizing<[u8; 32]>,
    pub answer: WrappedKey,
}

impl Suite {
    /// Sends any bytes. Returns the answer, and what the plugin wrote to standard error.
    pub(super) fn raw(&self, request: &[u8]) -> (Result<Bytes, Broken>, Bytes) {
        let log = rustix::fs::memfd_create("stderr", MemfdFlags::CLOEXEC)
            .and_then(|fd: OwnedFd| rustix::io::dup(&fd).map(|copy| (File::from(fd), copy)));
        let (mut log, copy) = match log {
            Ok((log, copy)) => (log, File::from(copy)),
            Err(error) => return (Err(Broken::Lost(error.into())), Zeroizing::default()),
        };
        let answer = exchange(&self.program, request, ATTEMPT, Some(copy));
        let mut said = Zeroizing::new(Vec::new());
        // Without its log the check of the log says nothing, and all others are still right.
        let _ = log.seek(SeekFrom::Start(0));
        let _ = log.by_ref().take(1 << 20).read_to_end(&mut said);
        (answer, said)
    }

    /// Sends an operation. The outer error is a breach of the protocol.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        operation: &Operation<'_>,
    ) -> Result<Result<T, Failure<'static>>, String> {
        self.ask_at(&self.uri, operation)
    }

    pub(super) fn ask_at<T: DeserializeOwned>(
        &self,
        uri: &str,
        operation: &Operation<'_>,
    ) -> Result<Result<T, Failure<'static>>, String> {
        let line = encode_request(uri, operation)?;
        let (answer, _) = self.raw(&line);
        decode(&answer.map_err(|broken| broken.to_string())?)
    }

    pub(super) fn wrap(&self, context: [u8; 16], secret: &[u8; 32]) -> Result<WrappedKey, String> {
        let copy = Secret::init_with(|bytes| {
            bytes.copy_from_slice(secret);
            Ok::<(), String>(())
        })?;
        told(self.ask(&Operation::Wrap { context, secret: copy })?)
    }

    pub(super) fn unwrap(
        &self,
        context: [u8; 16],
        wrapped: &[u8],
        key: &str,
    ) -> Result<Result<Unwrapped, Failure<'static>>, String> {
        self.ask(&Operation::Unwrap { context, wrapped: wrapped.to_vec(), key: key.into() })
    }

    /// A random key, wrapped.
    pub(super) fn sample(&self) -> Result<Sample, String> {
        let mut context = [0; 16];
        let mut secret = Zeroizing::new([0; 32]);
        random(&mut context)?;
        random(&mut *secret)?;
        let answer = self.wrap(context, &secret)?;
        Ok(Sample { context, secret, answer })
    }
}

pub(super) fn random(bytes: &mut [u8]) -> Result<(), String> {
    wrap::random(bytes).map_err(|error| error.to_string())
}

/// A failure that the plugin reports, where it should have done the work.
pub(super) fn told<T>(answer: Result<T, Failure<'static>>) -> Result<T, String> {
    answer.map_err(|failure| {
        format!("it reports {}: {}", kind(failure.kind), shown_message(&failure.message))
    })
}

/// The name of a kind of failure in the protocol.
pub(super) fn kind(fault: Fault) -> String {
    serde_json::to_string(&fault).unwrap_or_default()
}

/// Checks that the plugin reports a failure of one of these kinds.
pub(super) fn refused<T>(
    answer: Result<Result<T, Failure<'static>>, String>,
    kinds: &[Fault],
) -> Result<(), String> {
    match answer? {
        Ok(_) => Err("it does the work, where it must report a failure".to_owned()),
        Err(failure) if !kinds.contains(&failure.kind) => {
            let wanted: Vec<String> = kinds.iter().map(|fault| kind(*fault)).collect();
            Err(format!(
                "it reports {} ({}), where {} is right",
                kind(failure.kind),
                shown_message(&failure.message),
                wanted.join(" or ")
            ))
        }
        Err(failure) if failure.message.trim().is_empty() => {
            Err("it reports a failure without a message".to_owned())
        }
        Err(_) => Ok(()),
    }
}

/// Runs one check and measures it.
pub(super) fn timed(name: &'static str, check: impl FnOnce() -> Result<String, String>) -> Check {
    let start = Instant::now();
    let (verdict, detail) = match check() {
        Ok(detail) => (Verdict::Pass, detail),
        Err(detail) => (Verdict::Fail, detail),
    };
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Check { name, verdict, detail, ms }
}

pub(super) fn skipped(name: &'static str, why: &str) -> Check {
    Check { name, verdict: Verdict::Skip, detail: why.to_owned(), ms: 0 }
}

/// An identity that no cluster has.
pub(super) fn other_context(context: [u8; 16]) -> [u8; 16] {
    context.map(|byte| !byte)
}
