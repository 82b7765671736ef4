//! Repeats an operation and measures its speed.

use std::time::{Duration, Instant};

use super::clock::Cycles;
use super::protocol::Measured;

/// Why an operation cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The library does not support the operation.
    #[error("{why}; {remedy}")]
    Missing {
        /// Why not.
        why: String,
        /// What to install or configure.
        remedy: String,
    },
    /// A call failed unexpectedly.
    #[error("{0}")]
    Failed(String),
}

impl WorkError {
    /// An error for a failed call of a library.
    pub fn call(name: &str) -> WorkError {
        WorkError::Failed(format!("{name} failed"))
    }
}

/// An operation that can be repeated any number of times.
pub trait Work {
    /// Repeats the operation `count` times.
    fn repeat(&mut self, count: u64) -> Result<(), WorkError>;

    /// SHA-256 in hex of the output of one operation, if the output is always the same.
    fn outcome(&mut self) -> Result<Option<String>, WorkError>;

    /// The OpenSSL provider of the operation.
    fn provider(&self) -> Option<String> {
        None
    }
}

/// How many parts a burst has. The rate of a burst is the median of their rates, so that a
/// disturbance of less than half of the parts does not count.
const PARTS: usize = 7;

/// Repeats `work` for about `burst_s` seconds; calibrates the number of repetitions first.
pub fn burst(
    work: &mut dyn Work,
    burst_s: f64,
    cycles: &mut Cycles,
) -> Result<Measured, WorkError> {
    let outcome = work.outcome()?;
    let part_s = (burst_s / PARTS as f64).max(20e-6);
    let count = calibrate(work, part_s)?;
    let before = cycles.core_hz();
    let mut parts = Vec::with_capacity(PARTS);
    let mut counted = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        cycles.start();
        let begin = Instant::now();
        work.repeat(count)?;
        let seconds = begin.elapsed().as_secs_f64();
        counted.extend(cycles.stop().map(|cycles| cycles as f64 / count as f64));
        parts.push(seconds);
    }
    let after = cycles.core_hz();
    let seconds: f64 = parts.iter().sum();
    parts.sort_by(f64::total_cmp);
    counted.sort_by(f64::total_cmp);
    let middle = parts.get(PARTS / 2).copied().unwrap_or(f64::NAN);
    let (first, last) = (parts.first().copied(), parts.last().copied());
    let core_hz = before.zip(after).map(|(before, after)| before.max(after));
    let per_second = count as f64 / middle;
    Ok(Measured {
        per_second,
        count: count * PARTS as u64,
        seconds,
        spread: last.zip(first).map_or(f64::NAN, |(last, first)| last / first),
        cycles: counted.get(counted.len() / 2).copied().or(core_hz.map(|hz| hz / per_second)),
        core_hz,
        outcome,
        provider: work.provider(),
    })
}

/// How many repetitions take `part_s` seconds; this also warms caches and branch predictors.
fn calibrate(work: &mut dyn Work, part_s: f64) -> Result<u64, WorkError> {
    let mut count = 1_u64;
    loop {
        let begin = Instant::now();
        work.repeat(count)?;
        let took = begin.elapsed().max(Duration::from_nanos(50)).as_secs_f64();
        let wanted = count as f64 * part_s / took;
        if took >= part_s / 4.0 {
            return Ok((wanted.round() as u64).max(1));
        }
        count = (wanted / 2.0).clamp(count as f64 * 2.0, count as f64 * 16.0) as u64;
    }
}

/// SHA-256 in hex.
pub fn sha256_hex(parts: &[&[u8]]) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    to_hex(context.finish().as_ref())
}

/// Bytes as lower-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hex; none if the text is not hex.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let read = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| if pair.len() == 2 { read(pair) } else { None }).collect()
}

/// Deterministic pseudo-random bytes for keys and messages; not secret.
pub fn filler(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 151 + (at >> 8) * 17 + 29) % 251) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u64);

    impl Work for Counting {
        fn repeat(&mut self, count: u64) -> Result<(), WorkError> {
            self.0 += count;
            for at in 0..count {
                std::hint::black_box(at);
            }
            Ok(())
        }

        fn outcome(&mut self) -> Result<Option<String>, WorkError> {
            Ok(Some("same".to_owned()))
        }
    }

    #[test]
    fn a_burst_counts_what_it_did() {
        let mut work = Counting(0);
        let measured = burst(&mut work, 0.002, &mut Cycles::new()).unwrap();
        assert!(measured.count > 0 && measured.count < work.0, "calibration comes on top");
        assert_eq!(measured.outcome.as_deref(), Some("same"));
        assert!(measured.spread >= 1.0 && measured.per_second > 0.0);
    }

    #[test]
    fn hex_both_ways() {
        assert_eq!(from_hex("00ff1a"), Some(vec![0, 255, 0x1a]));
        assert_eq!(to_hex(&[0, 255, 0x1a]), "00ff1a");
        assert_eq!((from_hex("0"), from_hex("zz")), (None, None));
        assert_eq!(
            sha256_hex(&[b"a", b"bc"]),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
