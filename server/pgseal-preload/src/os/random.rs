//! The random numbers for nonces and keys: [`pgseal_random`].

use pgseal_core::random::{Random, RandomFailed};

/// The kernel's generator.
pub struct KernelRandom;

impl Random for KernelRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        pgseal_random::fill(bytes).map_err(|_| RandomFailed)
    }
}
