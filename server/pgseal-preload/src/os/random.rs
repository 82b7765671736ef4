//! The random numbers for nonces and keys.

use pgseal_core::random::{Random, RandomFailed};

/// The kernel's generator, or the module's in a FIPS build: [`pgseal_crypto::fill_random`].
pub struct KernelRandom;

impl Random for KernelRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        pgseal_crypto::fill_random(bytes)
    }
}
