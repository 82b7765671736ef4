//! The child process: pinned to one core, it runs the bursts that the parent requests.
//!
//! A separate process, because both libraries check the CPU and `OPENSSL_ia32cap` only once, at
//! start.

use std::io::{self, BufRead, Write};
use std::rc::Rc;

use super::algorithm::{Algorithm, Direction};
use super::arm::{AES_BITS, VAES_BITS, Way};
use super::clock::Cycles;
use super::protocol::{About, Reply, Request, Task, WorkKind};
use super::system::{CipherSpec, Style, System, capability};
use super::table;
use super::work::{Work, WorkError, burst, from_hex, to_hex};
use super::{awslc, system};

/// Answers requests, one per line, until the end of `input`.
///
/// # Errors
///
/// When reading or writing fails because the parent is gone.
pub fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut worker = Worker::new();
    for line in input.lines() {
        let line = line?;
        let reply = match serde_json::from_str(&line) {
            Ok(request) => worker.answer(&request),
            Err(error) => Reply::Failed(format!("request not understood: {error}")),
        };
        serde_json::to_writer(&mut output, &reply).map_err(io::Error::other)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// The state that a child keeps between bursts.
pub struct Worker {
    core: usize,
    system: Option<Result<Rc<System>, WorkError>>,
    cycles: Cycles,
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

impl Worker {
    /// Pins the process to one core.
    pub fn new() -> Worker {
        Worker { core: pin(), system: None, cycles: Cycles::new() }
    }

    /// Handles a request.
    pub fn answer(&mut self, request: &Request) -> Reply {
        let done = match request {
            Request::About => Ok(Reply::About(self.about())),
            Request::MakeKey(kind) => self
                .system()
                .and_then(|system| system::make_key(&system, *kind))
                .map(|der| Reply::Key(to_hex(&der))),
            Request::Measure(task) => self.measure(task).map(Reply::Measured),
        };
        match done {
            Ok(reply) => reply,
            Err(WorkError::Missing { why, remedy }) => Reply::Missing { why, remedy },
            Err(WorkError::Failed(why)) => Reply::Failed(why),
        }
    }

    /// OpenSSL is loaded at first use, so that a child that measures only AWS-LC starts without
    /// OpenSSL.
    fn system(&mut self) -> Result<Rc<System>, WorkError> {
        self.system.get_or_insert_with(System::load).clone()
    }

    fn about(&mut self) -> About {
        let system = self.system().ok();
        let cpu = system.as_ref().and_then(|system| system.cpu_settings());
        let bit = |word, mask| cpu.as_deref().and_then(|cpu| capability(cpu, word, mask));
        About {
            core: self.core,
            openssl: system.as_ref().map(|system| system.version()),
            libcrypto: system.as_ref().map(|system| system.name().to_owned()),
            openssl_aes: bit(0, AES_BITS),
            openssl_vaes: bit(1, VAES_BITS),
            openssl_cpu: cpu,
            aws_lc: awslc::version(),
            aws_lc_aes: awslc::has_aes_instructions(),
            cycles: self.cycles.source(),
        }
    }

    fn measure(&mut self, task: &Task) -> Result<super::protocol::Measured, WorkError> {
        let mut work = self.work(&task.work)?;
        burst(work.as_mut(), task.burst_s, &mut self.cycles)
    }

    fn work(&mut self, kind: &WorkKind) -> Result<Box<dyn Work>, WorkError> {
        match kind {
            WorkKind::Cipher { algorithm, direction, bytes, way } => {
                let algorithm: Algorithm =
                    algorithm.parse().map_err(|error| WorkError::Failed(format!("{error}")))?;
                self.cipher(algorithm, *direction, *bytes, *way)
            }
            WorkKind::Table { algorithm, bytes } => {
                let entry = table::named(algorithm)
                    .ok_or_else(|| WorkError::Failed(format!("{algorithm}: not in the table")))?;
                table::work(&self.system()?, entry, *bytes)
            }
            WorkKind::Signature { key, verify, .. } => {
                let der = from_hex(key).ok_or_else(|| WorkError::Failed("key: no hex".into()))?;
                system::signature(&self.system()?, &der, *verify)
            }
        }
    }

    fn cipher(
        &mut self,
        algorithm: Algorithm,
        direction: Direction,
        bytes: usize,
        way: Way,
    ) -> Result<Box<dyn Work>, WorkError> {
        let style = match way {
            Way::AwsLc => return awslc::cipher(algorithm, direction, bytes),
            Way::Openssl => Style::Kept,
            Way::OpensslSetup => Style::Setup,
            Way::OpensslSpeed => Style::Endless,
        };
        let spec = CipherSpec {
            name: algorithm.to_string(),
            key_len: algorithm.key_len(),
            iv_len: algorithm.mode.iv_len(),
            aead: algorithm.mode.is_aead(),
            encrypt: direction == Direction::Encrypt,
            bytes,
            style,
        };
        system::cipher(&self.system()?, &spec)
    }
}

/// Pins this process to the last core that it may use, since most interrupts go to the first. If
/// pinning fails, the kernel chooses the core.
fn pin() -> usize {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
    let pinned = sched_getaffinity(None).ok().and_then(|allowed| {
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu))?;
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).ok()?;
        Some(last)
    });
    pinned.unwrap_or_else(sched_getcpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::modes::algorithm::Mode;
    use crate::experiments::modes::protocol::{KeyAlgorithm, KeyKind, Measured};

    fn cipher(algorithm: Algorithm, direction: Direction, bytes: usize, way: Way) -> Request {
        let algorithm = algorithm.to_string();
        Request::Measure(Task {
            work: WorkKind::Cipher { algorithm, direction, bytes, way },
            burst_s: 0.0002,
        })
    }

    /// In each direction, every library and set-up returns the same bytes for an algorithm. An
    /// algorithm that a library lacks is reported as missing.
    #[test]
    fn all_ways_agree() {
        let mut worker = Worker::new();
        let mut compared = 0;
        for algorithm in Algorithm::all() {
            for direction in Direction::ALL {
                for bytes in [16, 1024] {
                    let mut outcomes = Vec::new();
                    for way in [Way::Openssl, Way::OpensslSetup, Way::AwsLc] {
                        match worker.answer(&cipher(algorithm, direction, bytes, way)) {
                            Reply::Measured(Measured { outcome, count, .. }) => {
                                assert!(count > 0);
                                outcomes.push(outcome.unwrap());
                            }
                            Reply::Missing { why, .. } => {
                                let known = matches!(algorithm.mode, Mode::Xts | Mode::GcmSiv);
                                assert!(known, "{algorithm}: {why}");
                            }
                            other => panic!("{algorithm} {direction} {way:?}: {other:?}"),
                        }
                    }
                    assert!(!outcomes.is_empty(), "{algorithm}");
                    compared += outcomes.len() - 1;
                    let first = outcomes.first().cloned();
                    assert!(
                        outcomes.iter().all(|one| Some(one) == first.as_ref()),
                        "{algorithm} {direction} {bytes}: {outcomes:?}"
                    );
                }
            }
        }
        assert!(compared > 100, "{compared}: is there no libcrypto here?");
    }

    #[test]
    fn every_algorithm_of_the_study_is_measured_or_missing() {
        let mut worker = Worker::new();
        let mut measured = Vec::new();
        for entry in table::ENTRIES {
            let work = WorkKind::Table { algorithm: entry.name.to_owned(), bytes: 1024 };
            match worker.answer(&Request::Measure(Task { work, burst_s: 0.0002 })) {
                Reply::Measured(_) => measured.push(entry.name),
                Reply::Missing { why, .. } => assert!(why.contains("has no") || !why.is_empty()),
                other => panic!("{}: {other:?}", entry.name),
            }
        }
        for name in ["md5", "hmac(md5)", "sha1", "sha256", "aes-128 cbc", "des ede3"] {
            assert!(measured.contains(&name), "{name}");
        }
        assert!(!measured.contains(&"md2"), "OpenSSL has had no MD2 since 1.0");
    }

    #[test]
    fn signatures_are_made_and_checked() {
        let mut worker = Worker::new();
        for kind in [
            KeyKind { algorithm: KeyAlgorithm::Rsa, bits: 1024 },
            KeyKind { algorithm: KeyAlgorithm::Ecdsa, bits: 256 },
        ] {
            let Reply::Key(key) = worker.answer(&Request::MakeKey(kind)) else {
                panic!("no key of {}", kind.id())
            };
            for verify in [false, true] {
                let work = WorkKind::Signature { key: key.clone(), kind, verify };
                let reply = worker.answer(&Request::Measure(Task { work, burst_s: 0.001 }));
                assert!(matches!(reply, Reply::Measured(_)), "{reply:?}");
            }
        }
    }

    #[test]
    fn one_line_in_one_line_out() {
        let mut out = Vec::new();
        serve("\"about\"\nnonsense\n".as_bytes(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let replies: Vec<Reply> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(&replies[..], [Reply::About(_), Reply::Failed(_)]), "{replies:?}");
    }
}
