//! The configuration record, `DATADIR/pgseal/config`: the configuration files that a locked data
//! directory must have (`spec/config-lock.md`).
//!
//! The record is encrypted with a key derived from a data key. The server has the data keys, so it
//! can update the record when it changes a configuration file itself (ALTER SYSTEM). Nothing in the
//! file is used before it has been authenticated.

use core::fmt;

use pgseal_core::random::Random;
use pgseal_core::{Generation, KeySet};

use crate::envelope::{self, Envelope, bytes, next, sha256, take};
use crate::labels;

pub use crate::envelope::RecordError;

/// The name of the record in the directory [`KEYRING_DIR`](crate::KEYRING_DIR) of a data directory.
pub const CONFIG_RECORD_FILE: &str = "config";

/// The envelope of the record.
const ENVELOPE: Envelope = Envelope {
    magic: *b"PGSCONF1",
    kdf_label: labels::KDF_CONFIG_RECORD,
    aad_label: labels::AAD_CONFIG_RECORD,
    max_len: MAX_RECORD_LEN,
};
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
        Version::Digest(bytes.len() as u64, sha256(bytes))
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
    pub fn seal(&self, keys: &KeySet, random: &dyn Random) -> Result<Vec<u8>, RecordError> {
        ENVELOPE.seal(self.encode()?, keys, random)
    }

    /// Decrypts and parses the bytes of a file.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn open(file: &[u8], keys: &KeySet) -> Result<ConfigRecord, RecordError> {
        ConfigRecord::decode(&ENVELOPE.open(file, keys)?)
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
            Ok(_) if body.len() <= MAX_RECORD_LEN - envelope::OVERHEAD => Ok(body),
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
    ENVELOPE.generation_of(file)
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

#[cfg(test)]
mod tests;
