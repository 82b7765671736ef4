//! From a passphrase to a KEK: Argon2id (RFC 9106).

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};

use crate::error::KeyError;
use crate::kek::Kek;
use crate::wrap;

/// The parameters of Argon2id version 0x13, with the salt. None of them is secret.
///
/// They are written into the keyring, so a later default never locks out an older keyring.
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
    #[serde(with = "crate::body::hex")]
    pub(crate) salt: [u8; 16],
}

impl Argon2idParams {
    /// RFC 9106, section 4, second recommended option, but with one lane: 64 MiB, 3 passes.
    pub const DEFAULT_COST: (u32, u32, u32) = (64 * 1024, 3, 1);
    /// The most memory that is accepted from a keyring, in KiB.
    pub const MAX_MEMORY_KIB: u32 = 4 * 1024 * 1024;
    /// The most passes that are accepted from a keyring.
    pub const MAX_PASSES: u32 = 1024;
    /// The most lanes that are accepted from a keyring.
    pub const MAX_LANES: u32 = 64;

    /// The default cost with a new random salt.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when there are no random numbers.
    pub fn generate() -> Result<Argon2idParams, KeyError> {
        let (memory_kib, passes, lanes) = Argon2idParams::DEFAULT_COST;
        Argon2idParams::with_cost(memory_kib, passes, lanes)
    }

    /// A chosen cost (KiB, passes, lanes) with a new random salt.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the cost is out of range or there are no random numbers.
    pub fn with_cost(memory_kib: u32, passes: u32, lanes: u32) -> Result<Argon2idParams, KeyError> {
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

    /// Parameters that were kept elsewhere than in a keyring.
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

    /// Bounds: a keyring made by an enemy must not make us allocate or compute without end.
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

    /// The KEK of this passphrase.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when the parameters are out of range.
    pub fn derive(&self, passphrase: &[u8]) -> Result<Kek, KeyError> {
        let broken = || KeyError::Internal("Argon2id");
        self.check().map_err(|_| broken())?;
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(Kek::LEN))
            .map_err(|_| broken())?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let kek = Kek::init_with(|key| {
            argon.hash_password_into(passphrase, &self.salt, key).map_err(|_| broken())
        })?;
        Ok(kek.with_params(self.clone()))
    }
}
