//! The renewal file, `DATADIR/pgseal/renewal`: hands a new data key to a server that runs
//! (`spec/key-hierarchy.md`, section 11).
//!
//! The file lives from the moment in which `pgseal key renew` writes it until the postmaster has
//! read it.

use pgseal_core::random::Random;
use pgseal_core::{DataKey, Generation, KeySet, Suites};

use crate::envelope::{Envelope, OVERHEAD, RecordError, take};
use crate::labels;

/// The name of the file in the directory [`KEYRING_DIR`](crate::KEYRING_DIR) of a data directory.
pub const RENEWAL_FILE: &str = "renewal";
/// Its length in bytes.
pub const RENEWAL_LEN: usize = OVERHEAD + BODY_LEN;

/// generation 4, suites 2, zeros 6, data key 32
const BODY_LEN: usize = 12 + DataKey::LEN;

const ENVELOPE: Envelope = Envelope {
    magic: *b"PGSRENW2",
    kdf_label: labels::KDF_RENEWAL,
    aad_label: labels::AAD_RENEWAL,
    max_len: RENEWAL_LEN,
};

/// What a renewal file hands over.
#[derive(Debug)]
pub struct Renewed {
    /// The number of the new data key.
    pub generation: Generation,
    /// The new data key.
    pub key: DataKey,
    /// The suites that relation files may have from then on.
    pub suites: Suites,
}

/// The bytes of the file that hands over the active key of `keys`, and their suites, to a server
/// whose active generation is `known`.
///
/// # Errors
/// [`RecordError::KeyUnknown`] if the set lacks one of the two; [`RecordError::Internal`].
pub fn seal(keys: &KeySet, known: Generation, random: &dyn Random) -> Result<Vec<u8>, RecordError> {
    let active = keys.active();
    let key = keys.get(active).ok_or(RecordError::KeyUnknown(active))?;
    let mut body = Vec::with_capacity(BODY_LEN);
    body.extend_from_slice(&active.0.to_le_bytes());
    body.extend_from_slice(&keys.suites().code().to_le_bytes());
    body.extend_from_slice(&[0; 6]);
    body.extend_from_slice(key.bytes());
    ENVELOPE.seal_under(body, keys, known, random)
}

/// What a file hands over.
///
/// # Errors
/// [`RecordError`]; [`RecordError::Damaged`] also if the file does not hand over a newer key than
/// the one that it is encrypted under.
pub fn open(file: &[u8], keys: &KeySet) -> Result<Renewed, RecordError> {
    let known = ENVELOPE.generation_of(file)?;
    let body = ENVELOPE.open(file, keys)?;
    let (number, rest) = take::<4>(&body)?;
    let (code, rest) = take::<2>(rest)?;
    let (zeros, key) = take::<6>(rest)?;
    let suites = Suites::from_code(u16::from_le_bytes(code)).filter(|_| zeros == [0; 6]);
    let suites = suites.ok_or(RecordError::Damaged("it names an unknown suite"))?;
    let generation = Generation(u32::from_le_bytes(number));
    if generation <= known || generation.is_ephemeral() {
        return Err(RecordError::Damaged("it hands over no newer key"));
    }
    let key = DataKey::init_with(|bytes| {
        if key.len() != bytes.len() {
            return Err(RecordError::Damaged("cut short"));
        }
        bytes.copy_from_slice(key);
        Ok(())
    })?;
    Ok(Renewed { generation, key, suites })
}

#[cfg(test)]
mod tests {
    use pgseal_core::random::LibraryRandom;
    use pgseal_core::{KeyringId, Suite};

    use super::*;

    fn key(byte: u8) -> DataKey {
        DataKey::init_with(|bytes| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    fn set(id: u8, generations: &[u32]) -> KeySet {
        let active = Generation(*generations.last().unwrap());
        let mut keys = KeySet::new(KeyringId([id; 16]), Suite::Aes256Gcm, active);
        for number in generations {
            keys.insert(Generation(*number), key(u8::try_from(*number).unwrap()));
        }
        keys
    }

    #[test]
    fn a_server_learns_the_next_key() {
        let (server, program) = (set(1, &[1, 2]), set(1, &[1, 2, 5]));
        let file = seal(&program, Generation(2), &LibraryRandom::new()).unwrap();
        assert_eq!(file.len(), RENEWAL_LEN);
        let Renewed { generation, key, suites } = open(&file, &server).unwrap();
        assert_eq!((generation, key.bytes()), (Generation(5), &[5; 32]));
        assert_eq!(suites, program.suites());
        assert!(!file.windows(32).any(|part| part == [5; 32]));
    }

    #[test]
    fn a_server_learns_another_suite() {
        let server = set(1, &[1]);
        let suites = server.suites().changed_to(Suite::Aes256Xts);
        let mut program = KeySet::new(server.keyring_id, suites, Generation(2));
        program.insert(Generation(1), key(1));
        program.insert(Generation(2), key(2));
        let file = seal(&program, Generation(1), &LibraryRandom::new()).unwrap();
        assert_eq!(open(&file, &server).unwrap().suites, suites);
    }

    #[test]
    fn nobody_else_reads_or_makes_it() {
        let program = set(1, &[1, 2]);
        let file = seal(&program, Generation(1), &LibraryRandom::new()).unwrap();
        assert!(matches!(open(&file, &set(2, &[1])), Err(RecordError::OtherCluster(_))));
        assert!(matches!(open(&file, &set(1, &[3])), Err(RecordError::KeyUnknown(_))));
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(open(&changed, &set(1, &[1])).is_err(), "byte {at}");
        }
        for len in 0..file.len() {
            assert!(open(&file[..len], &set(1, &[1])).is_err(), "{len} bytes");
        }
        // A file that hands over the key that it is under, or an older one.
        for known in [2, 3] {
            let file = seal(&set(1, &[3, 2]), Generation(known), &LibraryRandom::new()).unwrap();
            let opened = open(&file, &set(1, &[2, 3]));
            assert!(matches!(opened, Err(RecordError::Damaged(_))), "{known}");
        }
    }
}
