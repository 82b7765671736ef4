//! Random bytes.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Failure, Fault};

/// Fills up to 256 bytes from the kernel's generator (`getrandom(2)`); in a FIPS build, with the
/// feature `tls`, from the module's.
///
/// # Errors
/// [`Fault::Unavailable`] if the kernel gives no random numbers.
pub fn random(bytes: &mut [u8]) -> Result<(), Failure<'static>> {
    #[cfg(feature = "tls")]
    if pgseal_crypto::FIPS {
        let failed = |_| Failure::new(Fault::Unavailable, "the module gives no random numbers");
        return pgseal_crypto::fill_random(bytes).map_err(failed);
    }
    match getrandom(&mut *bytes, GetRandomFlags::empty()) {
        Ok(len) if len == bytes.len() => Ok(()),
        _ => Err(Failure::new(Fault::Unavailable, "the kernel gives no random numbers")),
    }
}
