//! Random numbers for keys and nonces.

/// The random generator failed; nothing may be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFailed;

/// Fills `bytes`: from the kernel, or from the module's generator (SP 800-90A CTR-DRBG) in a FIPS
/// build. A child of `fork()` does not draw the same bytes.
///
/// # Errors
/// [`RandomFailed`].
pub fn fill_random(bytes: &mut [u8]) -> Result<(), RandomFailed> {
    if cfg!(feature = "fips") {
        aws_lc_rs::rand::fill(bytes).map_err(|_| RandomFailed)
    } else {
        pgseal_random::fill(bytes).map_err(|_| RandomFailed)
    }
}
