//! Which AWS-LC is linked, and what a FIPS build refuses.

use core::fmt;

/// Whether this is a build over AWS-LC's FIPS module.
pub const FIPS: bool = cfg!(feature = "fips");

/// What pgseal uses beside approved algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// AEGIS-256X2 (RFC 10032).
    Aegis,
    /// XTS-AES-128, which pgseal puts together from AES-128-ECB.
    Xts128,
    /// Argon2id (RFC 9106), which makes keys out of passphrases.
    Argon2id,
    /// Shamir's secret sharing.
    SecretSharing,
    /// AES-SIV (RFC 5297), of deterministic columns.
    AesSiv,
    /// AES-CBC and AES-ECB as pgcrypto has them, of raw columns.
    RawAes,
    /// FF1 (SP 800-38G), of format-preserving columns: approved, but not a function of the module.
    Ff1,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::Aegis => "AEGIS-256X2",
            Service::Xts128 => "XTS-AES-128",
            Service::Argon2id => "Argon2id (passphrases)",
            Service::SecretSharing => "secret sharing (shares)",
            Service::AesSiv => "AES-SIV (deterministic columns)",
            Service::RawAes => "raw AES (columns as pgcrypto seals them)",
            Service::Ff1 => "FF1 (format-preserving columns)",
        })
    }
}

/// The FIPS module does not have this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotApproved(pub Service);

impl fmt::Display for NotApproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this is a FIPS build, and {} is no approved algorithm of its module (docs/fips.md)",
            self.0
        )
    }
}

impl core::error::Error for NotApproved {}

/// Whether this build may use `service`.
///
/// # Errors
/// [`NotApproved`] in a FIPS build.
pub const fn check(service: Service) -> Result<(), NotApproved> {
    if FIPS { Err(NotApproved(service)) } else { Ok(()) }
}

/// The cryptographic library, for people. The module tests itself when a program starts, and ends
/// the program if a test fails, so the last answer is not to be seen.
#[must_use]
pub fn library() -> &'static str {
    match (FIPS, aws_lc_rs::try_fips_mode().is_ok()) {
        (false, _) => "AWS-LC",
        (true, true) => "AWS-LC FIPS module",
        (true, false) => "AWS-LC FIPS module, NOT in FIPS mode",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fips_build_is_in_fips_mode_and_refuses_by_name() {
        assert_eq!(FIPS, aws_lc_rs::try_fips_mode().is_ok());
        assert!(!library().contains("NOT"));
        let refused = check(Service::Argon2id).map_err(|why| why.to_string());
        match FIPS {
            true => assert!(refused.unwrap_err().contains("Argon2id")),
            false => assert_eq!(refused, Ok(())),
        }
    }
}
