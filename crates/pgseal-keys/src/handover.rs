//! The hand-over frame: how the `pgseal` helper passes the preloaded library what it knows of a
//! keyring, above all the unlocked data keys.
//!
//! The format is in `spec/key-hierarchy.md`, section 7. The frame travels through a pipe between
//! two processes of one start and is never stored. A trailer ends the frame, so that the library
//! notices a helper that died halfway.

use core::fmt;

use pgseal_core::{DataKey, Generation, KeySet, KeyringId, Suites};
use zeroize::Zeroizing;

const MAGIC: [u8; 8] = *b"PGSKEYS4";
const TRAILER: [u8; 4] = *b"ENDK";
/// magic 8, kind 2, length of the variable's name 2, suites 2, length of the source 2, keyring id
/// 16, active generation 4, count 4, configuration lock 8
const HEAD_LEN: usize = 48;
/// generation 4, key 32
const ENTRY_LEN: usize = 4 + DataKey::LEN;

const KIND_KEYS: u16 = 0;
const KIND_OTHER_KEYRING: u16 = 1;

/// The most data keys that a frame carries.
pub const MAX_KEYS: usize = 1024;

/// The longest name of an environment variable that a frame carries, in bytes.
pub const MAX_VARIABLE_LEN: usize = 4096;

/// The longest text about the source of the key that a frame carries, in bytes.
pub const MAX_SOURCE_LEN: usize = 512;

/// The longest frame, in bytes; a reader stops there.
pub const MAX_FRAME_LEN: usize =
    HEAD_LEN + MAX_VARIABLE_LEN + MAX_SOURCE_LEN + MAX_KEYS * ENTRY_LEN + TRAILER.len();

/// A conversion of a data directory (`pgseal/conversion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Plain to sealed.
    Encrypt,
    /// Sealed to plain.
    Decrypt,
    /// Sealed under a new data key, perhaps in another suite.
    Rekey,
}

impl Conversion {
    const ALL: [Conversion; 3] = [Conversion::Encrypt, Conversion::Decrypt, Conversion::Rekey];

    /// The name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Conversion::Encrypt => "encrypt",
            Conversion::Decrypt => "decrypt",
            Conversion::Rekey => "rekey",
        }
    }

    const fn kind(self) -> u16 {
        match self {
            Conversion::Encrypt => 2,
            Conversion::Decrypt => 3,
            Conversion::Rekey => 4,
        }
    }
}

/// Unlocked data keys, and the environment variable that still holds the key that unlocked them.
#[derive(Debug)]
pub struct Unlocked {
    /// The data keys.
    pub keys: KeySet,
    /// The environment variable that holds the KEK (`env:NAME`), which no child of a server may
    /// inherit. `None`: the KEK is in no variable.
    pub key_variable: Option<String>,
    /// Where the KEK came from, for the server's log: no secret, and no control character.
    pub source: String,
}

/// The content of a frame.
#[derive(Debug)]
pub enum Answer {
    /// The keyring is unlocked.
    Unlocked(Unlocked),
    /// The library asked for another keyring; this is the identity of the keyring that was found.
    /// Nobody has authenticated the identity, and no provider was asked for a key.
    OtherKeyring(KeyringId),
    /// A conversion of the data directory was interrupted. No provider was asked for a key.
    Interrupted(Conversion),
}

impl Answer {
    /// The data keys, if the frame has any.
    #[must_use]
    pub fn unlocked(self) -> Option<Unlocked> {
        match self {
            Answer::Unlocked(unlocked) => Some(unlocked),
            Answer::OtherKeyring(_) | Answer::Interrupted(_) => None,
        }
    }
}

/// The bytes are not one whole hand-over frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverError {
    /// The frame ends early: the helper failed or was stopped.
    Truncated,
    /// The frame does not start with its magic: something else wrote into the pipe.
    NotAFrame,
    /// The frame is from another version of pgseal.
    OtherVersion,
    /// A field holds a value that this version never writes.
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
            HandoverError::OtherVersion => f.write_str(
                "the key frame of the pgseal helper is of another version; \
                 install the program and the library of the same version",
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

/// A frame with these keys. The key of the ephemeral generation is left out, because it never
/// leaves its process.
///
/// Only the first [`MAX_KEYS`] keys are written; a keyring holds no more. `key_variable` is left
/// out if no variable can have this name. Of `source`, what is longer than [`MAX_SOURCE_LEN`] is
/// cut off, and control characters are replaced.
#[must_use]
pub fn encode_keys(keys: &KeySet, key_variable: Option<&str>, source: &str) -> Zeroizing<Vec<u8>> {
    let stored: Vec<(Generation, &DataKey)> = keys
        .generations()
        .filter(|generation| !generation.is_ephemeral())
        .filter_map(|generation| keys.get(generation).map(|key| (generation, key)))
        .take(MAX_KEYS)
        .collect();
    let variable = key_variable.filter(|name| is_variable_name(name)).unwrap_or_default();
    let source = shown_source(source);
    let frame_len =
        HEAD_LEN + variable.len() + source.len() + stored.len() * ENTRY_LEN + TRAILER.len();
    // The exact capacity: a vector that grows would leave unwiped copies behind.
    let mut frame = Zeroizing::new(Vec::with_capacity(frame_len));
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&KIND_KEYS.to_le_bytes());
    let variable_len = u16::try_from(variable.len()).unwrap_or(u16::MAX);
    frame.extend_from_slice(&variable_len.to_le_bytes());
    frame.extend_from_slice(&keys.suites().code().to_le_bytes());
    let source_len = u16::try_from(source.len()).unwrap_or(u16::MAX);
    frame.extend_from_slice(&source_len.to_le_bytes());
    frame.extend_from_slice(&keys.keyring_id.0);
    frame.extend_from_slice(&keys.active().0.to_le_bytes());
    let count = u32::try_from(stored.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&count.to_le_bytes());
    frame.extend_from_slice(&keys.config_lock.to_le_bytes());
    frame.extend_from_slice(variable.as_bytes());
    frame.extend_from_slice(source.as_bytes());
    for (generation, key) in stored {
        frame.extend_from_slice(&generation.0.to_le_bytes());
        frame.extend_from_slice(key.bytes());
    }
    frame.extend_from_slice(&TRAILER);
    frame
}

/// The text as it goes into a frame.
fn shown_source(source: &str) -> String {
    let mut shown = String::with_capacity(source.len().min(MAX_SOURCE_LEN));
    for c in source.chars() {
        let c = if c.is_control() { '?' } else { c };
        if shown.len() + c.len_utf8() > MAX_SOURCE_LEN {
            break;
        }
        shown.push(c);
    }
    shown
}

/// A frame that says which keyring was found instead of the requested one.
#[must_use]
pub fn encode_other_keyring(id: KeyringId) -> Vec<u8> {
    without_keys(KIND_OTHER_KEYRING, id)
}

/// A frame that says which conversion was interrupted.
#[must_use]
pub fn encode_interrupted(conversion: Conversion) -> Vec<u8> {
    without_keys(conversion.kind(), KeyringId([0; 16]))
}

fn without_keys(kind: u16, id: KeyringId) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_LEN + TRAILER.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&kind.to_le_bytes());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&id.0);
    frame.extend_from_slice(&[0; 16]);
    frame.extend_from_slice(&TRAILER);
    frame
}

/// Decodes exactly one whole frame.
///
/// # Errors
/// [`HandoverError`] when the frame is cut short, is no frame, or holds a value that this version
/// never writes (a second key of one generation, an active generation without a key, bytes behind
/// the trailer).
pub fn decode(frame: &[u8]) -> Result<Answer, HandoverError> {
    let mut rest = frame;
    let magic = next::<8>(&mut rest)?;
    if magic != MAGIC {
        // The last byte is the version.
        let is_ours = magic[..7] == MAGIC[..7];
        return Err(if is_ours { HandoverError::OtherVersion } else { HandoverError::NotAFrame });
    }
    let kind = u16::from_le_bytes(next(&mut rest)?);
    let conversion = Conversion::ALL.into_iter().find(|conversion| conversion.kind() == kind);
    match (kind, conversion) {
        (KIND_KEYS, _) => decode_keys(rest).map(Answer::Unlocked),
        (KIND_OTHER_KEYRING, _) => decode_without_keys(rest).map(Answer::OtherKeyring),
        (_, Some(conversion)) if decode_without_keys(rest)? == KeyringId([0; 16]) => {
            Ok(Answer::Interrupted(conversion))
        }
        (_, Some(_)) => Err(HandoverError::Malformed("a reserved field in use")),
        (_, None) => Err(HandoverError::Malformed("an unknown kind")),
    }
}

/// Decodes what follows the kind in a frame with keys.
fn decode_keys(mut rest: &[u8]) -> Result<Unlocked, HandoverError> {
    let variable_len = usize::from(u16::from_le_bytes(next(&mut rest)?));
    if variable_len > MAX_VARIABLE_LEN {
        return Err(HandoverError::Malformed("too long a name of a variable"));
    }
    let suites = Suites::from_code(u16::from_le_bytes(next(&mut rest)?))
        .ok_or(HandoverError::Malformed("an unknown suite"))?;
    let source_len = usize::from(u16::from_le_bytes(next(&mut rest)?));
    if source_len > MAX_SOURCE_LEN {
        return Err(HandoverError::Malformed("too long a source of the key"));
    }
    let keyring_id = KeyringId(next(&mut rest)?);
    let active = Generation(u32::from_le_bytes(next(&mut rest)?));
    let count = usize::try_from(u32::from_le_bytes(next(&mut rest)?)).unwrap_or(usize::MAX);
    if count > MAX_KEYS {
        return Err(HandoverError::Malformed("too many keys"));
    }
    let config_lock = u64::from_le_bytes(next(&mut rest)?);
    let variable = split(&mut rest, variable_len)?;
    let key_variable = match core::str::from_utf8(variable) {
        Ok("") => None,
        Ok(name) if is_variable_name(name) => Some(name.to_owned()),
        _ => return Err(HandoverError::Malformed("a name that no variable can have")),
    };
    let source = core::str::from_utf8(split(&mut rest, source_len)?)
        .ok()
        .filter(|source| !source.contains(char::is_control))
        .ok_or(HandoverError::Malformed("a source of the key that is no text"))?
        .to_owned();
    let mut keys = KeySet::new(keyring_id, suites, active);
    keys.config_lock = config_lock;
    for _ in 0..count {
        let generation = Generation(u32::from_le_bytes(next(&mut rest)?));
        if generation.0 == 0 || generation.is_ephemeral() {
            return Err(HandoverError::Malformed("a generation number out of range"));
        }
        if keys.get(generation).is_some() {
            return Err(HandoverError::Malformed("two keys of one generation"));
        }
        let bytes = split(&mut rest, DataKey::LEN)?;
        keys.insert(
            generation,
            DataKey::init_with(|key| {
                key.copy_from_slice(bytes);
                Ok::<(), HandoverError>(())
            })?,
        );
    }
    expect_end(rest)?;
    if keys.get(active).is_none() {
        return Err(HandoverError::Malformed("no key of the active generation"));
    }
    Ok(Unlocked { keys, key_variable, source })
}

/// Decodes what follows the kind in a frame without keys: the identity of a keyring, and zeros.
fn decode_without_keys(mut rest: &[u8]) -> Result<KeyringId, HandoverError> {
    let before = next::<6>(&mut rest)?;
    let id = KeyringId(next(&mut rest)?);
    let behind = next::<16>(&mut rest)?;
    expect_end(rest)?;
    if before != [0; 6] || behind != [0; 16] {
        return Err(HandoverError::Malformed("a reserved field in use"));
    }
    Ok(id)
}

fn expect_end(mut rest: &[u8]) -> Result<(), HandoverError> {
    if next::<4>(&mut rest)? != TRAILER {
        return Err(HandoverError::Malformed("no trailer"));
    }
    if !rest.is_empty() {
        return Err(HandoverError::Malformed("bytes behind its end"));
    }
    Ok(())
}

/// Whether an environment variable can have this name (POSIX, 8.1).
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MAX_VARIABLE_LEN
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fn next<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HandoverError> {
    let (head, behind) = rest.split_first_chunk::<N>().ok_or(HandoverError::Truncated)?;
    *rest = behind;
    Ok(*head)
}

fn split<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], HandoverError> {
    let (head, behind) = rest.split_at_checked(len).ok_or(HandoverError::Truncated)?;
    *rest = behind;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use pgseal_core::Suite;

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

    const NAME: &str = "PGSEAL_KEY";
    const SOURCE: &str = "env:PGSEAL_KEY";

    fn frame() -> Vec<u8> {
        encode_keys(&sample(), Some(NAME), SOURCE).to_vec()
    }

    /// One frame of each kind.
    fn all_kinds() -> Vec<Vec<u8>> {
        let mut all = vec![frame(), encode_other_keyring(KeyringId([7; 16]))];
        all.extend(Conversion::ALL.map(encode_interrupted));
        all
    }

    #[test]
    fn round_trip_without_the_ephemeral_key() {
        let frame = frame();
        assert_eq!(frame.len(), HEAD_LEN + NAME.len() + SOURCE.len() + 2 * ENTRY_LEN + 4);
        assert!(!frame.contains(&0xEE));
        let Unlocked { keys, key_variable, source } = decode(&frame).unwrap().unlocked().unwrap();
        assert_eq!(source, SOURCE);
        assert_eq!(key_variable.as_deref(), Some(NAME));
        assert_eq!(keys.keyring_id, KeyringId([7; 16]));
        assert_eq!((keys.suite(), keys.active()), (Suite::Aes256Gcm, Generation(2)));
        assert_eq!(keys.config_lock, 9);
        assert_eq!(keys.get(Generation(1)).unwrap().bytes(), &[0x11; 32]);
        assert_eq!(keys.get(Generation(2)).unwrap().bytes(), &[0x22; 32]);
        assert_eq!(keys.generations().count(), 2);
        assert_eq!(*encode_keys(&keys, Some(NAME), SOURCE), frame);
    }

    #[test]
    fn what_can_be_no_variable_is_left_out() {
        let long = "A".repeat(MAX_VARIABLE_LEN + 1);
        for name in [None, Some(""), Some("A=B"), Some("1A"), Some("A\0"), Some(&long[..])] {
            let frame = encode_keys(&sample(), name, "");
            let unlocked = decode(&frame).unwrap().unlocked().unwrap();
            assert_eq!(unlocked.key_variable, None, "{name:?}");
        }
        let longest = &long[1..];
        let frame = encode_keys(&sample(), Some(longest), "");
        let unlocked = decode(&frame).unwrap().unlocked().unwrap();
        assert_eq!(unlocked.key_variable.as_deref(), Some(longest));
    }

    #[test]
    fn a_source_is_one_line_of_limited_length() {
        let long = "\u{e9}".repeat(MAX_SOURCE_LEN);
        let wanted = "\u{e9}".repeat(MAX_SOURCE_LEN / 2);
        for (given, read) in [("", ""), ("a\nb\u{9b}", "a?b?"), (&long[..], &wanted[..])] {
            let frame = encode_keys(&sample(), None, given);
            assert_eq!(decode(&frame).unwrap().unlocked().unwrap().source, read, "{given}");
        }
    }

    #[test]
    fn an_answer_without_keys_is_read_back() {
        let id = KeyringId([7; 16]);
        let answer = decode(&encode_other_keyring(id)).unwrap();
        assert!(matches!(answer, Answer::OtherKeyring(found) if found == id));
        assert!(answer.unlocked().is_none());
        for conversion in Conversion::ALL {
            let answer = decode(&encode_interrupted(conversion)).unwrap();
            assert!(matches!(answer, Answer::Interrupted(found) if found == conversion));
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        for frame in all_kinds() {
            for len in 0..frame.len() {
                assert_eq!(decode(&frame[..len]).unwrap_err(), HandoverError::Truncated, "{len}");
            }
        }
    }

    #[test]
    fn the_frame_of_another_version_is_told_from_other_bytes() {
        for version in [b'1', b'2', b'3', b'5'] {
            let mut old = frame();
            old[7] = version;
            let error = decode(&old).unwrap_err();
            assert_eq!(error, HandoverError::OtherVersion);
            assert!(error.to_string().contains("the program and the library of the same version"));
        }
    }

    #[test]
    fn what_is_never_written_is_refused() {
        use HandoverError::{Malformed, NotAFrame, Truncated};
        let good = frame();
        let source = HEAD_LEN + NAME.len();
        let first = source + SOURCE.len();
        let cases: [(usize, u8, HandoverError); 16] = [
            (0, b'X', NotAFrame),
            (8, 5, Malformed("an unknown kind")),
            (9, 1, Malformed("an unknown kind")),
            (10, 9, Malformed("no trailer")),
            (11, 0x20, Malformed("too long a name of a variable")),
            (12, 99, Malformed("an unknown suite")),
            (15, 3, Malformed("too long a source of the key")),
            (32, 3, Malformed("no key of the active generation")),
            (36, 3, Truncated),
            (39, 1, Malformed("too many keys")),
            (HEAD_LEN, b'=', Malformed("a name that no variable can have")),
            (source, b'\n', Malformed("a source of the key that is no text")),
            (source, 0xFF, Malformed("a source of the key that is no text")),
            (first, 0, Malformed("a generation number out of range")),
            (first, 2, Malformed("two keys of one generation")),
            (good.len() - 1, 0, Malformed("no trailer")),
        ];
        for (at, byte, wanted) in cases {
            let mut bad = good.clone();
            bad[at] = byte;
            let error = decode(&bad).map(|_| ()).unwrap_err();
            assert_eq!(error, wanted, "{at}");
        }
        for mut long in all_kinds() {
            long.push(0);
            assert!(matches!(decode(&long), Err(Malformed("bytes behind its end"))));
        }
    }

    #[test]
    fn a_frame_without_keys_has_nothing_else() {
        for conversion in Conversion::ALL {
            let good = encode_interrupted(conversion);
            for at in 10..HEAD_LEN {
                let mut bad = good.clone();
                bad[at] = 1;
                let wanted = HandoverError::Malformed("a reserved field in use");
                assert_eq!(decode(&bad).unwrap_err(), wanted, "{at}");
            }
        }
        let mut unknown = encode_interrupted(Conversion::Rekey);
        unknown[8] = 5;
        assert_eq!(decode(&unknown).unwrap_err(), HandoverError::Malformed("an unknown kind"));
        let good = encode_other_keyring(KeyringId([7; 16]));
        for at in (10..16).chain(32..HEAD_LEN) {
            let mut bad = good.clone();
            bad[at] = 1;
            assert!(matches!(decode(&bad), Err(HandoverError::Malformed(_))), "{at}");
        }
    }
}
