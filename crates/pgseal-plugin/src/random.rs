//! Random bytes.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Failure, Fault};

/// Fills up to 256 bytes from the kernel's generator (`getrandom(2)`).
///
/// # Errors
/// [`Fault::Unavailable`] if the kernel gives no random numbers.
pub fn random(bytes: &mut [u8]) -> Result<(), Failure<'static>> {
    match getrandom(&mut *bytes, GetRandomFlags::empty()) {
        Ok(len) if len == bytes.len() => Ok(()),
        _ => Err(Failure::new(Fault::Unavailable, "the kernel gives no random numbers")),
    }
}
