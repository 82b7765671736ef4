//! Runs the body of a fuzz target on a stable toolchain, over its seeds, over mutated seeds and
//! over random bytes. This is not fuzzing, because no coverage guides the inputs; but each past
//! finding is a seed, so it is tested again.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

/// Pseudo-random numbers, the same in each run.
pub struct Noise(pub u64);

impl Noise {
    /// A number.
    pub fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as usize
    }

    /// Up to `most` bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.next() % (most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Changes a few bytes among the first `within`, or the length, of an input.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, within: usize) {
        for _ in 0..1 + self.next() % 3 {
            let at = self.next() % within.min(bytes.len()).max(1);
            match self.next() % 8 {
                0 => bytes.truncate(at),
                1 => bytes.push(at as u8),
                2 if at < bytes.len() => bytes[at] = [0, 1, 2, 0x7F, 0xFF][self.next() % 5],
                // Text: a digit, a quote, a slash or a line's end somewhere else.
                3 if at < bytes.len() => bytes[at] = b"\"'\\/.:=,0 \n"[self.next() % 11],
                4 if at < bytes.len() => {
                    let len = (self.next() % 16).min(bytes.len() - at);
                    let copy = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, copy);
                }
                5 if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << (self.next() % 8),
                _ => {}
            }
        }
    }
}

/// The seeds of a target: `tests/fuzz/seeds/TARGET`, in the order of their names.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|item| item.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Asserts that the parser of a target accepts at least one seed. If a change of the format makes
/// all seeds invalid, fuzzing them finds nothing.
pub fn expect_accepted(target: &str, accepts: impl Fn(&[u8]) -> bool) {
    assert!(seeds(target).iter().any(|seed| accepts(seed)), "{target}: no seed is accepted");
}

/// Runs a body over the seeds of its target, `rounds` mutations of each, and `rounds` random
/// inputs.
pub fn run(target: &str, rounds: usize, body: impl Fn(&[u8])) {
    let (seeds, mut noise) = (seeds(target), Noise(0x5EED));
    assert!(!seeds.is_empty(), "no seeds of {target}");
    for seed in &seeds {
        body(seed);
        for _ in 0..rounds {
            let mut bytes = seed.clone();
            noise.mutate(&mut bytes, usize::MAX);
            body(&bytes);
        }
    }
    for _ in 0..rounds {
        body(&noise.bytes(2000));
    }
}
