//! The configuration record, `DATADIR/pgseal/config`: the configuration files that a locked data
//! directory must have (`spec/config-lock.md`).
//!
//! The record is encrypted with a key derived from a data key. The server has the data keys, so it
//! can update the record when it changes a configuration file itself (ALTER SYSTEM). Nothing in the
//! file is used before it has been authenticated.

use core::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, hkdf, rand};
use pgseal_core::{Generation, KeySet, KeyringId};
use zeroize::Zeroizing;

use crate::labels;

/// The name of the record in the directory [`KEYRING_DIR`](crate::KEYRING_DIR) of a data directory.
pub const CONFIG_RECORD_FILE: &str = "config";

const MAGIC: [u8; 8] = *b"PGSCONF1";
/// magic 8, keyring id 16, generation 4, zeros 4, nonce 12
const HEAD_LEN: usize = 44;
const TAG_LEN: usize = 16;
/// sequence 8, state 1, zeros 3, count 4
const BODY_HEAD_LEN: usize = 16;

/// The longest file, in bytes.
pub const MAX_RECORD_LEN: usize = 16 << 20;
/// The most entries.
pub const MAX_ENTRIES: usize = 4096;
/// The longest file whose content is recorded instead of its digest, in bytes.
pub const MAX_KEPT_LEN: usize = 1 << 20;
const MAX_NAME_LEN: usize = 1024;
/// The most versions of a file: the current one, and the one that the server is about to write.
pub const MAX_VERSIONS: usize = 2;

/// What may be found at a path of the data directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Version {
    /// No file.
    Absent,
    /// A file with this content.
    Content(Vec<u8>),
    /// A file with this length and SHA-256: for private keys and for long files.
    Digest(u64, [u8; 32]),
    /// A directory whose `*.conf` files the server reads. Only those that the record names may be
    /// in it.
    Directory,
}

impl fmt::Debug for Version {
    /// Shows only the length of a content, because configuration may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Absent => f.write_str("Absent"),
            Version::Content(bytes) => write!(f, "Content({} bytes)", bytes.len()),
            Version::Digest(len, _) => write!(f, "Digest({len} bytes)"),
            Version::Directory => f.write_str("Directory"),
        }
    }
}

impl Version {
    /// The version of a file with these bytes, recorded as a digest.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> Version {
        let mut sum = [0; 32];
        for (to, from) in sum.iter_mut().zip(digest::digest(&digest::SHA256, bytes).as_ref().iter())
        {
            *to = *from;
        }
        Version::Digest(bytes.len() as u64, sum)
    }

    /// Whether a path matches this version. `found` is the content of the file there; `None` if
    /// there is no file.
    #[must_use]
    pub fn is(&self, found: Option<&[u8]>) -> bool {
        match (self, found) {
            (Version::Absent, None) => true,
            (Version::Content(kept), Some(found)) => kept == found,
            (Version::Digest(len, _), Some(found)) => {
                *len == found.len() as u64 && *self == Version::digest_of(found)
            }
            _ => false,
        }
    }
}

/// A path, and what may be found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the data directory, without `.`, `..` and doubled slashes.
    pub name: Vec<u8>,
    /// One version, or two while the server is changing the file.
    pub versions: Vec<Version>,
}

impl Entry {
    /// Whether the path matches one of the versions, see [`Version::is`].
    #[must_use]
    pub fn allows(&self, found: Option<&[u8]>) -> bool {
        self.versions.iter().any(|version| version.is(found))
    }

    /// Whether the path is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.versions.contains(&Version::Directory)
    }
}

/// The configuration of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRecord {
    /// Rises with each change. A record whose number is lower than one seen before is a rolled-back
    /// older copy.
    pub sequence: u64,
    /// Whether the configuration is locked. Unlocking keeps the record and clears this flag,
    /// because a missing record proves nothing: an attacker could have removed it.
    pub locked: bool,
    /// The entries, in ascending order of names.
    pub entries: Vec<Entry>,
}

/// Why a record cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are not a record, or are truncated.
    Damaged(&'static str),
    /// The record is that of the cluster with this keyring.
    OtherCluster(KeyringId),
    /// The keyring does not have the data key that the record is encrypted with.
    KeyUnknown(Generation),
    /// The record does not authenticate.
    NotAuthentic,
    /// The configuration is too large for a record.
    TooLarge,
    /// A cryptographic primitive failed.
    Internal,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Damaged(what) => write!(f, "it is damaged ({what})"),
            RecordError::OtherCluster(id) => write!(f, "it is that of another cluster ({id})"),
            RecordError::KeyUnknown(generation) => {
                write!(f, "the keyring has no data key {generation}, with which it is sealed")
            }
            RecordError::NotAuthentic => {
                f.write_str("it does not authenticate: somebody changed it")
            }
            RecordError::TooLarge => f.write_str("there is more configuration than it can hold"),
            RecordError::Internal => f.write_str("a cryptographic primitive failed"),
        }
    }
}

impl std::error::Error for RecordError {}

impl ConfigRecord {
    /// The entry of a path.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        at.ok().and_then(|at| self.entries.get(at))
    }

    /// Sets what may be at a path.
    pub fn set(&mut self, name: &[u8], versions: Vec<Version>) {
        match self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.versions = versions;
                }
            }
            Err(at) => self.entries.insert(at, Entry { name: name.to_vec(), versions }),
        }
    }

    /// The bytes of the file, encrypted with a key derived from the active data key.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`], [`RecordError::Internal`].
    pub fn seal(&self, keys: &KeySet) -> Result<Vec<u8>, RecordError> {
        let mut nonce = [0; 12];
        rand::fill(&mut nonce).map_err(|_| RecordError::Internal)?;
        self.seal_with_nonce(keys, nonce)
    }

    fn seal_with_nonce(&self, keys: &KeySet, nonce: [u8; 12]) -> Result<Vec<u8>, RecordError> {
        let key = record_key(keys, keys.active)?;
        let mut file = Vec::new();
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&keys.keyring_id.0);
        file.extend_from_slice(&keys.active.0.to_le_bytes());
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(&nonce);
        let mut body = self.encode()?;
        let aad = aad(file.get(..HEAD_LEN - nonce.len()).unwrap_or_default());
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(aad),
                &mut body,
            )
            .map_err(|_| RecordError::Internal)?;
        file.extend_from_slice(&body);
        file.extend_from_slice(tag.as_ref());
        if file.len() > MAX_RECORD_LEN { Err(RecordError::TooLarge) } else { Ok(file) }
    }

    /// Decrypts and parses the bytes of a file.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn open(file: &[u8], keys: &KeySet) -> Result<ConfigRecord, RecordError> {
        let damaged = RecordError::Damaged;
        let generation = generation_of(file)?;
        let (head, rest) = file.split_at_checked(HEAD_LEN).ok_or(damaged("cut short"))?;
        let id: [u8; 16] = take(head.get(8..).unwrap_or_default())?.0;
        if id != keys.keyring_id.0 {
            return Err(RecordError::OtherCluster(KeyringId(id)));
        }
        let key = record_key(keys, generation)?;
        let (clear, nonce) = head.split_at_checked(HEAD_LEN - 12).ok_or(damaged("cut short"))?;
        let (nonce, _) = take::<12>(nonce)?;
        let end = rest.len().checked_sub(TAG_LEN).ok_or(damaged("cut short"))?;
        let (sealed, tag) = rest.split_at_checked(end).ok_or(damaged("cut short"))?;
        let mut body = Zeroizing::new(vec![0; sealed.len()]);
        key.open_separate_gather(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(aad(clear)),
            sealed,
            tag,
            &mut body,
        )
        .map_err(|_| RecordError::NotAuthentic)?;
        ConfigRecord::decode(&body)
    }

    fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.sequence.to_le_bytes());
        body.extend_from_slice(&[u8::from(self.locked), 0, 0, 0]);
        let count = u32::try_from(self.entries.len()).map_err(|_| RecordError::TooLarge)?;
        body.extend_from_slice(&count.to_le_bytes());
        for entry in &self.entries {
            let len = u16::try_from(entry.name.len()).map_err(|_| RecordError::TooLarge)?;
            body.extend_from_slice(&len.to_le_bytes());
            body.extend_from_slice(&entry.name);
            let count = u8::try_from(entry.versions.len()).map_err(|_| RecordError::TooLarge)?;
            body.push(count);
            for version in &entry.versions {
                match version {
                    Version::Absent => body.push(0),
                    Version::Content(bytes) => {
                        body.push(1);
                        let len = u32::try_from(bytes.len()).map_err(|_| RecordError::TooLarge)?;
                        body.extend_from_slice(&len.to_le_bytes());
                        body.extend_from_slice(bytes);
                    }
                    Version::Digest(len, sum) => {
                        body.push(2);
                        body.extend_from_slice(&len.to_le_bytes());
                        body.extend_from_slice(sum);
                    }
                    Version::Directory => body.push(3),
                }
            }
        }
        // A record that `decode` would refuse is not written.
        match ConfigRecord::decode(&body) {
            Ok(_) if body.len() <= MAX_RECORD_LEN - HEAD_LEN - TAG_LEN => Ok(body),
            _ => Err(RecordError::TooLarge),
        }
    }

    /// Parses the decrypted body.
    ///
    /// # Errors
    /// [`RecordError::Damaged`].
    pub fn decode(body: &[u8]) -> Result<ConfigRecord, RecordError> {
        let damaged = RecordError::Damaged;
        let (head, mut rest) = body.split_at_checked(BODY_HEAD_LEN).ok_or(damaged("cut short"))?;
        let (sequence, head) = take(head)?;
        let (state, count) = take::<4>(head)?;
        let locked = match state {
            [0, 0, 0, 0] => false,
            [1, 0, 0, 0] => true,
            _ => return Err(damaged("an unknown state")),
        };
        let count = usize::try_from(u32::from_le_bytes(take(count)?.0)).unwrap_or(usize::MAX);
        if count > MAX_ENTRIES {
            return Err(damaged("too many entries"));
        }
        let sequence = u64::from_le_bytes(sequence);
        if sequence == 0 {
            return Err(damaged("no sequence number"));
        }
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..count {
            let entry = entry(&mut rest)?;
            if entries.last().is_some_and(|last| last.name >= entry.name) {
                return Err(damaged("names out of order"));
            }
            entries.push(entry);
        }
        if !rest.is_empty() {
            return Err(damaged("bytes behind its end"));
        }
        Ok(ConfigRecord { sequence, locked, entries })
    }
}

/// The generation of the data key that a file says it is encrypted with; not authenticated.
///
/// # Errors
/// [`RecordError::Damaged`].
pub fn generation_of(file: &[u8]) -> Result<Generation, RecordError> {
    if file.len() > MAX_RECORD_LEN {
        return Err(RecordError::Damaged("longer than 16 MiB"));
    }
    let (magic, rest) = take::<8>(file)?;
    if magic != MAGIC {
        return Err(RecordError::Damaged("not a record"));
    }
    let (_, rest) = take::<16>(rest)?;
    let (generation, rest) = take(rest)?;
    if take::<4>(rest)?.0 != [0; 4] {
        return Err(RecordError::Damaged("a reserved field in use"));
    }
    Ok(Generation(u32::from_le_bytes(generation)))
}

/// Whether an entry can have this name.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let is_part = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    name.len() <= MAX_NAME_LEN
        && !name.contains(&0)
        && name.split(|byte| *byte == b'/').all(is_part)
        && !name.starts_with(b"pgseal/")
}

fn entry(rest: &mut &[u8]) -> Result<Entry, RecordError> {
    let damaged = RecordError::Damaged;
    let len = usize::from(u16::from_le_bytes(next(rest)?));
    let name = bytes(rest, len)?.to_vec();
    if !is_name(&name) {
        return Err(damaged("a name that is none"));
    }
    let [count] = next(rest)?;
    if count == 0 || usize::from(count) > MAX_VERSIONS {
        return Err(damaged("no version, or too many"));
    }
    let mut versions = Vec::new();
    for _ in 0..count {
        let [kind] = next(rest)?;
        versions.push(match kind {
            0 => Version::Absent,
            1 => {
                let len = usize::try_from(u32::from_le_bytes(next(rest)?)).unwrap_or(usize::MAX);
                if len > MAX_KEPT_LEN {
                    return Err(damaged("a file that is too long"));
                }
                Version::Content(bytes(rest, len)?.to_vec())
            }
            2 => Version::Digest(u64::from_le_bytes(next(rest)?), next(rest)?),
            3 => Version::Directory,
            _ => return Err(damaged("an unknown kind of version")),
        });
    }
    let directories = versions.iter().filter(|version| **version == Version::Directory).count();
    if directories > 0 && versions.len() > 1 {
        return Err(damaged("a directory that may be something else"));
    }
    Ok(Entry { name, versions })
}

fn bytes<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], RecordError> {
    let (found, behind) = rest.split_at_checked(len).ok_or(RecordError::Damaged("cut short"))?;
    *rest = behind;
    Ok(found)
}

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), RecordError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(RecordError::Damaged("cut short"))?;
    Ok((*head, rest))
}

fn next<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (head, behind) = take::<N>(rest)?;
    *rest = behind;
    Ok(head)
}

/// The associated data: the label, and the head of the file without the nonce.
fn aad(head: &[u8]) -> Vec<u8> {
    [labels::AAD_CONFIG_RECORD.as_bytes(), head].concat()
}

struct Len32;

impl hkdf::KeyType for Len32 {
    fn len(&self) -> usize {
        32
    }
}

/// The key of the record: HKDF-SHA-256 of a data key, with the keyring id as salt.
fn record_key(keys: &KeySet, generation: Generation) -> Result<LessSafeKey, RecordError> {
    let data_key = keys.get(generation).filter(|_| !generation.is_ephemeral());
    let data_key = data_key.ok_or(RecordError::KeyUnknown(generation))?;
    let mut key = Zeroizing::new([0; 32]);
    hkdf::Salt::new(hkdf::HKDF_SHA256, &keys.keyring_id.0)
        .extract(data_key.bytes())
        .expand(&[labels::KDF_CONFIG_RECORD.as_bytes()], Len32)
        .and_then(|okm| okm.fill(&mut key[..]))
        .map_err(|_| RecordError::Internal)?;
    UnboundKey::new(&AES_256_GCM, &key[..]).map(LessSafeKey::new).map_err(|_| RecordError::Internal)
}

#[cfg(test)]
mod tests;
