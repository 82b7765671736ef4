//! Data keys in memory: the set that a keyring unlocks, by generation.
//!
//! A data key wraps the random file key in the header of each file
//! (`spec/key-hierarchy.md`, section 2).

use core::fmt;
use std::alloc::Layout;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use zeroize::Zeroizing;

use crate::memory::KeyBytes;
use crate::suite::Suite;

/// The random identity of a keyring, 16 bytes; the header of every sealed file names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyringId(pub [u8; 16]);

impl fmt::Display for KeyringId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyringId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyringId({self})")
    }
}

/// The generation of a data key, from 1 upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

impl Generation {
    /// The generation of the data key that lives in memory only, for temporary files.
    pub const EPHEMERAL: Generation = Generation(u32::MAX);

    /// Whether the key of this generation dies with the postmaster.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        self == Generation::EPHEMERAL
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ephemeral() { f.pad("ephemeral") } else { write!(f, "{}", self.0) }
    }
}

/// A 256-bit data key. Wiped on drop, never cloned, never printed.
pub struct DataKey(KeyBytes<32>);

impl DataKey {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// A key whose bytes `fill` writes in place, so that no copy is left on the stack.
    pub fn init_with<E>(fill: impl FnOnce(&mut [u8; 32]) -> Result<(), E>) -> Result<DataKey, E> {
        let no_memory = |_| std::alloc::handle_alloc_error(Layout::new::<[u8; 32]>());
        let mut key = KeyBytes::zeros().unwrap_or_else(no_memory);
        fill(&mut key)?;
        Ok(DataKey(key))
    }

    /// The bytes, for the primitives that need them.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(..)")
    }
}

/// The data keys of one keyring, unlocked.
pub struct KeySet {
    /// Which keyring they are from.
    pub keyring_id: KeyringId,
    /// The suite that new relation files get.
    pub suite: Suite,
    /// The generation that new files get.
    pub active: Generation,
    /// The least sequence number that the configuration record may have (`spec/config-lock.md`); 0
    /// where the configuration is not locked.
    pub config_lock: u64,
    keys: Vec<Entry>,
}

/// A data key with its key schedule, which every opening of a file needs.
struct Entry {
    generation: Generation,
    key: DataKey,
    wrapping: Option<LessSafeKey>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("keyring_id", &self.keyring_id)
            .field("suite", &self.suite)
            .field("active", &self.active)
            .field("generations", &self.generations().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl KeySet {
    /// A set without keys; add at least the active generation before use.
    #[must_use]
    pub fn new(keyring_id: KeyringId, suite: Suite, active: Generation) -> KeySet {
        KeySet { keyring_id, suite, active, config_lock: 0, keys: Vec::new() }
    }

    /// Adds the key of a generation; a second one of the same generation replaces the first.
    pub fn insert(&mut self, generation: Generation, key: DataKey) {
        self.keys.retain(|known| known.generation != generation);
        let wrapping = UnboundKey::new(&AES_256_GCM, key.bytes()).map(LessSafeKey::new).ok();
        self.keys.push(Entry { generation, key, wrapping });
    }

    /// The key of a generation.
    #[must_use]
    pub fn get(&self, generation: Generation) -> Option<&DataKey> {
        self.entry(generation).map(|entry| &entry.key)
    }

    /// The AES-256-GCM key that wraps file keys under a generation.
    pub(crate) fn wrapping_key(&self, generation: Generation) -> Option<&LessSafeKey> {
        self.entry(generation)?.wrapping.as_ref()
    }

    fn entry(&self, generation: Generation) -> Option<&Entry> {
        self.keys.iter().find(|entry| entry.generation == generation)
    }

    /// The generations in the set.
    pub fn generations(&self) -> impl Iterator<Item = Generation> + '_ {
        self.keys.iter().map(|entry| entry.generation)
    }
}

/// Bytes that are wiped when they go out of scope.
pub type Secret = Zeroizing<Vec<u8>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        let key = DataKey::init_with(|bytes| {
            bytes.fill(0xAB);
            Ok::<(), ()>(())
        })
        .unwrap();
        let mut set = KeySet::new(KeyringId([1; 16]), Suite::Aes256Gcm, Generation(1));
        set.insert(Generation(1), key);
        let shown = format!("{set:?}").to_lowercase();
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert!(set.get(Generation(1)).is_some());
        assert!(set.get(Generation(2)).is_none());
    }
}
