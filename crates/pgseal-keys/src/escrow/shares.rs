//! Shamir's secret sharing for the secret that opens an escrow copy, by vsss-rs.

use std::convert::Infallible;

use pgseal_crypto::Service;
use rand_core::{TryCryptoRng, TryRng};
use vsss_rs::Gf256;
use zeroize::Zeroizing;

use super::Share;
use crate::error::KeyError;
use crate::wrap::{self, Secret32};

/// AWS-LC's generator for vsss-rs, whose trait has no way to report a failure. A failure is
/// recorded in `has_failed`, and then the shares are thrown away.
struct LibraryRng {
    has_failed: bool,
}

impl TryRng for &mut LibraryRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.has_failed |= wrap::random(bytes).is_err();
        Ok(())
    }
}

impl TryCryptoRng for &mut LibraryRng {}

/// Splits the secret into `limit` shares. Any `threshold` of them restore it.
pub(super) fn split(secret: &Secret32, threshold: u8, limit: u8) -> Result<Vec<Share>, KeyError> {
    pgseal_crypto::check(Service::SecretSharing)?;
    let failed = || KeyError::Internal("splitting a secret");
    let mut rng = LibraryRng { has_failed: false };
    let shares = Gf256::split_bytes(threshold.into(), limit.into(), &secret[..], &mut rng)
        .map(|shares| shares.into_iter().map(Zeroizing::new).collect::<Vec<_>>())
        .map_err(|_| failed())?;
    if rng.has_failed {
        return Err(KeyError::Internal("the random number generator"));
    }
    let share = |bytes: &Zeroizing<Vec<u8>>| {
        let (index, value) = bytes.split_first()?;
        let value = Zeroizing::new(*value.first_chunk::<32>()?);
        Some(Share { index: *index, value })
    };
    shares.iter().map(share).collect::<Option<_>>().ok_or_else(failed)
}

/// Restores the secret. The caller has checked that the shares are distinct and that there are
/// enough of them. Shares of different sets give a wrong secret, which opens nothing.
pub(super) fn combine(shares: &[&Share]) -> Result<Secret32, KeyError> {
    pgseal_crypto::check(Service::SecretSharing)?;
    let failed = || KeyError::Internal("combining shares");
    let mut all = Zeroizing::new(Vec::with_capacity(shares.len()));
    for share in shares {
        let mut bytes = Vec::with_capacity(33);
        bytes.push(share.index);
        bytes.extend_from_slice(&*share.value);
        all.push(bytes);
    }
    let combined = Gf256::combine_bytes(&*all).map(Zeroizing::new).map_err(|_| failed())?;
    let mut secret = Secret32::zero();
    secret.copy_from_slice(combined.first_chunk::<32>().ok_or_else(failed)?);
    Ok(secret)
}
