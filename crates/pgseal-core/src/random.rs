//! The random source of nonces, file ids and file keys.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
pub use pgseal_crypto::RandomFailed;

/// A source of random bytes that never repeats its output, not even after `fork()`.
pub trait Random {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed>;
}

/// The generator of AWS-LC (SP 800-90A CTR-DRBG, reseeded after `fork()`).
#[derive(Debug, Default)]
pub struct LibraryRandom(SystemRandom);

impl LibraryRandom {
    /// The generator.
    #[must_use]
    pub fn new() -> LibraryRandom {
        LibraryRandom(SystemRandom::new())
    }
}

impl Random for LibraryRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        self.0.fill(bytes).map_err(|_| RandomFailed)
    }
}
