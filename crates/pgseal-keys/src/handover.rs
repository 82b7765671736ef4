//! The hand-over frame: unlocked data keys, from the `pgseal` helper to the preloaded library.
//!
//! `spec/key-hierarchy.md`, section 7. The frame travels through a pipe between two processes of
//! one start and is never stored. It has a trailer, so that a helper that died half-way is noticed.

use core::fmt;

use pgseal_core::{DataKey, Generation, KeySet, KeyringId, Suite};
use zeroize::Zeroizing;

const MAGIC: [u8; 8] = *b"PGSKEYS2";
const TRAILER: [u8; 4] = *b"ENDK";
/// magic 8, keyring id 16, suite 2, reserved 2, active generation 4, configuration lock 8, count 4
const HEAD_LEN: usize = 44;
/// generation 4, key 32
const ENTRY_LEN: usize = 4 + DataKey::LEN;

/// The most data keys that a frame carries.
pub const MAX_KEYS: usize = 1024;

/// The longest frame, in bytes; a reader stops there.
pub const MAX_FRAME_LEN: usize = HEAD_LEN + MAX_KEYS * ENTRY_LEN + TRAILER.len();

/// The bytes are not one whole hand-over frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverError {
    /// The frame ends early: the helper failed or was stopped.
    Truncated,
    /// The frame does not start with its magic: something else wrote into the pipe.
    NotAFrame,
    /// A field holds what this version never writes.
    Malformed(&'static str),
}

impl fmt::Display for HandoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandoverError::Truncated => f.write_str(
                "the pgseal helper stopped before it had handed over all keys; \
                 see its message above this one",
            ),
            HandoverError::NotAFrame => f.write_str(
                "what the pgseal helper wrote is not a key frame; \
                 check that PGSEAL_HELPER names the pgseal program",
            ),
            HandoverError::Malformed(what) => write!(
                f,
                "the key frame of the pgseal helper has {what}; \
                 install the program and the library of the same version"
            ),
        }
    }
}

impl std::error::Error for HandoverError {}

/// The frame of these keys. The ephemeral generation is left out: it never leaves its process.
///
/// Only the first [`MAX_KEYS`] keys would fit; a keyring holds no more.
#[must_use]
pub fn encode(keys: &KeySet) -> Zeroizing<Vec<u8>> {
    let stored: Vec<(Generation, &DataKey)> = keys
        .generations()
        .filter(|generation| !generation.is_ephemeral())
        .filter_map(|generation| keys.get(generation).map(|key| (generation, key)))
        .take(MAX_KEYS)
        .collect();
    let frame_len = HEAD_LEN + stored.len() * ENTRY_LEN + TRAILER.len();
    // The exact capacity: a vector that grows would leave unwiped copies behind.
    let mut frame = Zeroizing::new(Vec::with_capacity(frame_len));
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&keys.keyring_id.0);
    frame.extend_from_slice(&keys.suite.id().to_le_bytes());
    frame.extend_from_slice(&0u16.to_le_bytes());
    frame.extend_from_slice(&keys.active.0.to_le_bytes());
    frame.extend_from_slice(&keys.config_lock.to_le_bytes());
    let count = u32::try_from(stored.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&count.to_le_bytes());
    for (generation, key) in stored {
        frame.extend_from_slice(&generation.0.to_le_bytes());
        frame.extend_from_slice(key.bytes());
    }
    frame.extend_from_slice(&TRAILER);
    frame
}

/// The keys of one whole frame, and nothing but that frame.
///
/// # Errors
/// [`HandoverError`] when the frame is cut short, is no frame, or holds a value that
/// [`encode`] never writes (a second key of one generation, an active generation without a key,
/// bytes behind the trailer).
pub fn decode(frame: &[u8]) -> Result<KeySet, HandoverError> {
    let (magic, mut rest) = take::<8>(frame)?;
    if magic != MAGIC {
        return Err(HandoverError::NotAFrame);
    }
    let keyring_id = KeyringId(next(&mut rest)?);
    let suite = Suite::from_id(u16::from_le_bytes(next(&mut rest)?))
        .ok_or(HandoverError::Malformed("an unknown suite"))?;
    if next::<2>(&mut rest)? != [0, 0] {
        return Err(HandoverError::Malformed("a reserved field in use"));
    }
    let active = Generation(u32::from_le_bytes(next(&mut rest)?));
    let config_lock = u64::from_le_bytes(next(&mut rest)?);
    let count = usize::try_from(u32::from_le_bytes(next(&mut rest)?)).unwrap_or(usize::MAX);
    if count > MAX_KEYS {
        return Err(HandoverError::Malformed("too many keys"));
    }
    let mut keys = KeySet::new(keyring_id, suite, active);
    keys.config_lock = config_lock;
    for _ in 0..count {
        let generation = Generation(u32::from_le_bytes(next(&mut rest)?));
        if generation.0 == 0 || generation.is_ephemeral() {
            return Err(HandoverError::Malformed("a generation number out of range"));
        }
        if keys.get(generation).is_some() {
            return Err(HandoverError::Malformed("two keys of one generation"));
        }
        let (bytes, behind) =
            rest.split_at_checked(DataKey::LEN).ok_or(HandoverError::Truncated)?;
        rest = behind;
        keys.insert(
            generation,
            DataKey::init_with(|key| {
                key.copy_from_slice(bytes);
                Ok::<(), HandoverError>(())
            })?,
        );
    }
    if next::<4>(&mut rest)? != TRAILER {
        return Err(HandoverError::Malformed("no trailer"));
    }
    if !rest.is_empty() {
        return Err(HandoverError::Malformed("bytes behind its end"));
    }
    if keys.get(active).is_none() {
        return Err(HandoverError::Malformed("no key of the active generation"));
    }
    Ok(keys)
}

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), HandoverError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(HandoverError::Truncated)?;
    Ok((*head, rest))
}

fn next<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HandoverError> {
    let (head, behind) = take::<N>(rest)?;
    *rest = behind;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> DataKey {
        DataKey::init_with(|bytes| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    fn sample() -> KeySet {
        let mut set = KeySet::new(KeyringId([7; 16]), Suite::Aes256Gcm, Generation(2));
        set.config_lock = 9;
        set.insert(Generation(1), key(0x11));
        set.insert(Generation(2), key(0x22));
        set.insert(Generation::EPHEMERAL, key(0xEE));
        set
    }

    #[test]
    fn round_trip_without_the_ephemeral_key() {
        let frame = encode(&sample());
        assert_eq!(frame.len(), HEAD_LEN + 2 * ENTRY_LEN + 4);
        assert!(!frame.contains(&0xEE));
        let back = decode(&frame).unwrap();
        assert_eq!(back.keyring_id, KeyringId([7; 16]));
        assert_eq!((back.suite, back.active), (Suite::Aes256Gcm, Generation(2)));
        assert_eq!(back.config_lock, 9);
        assert_eq!(back.get(Generation(1)).unwrap().bytes(), &[0x11; 32]);
        assert_eq!(back.get(Generation(2)).unwrap().bytes(), &[0x22; 32]);
        assert_eq!(back.generations().count(), 2);
        assert_eq!(&*encode(&back), &*frame);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let frame = encode(&sample());
        for len in 0..frame.len() {
            assert_eq!(decode(&frame[..len]).unwrap_err(), HandoverError::Truncated, "{len}");
        }
    }

    #[test]
    fn what_encode_never_writes_is_refused() {
        let good = encode(&sample()).to_vec();
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            decode(&bad).unwrap_err()
        };
        assert_eq!(with(0, b'X'), HandoverError::NotAFrame);
        assert!(matches!(with(24, 99), HandoverError::Malformed("an unknown suite")));
        assert!(matches!(with(26, 1), HandoverError::Malformed("a reserved field in use")));
        assert!(matches!(with(28, 3), HandoverError::Malformed(_)), "active without a key");
        assert_eq!(with(40, 3), HandoverError::Truncated);
        assert!(matches!(with(43, 1), HandoverError::Malformed("too many keys")));
        assert!(matches!(with(44, 0), HandoverError::Malformed(_)), "generation 0");
        assert!(matches!(with(44, 2), HandoverError::Malformed("two keys of one generation")));
        assert!(matches!(with(good.len() - 1, 0), HandoverError::Malformed("no trailer")));
        let mut long = good.clone();
        long.push(0);
        assert!(matches!(decode(&long), Err(HandoverError::Malformed("bytes behind its end"))));
    }
}
