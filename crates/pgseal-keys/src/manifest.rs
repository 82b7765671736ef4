//! The manifest, `DATADIR/pgseal/manifest`: which files a cleanly stopped data directory consists
//! of, and which version of each (`spec/manifest.md`).

use core::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use pgseal_core::random::Random;
use pgseal_core::{Fingerprint, Generation, KeySet};

use crate::envelope::{Envelope, RecordError, bytes, next, sha256};
use crate::labels;

/// The name of the manifest in the directory [`KEYRING_DIR`](crate::KEYRING_DIR) of a data
/// directory.
pub const MANIFEST_FILE: &str = "manifest";
/// The longest manifest, in bytes: more than 10 million files.
pub const MAX_MANIFEST_LEN: usize = 1 << 30;
/// The most versions of `pg_control`: the current one, and the one about to be written.
pub const MAX_CONTROLS: usize = 2;

const MAX_PATH_LEN: usize = 1024;
const MAX_WRITER_LEN: usize = 64;

const ENVELOPE: Envelope = Envelope {
    magic: *b"PGSMANI2",
    kdf_label: labels::KDF_MANIFEST,
    aad_label: labels::AAD_MANIFEST,
    max_len: MAX_MANIFEST_LEN,
};

/// A file, and its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The path relative to the data directory.
    pub path: Box<[u8]>,
    /// Which version of the file.
    pub fingerprint: Fingerprint,
}

/// How a file differs from its line in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The file is shorter than it was.
    Shorter {
        /// Bytes on disk that it had.
        had: u64,
        /// Bytes on disk that it has.
        has: u64,
    },
    /// The file is longer than it was.
    Longer {
        /// Bytes on disk that it had.
        had: u64,
        /// Bytes on disk that it has.
        has: u64,
    },
    /// The file has another identity: it is another file, or was made anew.
    Exchanged,
    /// The same file with other content: an older or a changed copy.
    Changed,
    /// There is no such file.
    Missing,
    /// The relation lacks a later segment.
    SegmentMissing,
    /// The relation has a segment that it did not have.
    SegmentAdded,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Shorter { had, has } => {
                write!(
                    f,
                    "it has {has} bytes and had {had} when the server stopped: cut, or an older copy"
                )
            }
            Difference::Longer { had, has } => {
                write!(
                    f,
                    "it has {has} bytes and had {had} when the server stopped: lengthened, or an older copy"
                )
            }
            Difference::Exchanged => {
                f.write_str("it is another file than the one that the server left here")
            }
            Difference::Changed => f.write_str(
                "it is not the version that the server left here: an older copy, or changed",
            ),
            Difference::Missing => f.write_str("it was removed after the server had stopped"),
            Difference::SegmentMissing => {
                f.write_str("a segment of the relation was removed after the server had stopped")
            }
            Difference::SegmentAdded => {
                f.write_str("a segment was added to the relation after the server had stopped")
            }
        }
    }
}

/// How a file that is `found` differs from the `wanted` one; `None` if it does not.
#[must_use]
pub fn difference(wanted: &Fingerprint, found: &Fingerprint) -> Option<Difference> {
    if wanted == found {
        return None;
    }
    let (had, has) = (wanted.sealed_len.0, found.sealed_len.0);
    Some(if wanted.file_id != found.file_id && found.file_id != [0; 16] {
        Difference::Exchanged
    } else if has < had {
        Difference::Shorter { had, has }
    } else if has > had {
        Difference::Longer { had, has }
    } else {
        Difference::Changed
    })
}

/// The files of a data directory as its last writer left them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Rises by one with each manifest of the cluster.
    pub number: u64,
    /// When it was written, in seconds since 1970.
    pub written: u64,
    /// The program that wrote it.
    pub writer: Box<[u8]>,
    /// Whether the list is whole. A program that changes files of a stopped data directory, as
    /// `pg_upgrade` does, writes a manifest that lists nothing.
    pub is_whole: bool,
    /// SHA-256 of the versions of `global/pg_control` with which the manifest is valid, at most
    /// [`MAX_CONTROLS`].
    pub controls: Vec<[u8; 32]>,
    /// The files, in ascending order of paths.
    pub files: Vec<Listed>,
}

impl Manifest {
    /// The manifest that follows the one with the number `before` (0: there is none), written now.
    /// A longer name of the writer is cut.
    #[must_use]
    pub fn after(
        before: u64,
        writer: &[u8],
        is_whole: bool,
        controls: Vec<[u8; 32]>,
        files: Vec<Listed>,
    ) -> Manifest {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Manifest {
            number: before.saturating_add(1),
            written: now.map_or(0, |since| since.as_secs()),
            writer: writer.get(..MAX_WRITER_LEN).unwrap_or(writer).into(),
            is_whole,
            controls,
            files,
        }
    }

    /// The position of a file in [`Manifest::files`].
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        self.files.binary_search_by(|listed| (*listed.path).cmp(path)).ok()
    }

    /// Whether the manifest is valid with this content of `global/pg_control`.
    #[must_use]
    pub fn fits(&self, control: &[u8]) -> bool {
        self.controls.contains(&control_digest(control))
    }

    /// When it was written, as text (RFC 3339, UTC).
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn date(&self) -> String {
        let seconds = i64::try_from(self.written).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
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
    pub fn open(file: &[u8], keys: &KeySet) -> Result<Manifest, RecordError> {
        Manifest::decode(&ENVELOPE.open(file, keys)?)
    }

    fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let too_large = |_| RecordError::TooLarge;
        let mut body = Vec::new();
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.written.to_le_bytes());
        body.push(u8::from(self.is_whole));
        body.push(u8::try_from(self.controls.len()).map_err(too_large)?);
        body.push(u8::try_from(self.writer.len()).map_err(too_large)?);
        body.push(0);
        body.extend_from_slice(&u32::try_from(self.files.len()).map_err(too_large)?.to_le_bytes());
        body.extend_from_slice(&self.writer);
        for control in &self.controls {
            body.extend_from_slice(control);
        }
        for listed in &self.files {
            body.extend_from_slice(
                &u16::try_from(listed.path.len()).map_err(too_large)?.to_le_bytes(),
            );
            body.extend_from_slice(&listed.path);
            body.extend_from_slice(&listed.fingerprint.encode());
        }
        Ok(body)
    }

    /// Parses the decrypted body.
    ///
    /// # Errors
    /// [`RecordError::Damaged`].
    pub fn decode(body: &[u8]) -> Result<Manifest, RecordError> {
        let damaged = RecordError::Damaged;
        let mut rest = body;
        let number = u64::from_le_bytes(next(&mut rest)?);
        let written = u64::from_le_bytes(next(&mut rest)?);
        let [whole, controls, writer, zero] = next(&mut rest)?;
        let count = u32::from_le_bytes(next(&mut rest)?);
        if whole > 1 || zero != 0 {
            return Err(damaged("an unknown state"));
        }
        if controls == 0 || usize::from(controls) > MAX_CONTROLS {
            return Err(damaged("no version of pg_control, or too many"));
        }
        if usize::from(writer) > MAX_WRITER_LEN {
            return Err(damaged("a long name of a program"));
        }
        let writer = bytes(&mut rest, usize::from(writer))?.into();
        let controls =
            (0..controls).map(|_| next(&mut rest)).collect::<Result<Vec<[u8; 32]>, _>>()?;
        let mut files: Vec<Listed> = Vec::new();
        for _ in 0..count {
            let len = usize::from(u16::from_le_bytes(next(&mut rest)?));
            let path: Box<[u8]> = bytes(&mut rest, len)?.into();
            if !is_path(&path) {
                return Err(damaged("a path that is none"));
            }
            if files.last().is_some_and(|last| last.path >= path) {
                return Err(damaged("paths out of order"));
            }
            let fingerprint = Fingerprint::decode(&next(&mut rest)?);
            files.push(Listed { path, fingerprint });
        }
        if !rest.is_empty() {
            return Err(damaged("bytes behind its end"));
        }
        if whole == 0 && !files.is_empty() {
            return Err(damaged("files in a manifest that is not whole"));
        }
        Ok(Manifest { number, written, writer, is_whole: whole == 1, controls, files })
    }
}

fn is_path(path: &[u8]) -> bool {
    let is_part = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    path.len() <= MAX_PATH_LEN
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(is_part)
}

/// SHA-256 of a content of `global/pg_control`.
#[must_use]
pub fn control_digest(control: &[u8]) -> [u8; 32] {
    sha256(control)
}

/// The generation of the data key that a file says it is encrypted with; not authenticated.
///
/// # Errors
/// [`RecordError::Damaged`].
pub fn generation_of(file: &[u8]) -> Result<Generation, RecordError> {
    ENVELOPE.generation_of(file)
}

#[cfg(test)]
mod tests {
    use pgseal_core::random::LibraryRandom;
    use pgseal_core::{DataKey, KeyringId, SealedLen, Suite};

    use super::*;

    fn keys() -> KeySet {
        let mut keys = KeySet::new(KeyringId([5; 16]), Suite::Aes256Gcm, Generation(2));
        for number in [1, 2] {
            let key = DataKey::init_with(|bytes| {
                bytes.fill(number as u8);
                Ok::<(), ()>(())
            });
            keys.insert(Generation(number), key.unwrap());
        }
        keys
    }

    fn fingerprint(len: u64, id: u8, digest: u8) -> Fingerprint {
        Fingerprint { sealed_len: SealedLen(len), file_id: [id; 16], digest: [digest; 32] }
    }

    fn manifest() -> Manifest {
        let listed = |path: &str, len| Listed {
            path: path.as_bytes().into(),
            fingerprint: fingerprint(len, 1, 2),
        };
        Manifest {
            number: 7,
            written: 1_790_000_000,
            writer: b"postgres"[..].into(),
            is_whole: true,
            controls: vec![control_digest(b"control")],
            files: vec![listed("base/5/16384", 24_576), listed("base/5/16384.1", 8192)],
        }
    }

    #[test]
    fn a_manifest_opens_with_its_keys_only() {
        let (keys, manifest) = (keys(), manifest());
        let file = manifest.seal(&keys, &LibraryRandom::new()).unwrap();
        assert_eq!(Manifest::open(&file, &keys), Ok(manifest.clone()));
        assert_eq!(generation_of(&file), Ok(keys.active()));
        assert!(manifest.fits(b"control") && !manifest.fits(b"Control"));
        assert_eq!((manifest.find(b"base/5/16384.1"), manifest.find(b"base/5/1")), (Some(1), None));
        for at in [0, 9, 24, 30, 40, 44, file.len() / 2, file.len() - 1] {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(Manifest::open(&changed, &keys).is_err(), "byte {at}");
        }
        for len in 0..file.len() {
            assert!(Manifest::open(&file[..len], &keys).is_err(), "{len} bytes");
        }
        let other = KeySet::new(KeyringId([9; 16]), Suite::Aes256Gcm, keys.active());
        let of_another = RecordError::OtherCluster(keys.keyring_id);
        assert_eq!(Manifest::open(&file, &other), Err(of_another));
    }

    /// The format is not changed by accident.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let file = ENVELOPE
            .seal_with_nonce(manifest().encode().unwrap().into(), &keys(), keys().active(), [3; 12])
            .unwrap();
        let digest = control_digest(&file);
        assert_eq!(file.len(), 60 + 24 + 8 + 32 + (2 + 12 + 56) + (2 + 14 + 56));
        assert_eq!(digest[..8], [0xaa, 0x86, 0x84, 0x9f, 0xf1, 0x48, 0x61, 0xc1], "{digest:02x?}");
    }

    #[test]
    fn a_body_that_is_none_is_refused() {
        let body = manifest().encode().unwrap();
        assert_eq!(Manifest::decode(&body), Ok(manifest()));
        let refused = |change: &dyn Fn(&mut Vec<u8>), why: &str| {
            let mut body = body.clone();
            change(&mut body);
            let error = Manifest::decode(&body).unwrap_err();
            assert!(error.to_string().contains(why), "{error}, not {why}");
        };
        refused(&|body| body[16] = 2, "an unknown state");
        refused(&|body| body[16] = 0, "files in a manifest that is not whole");
        refused(&|body| body[17] = 0, "no version of pg_control");
        refused(&|body| body[17] = 3, "no version of pg_control, or too many");
        refused(&|body| body[18] = 65, "a long name");
        refused(&|body| body[19] = 1, "an unknown state");
        refused(&|body| body[20] = 3, "cut short");
        refused(&|body| body[20] = 1, "bytes behind its end");
        refused(&|body| body.push(0), "bytes behind its end");
        refused(&|body| body[66..70].copy_from_slice(b"/ase"), "a path that is none");
        refused(&|body| body[66] = b'z', "paths out of order");
    }

    #[test]
    fn a_difference_is_named() {
        let wanted = fingerprint(20_000, 1, 1);
        assert_eq!(difference(&wanted, &wanted), None);
        for (found, difference_is) in [
            (fingerprint(20_000, 1, 2), Difference::Changed),
            (fingerprint(20_000, 2, 2), Difference::Exchanged),
            (fingerprint(10_000, 1, 2), Difference::Shorter { had: 20_000, has: 10_000 }),
            (fingerprint(0, 0, 2), Difference::Shorter { had: 20_000, has: 0 }),
            (fingerprint(30_000, 1, 2), Difference::Longer { had: 20_000, has: 30_000 }),
        ] {
            assert_eq!(difference(&wanted, &found), Some(difference_is));
        }
    }
}
