//! The keys that wrap column keys where `pgseal.provider` names a keyring
//! (`spec/column-cipher.md`, section 2.2).

use pgseal_core::KeySet;
use zeroize::Zeroizing;

use crate::error::KeyError;
use crate::{labels, wrap};

/// The key-encryption keys of columns that an unlocked keyring gives: one of each data key, that of
/// the active one first, then from the newest to the oldest.
///
/// # Errors
/// [`KeyError::Internal`].
pub fn column_keks(keys: &KeySet) -> Result<Vec<Zeroizing<[u8; 32]>>, KeyError> {
    let active = keys.active();
    let mut generations: Vec<_> = keys.generations().filter(|one| *one != active).collect();
    generations.sort_by_key(|generation| std::cmp::Reverse(generation.0));
    generations.insert(0, active);
    let of = |generation| {
        let key = keys.get(generation).ok_or(KeyError::Internal("a generation's key"))?;
        let derived = wrap::derive(key.bytes(), keys.keyring_id, labels::KDF_COLUMNS_KEK)?;
        Ok(Zeroizing::new(*derived))
    };
    generations.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use pgseal_core::Suite;

    use super::*;
    use crate::kek::kek;
    use crate::keyring::Keyring;

    #[test]
    fn a_new_data_key_gives_the_first_key_and_the_older_ones_stay() {
        let mut ring = Keyring::create(Suite::Aes256Gcm, "env:MAIN", &kek(1)).unwrap();
        let keks = |ring: &Keyring, byte| column_keks(&ring.unlock(&kek(byte)).unwrap()).unwrap();
        let first = keks(&ring, 1);
        assert_eq!(first.len(), 1);
        ring.add_generation(&kek(1)).unwrap();
        ring.add_generation(&kek(1)).unwrap();
        let all = keks(&ring, 1);
        assert_eq!(all.len(), 3);
        assert_eq!(all[2], first[0]);
        assert!(all[0] != all[1] && all[1] != all[2]);
        // Neither a rotation nor another recipient changes them.
        ring.rotate_kek(&kek(1), &kek(2), "env:NEXT").unwrap();
        ring.add_recipient(&kek(2), "other", &kek(3), "file:/k").unwrap();
        assert_eq!(keks(&ring, 2), all);
        assert_eq!(keks(&ring, 3), all);
    }

    /// The example of `spec/column-cipher.md`, section 7, is that of the keyring of
    /// `spec/key-hierarchy.md`, section 10; HKDF was computed by another program.
    #[test]
    fn the_example_of_the_specification() {
        let id = pgseal_core::KeyringId(std::array::from_fn(|at| 0xa0 + u8::try_from(at).unwrap()));
        let mut keys = KeySet::new(id, Suite::Aes256Gcm, pgseal_core::Generation(1));
        let data_key = pgseal_core::DataKey::init_with(|out| {
            for (at, byte) in out.iter_mut().enumerate() {
                *byte = 0x40 + u8::try_from(at).unwrap();
            }
            Ok::<(), ()>(())
        })
        .unwrap();
        keys.insert(pgseal_core::Generation(1), data_key);
        let derived = data_encoding::HEXLOWER.encode(&column_keks(&keys).unwrap()[0][..]);
        let spec = include_str!("../../../spec/column-cipher.md");
        assert!(spec.contains(&format!("`{derived}`")), "{derived}");
    }
}
