//! Random bytes: nonces, column keys, salts.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// The generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFailed;

/// Fills `bytes` from the generator of AWS-LC (SP 800-90A CTR-DRBG), which no forked child repeats.
///
/// # Errors
/// [`RandomFailed`] when the generator has no entropy.
pub fn fill_random(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    SystemRandom::new().fill(bytes).map_err(|_| RandomFailed)
}
