//! Helpers for the tests of this crate and of the crates that use this one.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::error::SealError;
use crate::file::SealedFile;
use crate::header::Form;
use crate::keyset::{DataKey, Generation, KeySet, KeyringId};
use crate::random::{LibraryRandom, Random, RandomFailed};
use crate::storage::Storage;
use crate::suite::{Layout, Suite};

/// The suites that this build has: all of them, but XTS-AES-128 and AEGIS in a FIPS build.
pub fn suites() -> impl Iterator<Item = Suite> {
    let lacking = [Suite::Aes128Xts, Suite::Aegis256X2];
    Suite::ALL.into_iter().filter(move |suite| !pgseal_crypto::FIPS || !lacking.contains(suite))
}

/// Whether two files that got the same operations with [`FixedRandom`] have the same sealed bytes.
/// In a FIPS build the module draws the nonces, so only their lengths are the same.
#[must_use]
pub fn same_sealed(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && (pgseal_crypto::FIPS || one == two)
}

/// A key set with fixed keys of generations 1 and 2; 2 is active.
#[must_use]
pub fn keys() -> KeySet {
    let mut keys = KeySet::new(KeyringId([7; 16]), Suite::Aes256Gcm, Generation(2));
    for generation in [1_u32, 2] {
        keys.insert(Generation(generation), data_key(0x40 + generation.to_le_bytes()[0]));
    }
    keys
}

/// A data key of equal bytes.
#[must_use]
pub fn data_key(byte: u8) -> DataKey {
    let filled: Result<DataKey, core::convert::Infallible> = DataKey::init_with(|bytes| {
        bytes.fill(byte);
        Ok(())
    });
    match filled {
        Ok(key) => key,
        Err(never) => match never {},
    }
}

/// Random bytes that are the same in each run: two files that get the same operations have the same
/// sealed bytes.
#[derive(Debug, Default)]
pub struct FixedRandom(AtomicU64);

impl Random for FixedRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64, so that no two halves of an XTS key are equal.
            let step = 0x9E37_79B9_7F4A_7C15_u64;
            let mut word = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
            word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// A new file that is bound to no place, under the active key of [`keys`].
pub fn new_file<S: Storage + ?Sized>(
    storage: &S,
    suite: Suite,
    layout: Layout,
) -> Result<SealedFile, SealError> {
    let (form, keys) = (Form::anywhere(suite, layout), keys());
    SealedFile::create(storage, &form, &keys, keys.active(), &LibraryRandom::new())
}
