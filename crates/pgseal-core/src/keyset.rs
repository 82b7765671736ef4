//! Data keys in memory: the set that a keyring unlocks, by generation.
//!
//! A data key wraps the random file key in the header of each file
//! (`spec/key-hierarchy.md`, section 2).

use core::fmt;
use std::alloc::Layout;
use std::sync::OnceLock;

use pgseal_crypto::Gcm;
use zeroize::Zeroizing;

use crate::memory::KeyBytes;
use crate::suite::Suite;
use crate::suites::Suites;

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
    /// The least sequence number that the configuration record may have (`spec/config-lock.md`); 0
    /// where the configuration is not locked.
    pub config_lock: u64,
    /// The generation that new files got when the keyring was unlocked.
    active: Generation,
    /// The suites when the keyring was unlocked.
    suites: Suites,
    keys: Vec<Entry>,
    /// Keys that came later, in the order of their generations, and the suites from then on.
    adopted: Box<[OnceLock<(Entry, Suites)>; KeySet::MAX_ADOPTED]>,
}

/// A data key with its key schedule, which every opening of a file needs.
struct Entry {
    generation: Generation,
    key: DataKey,
    wrapping: Option<Gcm>,
}

impl Entry {
    fn new(generation: Generation, key: DataKey) -> Entry {
        let wrapping = Gcm::new(key.bytes()).ok();
        Entry { generation, key, wrapping }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("keyring_id", &self.keyring_id)
            .field("suites", &self.suites())
            .field("active", &self.active())
            .field("generations", &self.generations().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl KeySet {
    /// The most keys that a set in use adopts.
    pub const MAX_ADOPTED: usize = 16;

    /// A set without keys; add at least the active generation before use.
    #[must_use]
    pub fn new(keyring_id: KeyringId, suites: impl Into<Suites>, active: Generation) -> KeySet {
        let adopted = Box::new([const { OnceLock::new() }; KeySet::MAX_ADOPTED]);
        let (suites, keys) = (suites.into(), Vec::new());
        KeySet { keyring_id, config_lock: 0, active, suites, keys, adopted }
    }

    /// The suite that new relation files get.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suites().newest()
    }

    /// The suites that relation files may have.
    #[must_use]
    pub fn suites(&self) -> Suites {
        let adopted = self.adopted.iter().map_while(OnceLock::get);
        adopted.last().map_or(self.suites, |(_, suites)| *suites)
    }

    /// The generation that new files get.
    #[must_use]
    pub fn active(&self) -> Generation {
        let adopted = self.adopted.iter().map_while(OnceLock::get);
        adopted.last().map_or(self.active, |(entry, _)| entry.generation)
    }

    /// Adds the key of a generation; a second one of the same generation replaces the first.
    pub fn insert(&mut self, generation: Generation, key: DataKey) {
        self.keys.retain(|known| known.generation != generation);
        self.keys.push(Entry::new(generation, key));
    }

    /// Adds the key of a generation above the active one to a set that is in use; this generation
    /// is then the active one, and relation files have these suites. Returns whether the set has it
    /// now: not if its number is too low, or if [`KeySet::MAX_ADOPTED`] keys were adopted already.
    pub fn adopt(&self, generation: Generation, key: DataKey, suites: Suites) -> bool {
        if generation <= self.active() || generation.is_ephemeral() {
            return false;
        }
        let mut entry = (Entry::new(generation, key), suites);
        for slot in self.adopted.iter() {
            match slot.set(entry) {
                Ok(()) => return true,
                // Taken: the next one.
                Err(unused) => entry = unused,
            }
        }
        false
    }

    /// The key of a generation.
    #[must_use]
    pub fn get(&self, generation: Generation) -> Option<&DataKey> {
        self.entry(generation).map(|entry| &entry.key)
    }

    /// The AES-256-GCM key that wraps file keys under a generation.
    pub(crate) fn wrapping_key(&self, generation: Generation) -> Option<&Gcm> {
        self.entry(generation)?.wrapping.as_ref()
    }

    fn entry(&self, generation: Generation) -> Option<&Entry> {
        self.entries().find(|entry| entry.generation == generation)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let adopted = self.adopted.iter().map_while(OnceLock::get);
        self.keys.iter().chain(adopted.map(|(entry, _)| entry))
    }

    /// The generations in the set.
    pub fn generations(&self) -> impl Iterator<Item = Generation> + '_ {
        self.entries().map(|entry| entry.generation)
    }
}

/// Bytes that are wiped when they go out of scope.
pub type Secret = Zeroizing<Vec<u8>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::data_key as key;

    #[test]
    fn a_set_in_use_adopts_newer_keys_only() {
        let mut set = KeySet::new(KeyringId([1; 16]), Suite::Aes256Gcm, Generation(3));
        set.insert(Generation(3), key(3));
        set.insert(Generation::EPHEMERAL, key(9));
        let (gcm, xts) = (set.suites(), set.suites().changed_to(Suite::Aes256Xts));
        let refused = [2, 3, u32::MAX];
        assert!(refused.into_iter().all(|number| !set.adopt(Generation(number), key(1), xts)));
        assert_eq!((set.active(), set.suite()), (Generation(3), Suite::Aes256Gcm));
        for number in 4..4 + KeySet::MAX_ADOPTED as u32 {
            let suites = if number % 2 == 0 { xts } else { gcm };
            assert!(set.adopt(Generation(number), key(4), suites));
            assert_eq!((set.active(), set.suites()), (Generation(number), suites));
        }
        assert!(set.get(Generation(3)).is_some() && set.wrapping_key(Generation(5)).is_some());
        assert!(!set.adopt(Generation(99), key(5), gcm), "there is no room");
        assert_eq!(set.generations().count(), 2 + KeySet::MAX_ADOPTED);
    }

    #[test]
    fn debug_shows_no_key() {
        let secret = key(0xAB);
        let mut set = KeySet::new(KeyringId([1; 16]), Suite::Aes256Gcm, Generation(1));
        set.insert(Generation(1), secret);
        let shown = format!("{set:?}").to_lowercase();
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert!(set.get(Generation(1)).is_some());
        assert!(set.get(Generation(2)).is_none());
    }
}
