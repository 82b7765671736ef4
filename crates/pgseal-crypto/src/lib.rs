//! The two builds of AWS-LC, and what differs between them (`docs/fips.md`).
//!
//! `make build` links AWS-LC. `make build FIPS=1` turns on the feature `fips`: then each primitive
//! comes from AWS-LC's FIPS module, random numbers and the nonces of AES-GCM too, and what is not
//! an approved algorithm is refused by name. AEGIS is from libaegis, and one of these.

#![forbid(unsafe_code)]

mod aegis;
mod gcm;
mod module;
mod random;

pub use self::aegis::{AegisError, AegisKey, AegisNonce, open_aegis, seal_aegis};
pub use gcm::{Gcm, GcmError, NONCE_LEN, NonceBytes, TAG_LEN, TagBytes};
pub use module::{FIPS, NotApproved, Service, check, library};
pub use random::{RandomFailed, fill_random};

/// AWS-LC's C functions, for what `aws-lc-rs` does not offer.
#[cfg(feature = "fips")]
pub use aws_lc_fips_sys as sys;
/// AWS-LC's C functions, for what `aws-lc-rs` does not offer.
#[cfg(not(feature = "fips"))]
pub use aws_lc_sys as sys;
