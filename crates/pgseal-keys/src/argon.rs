//! The parameters of Argon2id (RFC 9106), which derives a KEK from a passphrase, and their limits.

use std::path::Path;

use argon2::Version;
use pgseal_crypto::Service;
use serde::{Deserialize, Serialize};

use crate::error::KeyError;
use crate::wrap;

/// The parameters of Argon2id version 0x13, with the salt. None of them is secret.
///
/// The keyring stores them, so a new default in a later version does not lock out old keyrings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argon2idParams {
    /// Always `argon2id`.
    pub(crate) kdf: String,
    /// Always 19 (0x13).
    pub(crate) version: u32,
    /// Memory, in KiB.
    pub(crate) memory_kib: u32,
    /// Passes over the memory.
    pub(crate) passes: u32,
    /// Lanes.
    pub(crate) lanes: u32,
    /// 16 random bytes, as 32 hexadecimal digits.
    #[serde(with = "crate::hex")]
    pub(crate) salt: [u8; 16],
}

impl Argon2idParams {
    /// Memory in KiB, passes, lanes. The second recommended option of RFC 9106, section 4 (64 MiB,
    /// 3 passes), but with one lane instead of four.
    pub const DEFAULT_COST: (u32, u32, u32) = (64 * 1024, 3, 1);
    /// The most memory that is accepted from a keyring, in KiB.
    pub const MAX_MEMORY_KIB: u32 = 4 * 1024 * 1024;
    /// The most passes that are accepted from a keyring.
    pub const MAX_PASSES: u32 = 1024;
    /// The most lanes that are accepted from a keyring.
    pub const MAX_LANES: u32 = 64;

    /// Parameters with the default cost and a new random salt.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when there are no random numbers.
    pub fn generate() -> Result<Argon2idParams, KeyError> {
        let (memory_kib, passes, lanes) = Argon2idParams::DEFAULT_COST;
        Argon2idParams::with_cost(memory_kib, passes, lanes)
    }

    /// Parameters with this cost (KiB, passes, lanes) and a new random salt.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the cost is out of range or there are no random numbers.
    pub fn with_cost(memory_kib: u32, passes: u32, lanes: u32) -> Result<Argon2idParams, KeyError> {
        pgseal_crypto::check(Service::Argon2id)?;
        let mut salt = [0; 16];
        wrap::random(&mut salt)?;
        let params = Argon2idParams {
            kdf: "argon2id".to_owned(),
            version: Version::V0x13 as u32,
            memory_kib,
            passes,
            lanes,
            salt,
        };
        params.check().map_err(|_| KeyError::Internal("Argon2id parameters"))?;
        Ok(params)
    }

    /// Parameters that were stored in an escrow copy.
    #[cfg(feature = "escrow")]
    pub(crate) fn stored(
        memory_kib: u32,
        passes: u32,
        lanes: u32,
        salt: [u8; 16],
    ) -> Result<Argon2idParams, &'static str> {
        let (kdf, version) = ("argon2id".to_owned(), Version::V0x13 as u32);
        let params = Argon2idParams { kdf, version, memory_kib, passes, lanes, salt };
        params.check().map(|()| params)
    }

    /// Checks the limits of the format: a keyring that an attacker made must not make pgseal
    /// allocate or compute without bounds.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.kdf != "argon2id" || self.version != Version::V0x13 as u32 {
            return Err("an unknown passphrase derivation");
        }
        let lanes_ok = (1..=Argon2idParams::MAX_LANES).contains(&self.lanes);
        let passes_ok = (1..=Argon2idParams::MAX_PASSES).contains(&self.passes);
        let memory_ok = self.memory_kib >= 8u32.saturating_mul(self.lanes)
            && self.memory_kib <= Argon2idParams::MAX_MEMORY_KIB;
        if lanes_ok && passes_ok && memory_ok {
            Ok(())
        } else {
            Err("Argon2id parameters out of range")
        }
    }
}

/// How expensive the derivation from a passphrase may be. Nobody has authenticated its parameters
/// when they are used, so an attacker may have chosen its memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostLimit {
    /// At most [`CostLimit::SENSIBLE_MEMORY_KIB`] and [`CostLimit::SENSIBLE_PASSES`].
    Sensible,
    /// Whatever the format allows: the user has asked for it (`--allow-cost`).
    Format,
}

impl CostLimit {
    /// 1 GiB, in KiB.
    pub const SENSIBLE_MEMORY_KIB: u32 = 1024 * 1024;
    /// Passes over the memory.
    pub const SENSIBLE_PASSES: u32 = 16;

    /// Refuses parameters that cost more than this limit. `path` is the file that holds them, for
    /// messages.
    ///
    /// # Errors
    /// [`KeyError::Costly`].
    pub fn check(self, params: &Argon2idParams, path: &Path) -> Result<(), KeyError> {
        let is_sensible = params.memory_kib <= CostLimit::SENSIBLE_MEMORY_KIB
            && params.passes <= CostLimit::SENSIBLE_PASSES;
        if is_sensible || self == CostLimit::Format {
            return Ok(());
        }
        Err(KeyError::Costly {
            path: path.to_owned(),
            memory_mib: params.memory_kib / 1024,
            passes: params.passes,
            limit_mib: CostLimit::SENSIBLE_MEMORY_KIB / 1024,
            limit_passes: CostLimit::SENSIBLE_PASSES,
        })
    }
}
