//! The envelope of the small files of pgseal that a server itself writes: the configuration record
//! and the manifest (`spec/config-lock.md`, section 2; `spec/manifest.md`, section 3).
//!
//! The content is encrypted with a key derived from a data key. The server has the data keys, so it
//! can write such files. Nothing in a file is used before the file has been authenticated.

use core::fmt;

use aws_lc_rs::{digest, hkdf};
use pgseal_core::random::{Random, RandomFailed};
use pgseal_core::{Generation, KeySet, KeyringId};
use pgseal_crypto::Gcm;
use zeroize::Zeroizing;

/// magic 8, keyring id 16, generation 4, zeros 4, nonce 12
const HEAD_LEN: usize = 44;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
/// Bytes that an envelope adds to its body.
pub(crate) const OVERHEAD: usize = HEAD_LEN + TAG_LEN;

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
    /// There is more to record than a record can hold.
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
            RecordError::TooLarge => f.write_str("there is more to record than it can hold"),
            RecordError::Internal => f.write_str("a cryptographic primitive failed"),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<RandomFailed> for RecordError {
    fn from(_: RandomFailed) -> RecordError {
        RecordError::Internal
    }
}

/// One kind of file.
pub(crate) struct Envelope {
    /// The first bytes of the file.
    pub magic: [u8; 8],
    /// The label that derives the key of the file from a data key.
    pub kdf_label: &'static str,
    /// The label in the associated data.
    pub aad_label: &'static str,
    /// The longest file, in bytes.
    pub max_len: usize,
}

impl Envelope {
    /// The bytes of a file with this body, encrypted with a key derived from the active data key,
    /// under a random nonce.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`], [`RecordError::Internal`].
    pub fn seal(
        &self,
        body: Vec<u8>,
        keys: &KeySet,
        random: &dyn Random,
    ) -> Result<Vec<u8>, RecordError> {
        self.seal_under(body, keys, keys.active(), random)
    }

    /// As [`Envelope::seal`], with a key derived from the data key of this generation.
    ///
    /// # Errors
    /// As [`Envelope::seal`]; [`RecordError::KeyUnknown`].
    pub fn seal_under(
        &self,
        body: Vec<u8>,
        keys: &KeySet,
        generation: Generation,
        random: &dyn Random,
    ) -> Result<Vec<u8>, RecordError> {
        let mut nonce = [0; NONCE_LEN];
        random.fill(&mut nonce)?;
        self.seal_with_nonce(Zeroizing::new(body), keys, generation, nonce)
    }

    pub fn seal_with_nonce(
        &self,
        mut body: Zeroizing<Vec<u8>>,
        keys: &KeySet,
        generation: Generation,
        mut nonce: [u8; NONCE_LEN],
    ) -> Result<Vec<u8>, RecordError> {
        if body.len() > self.max_len - OVERHEAD {
            return Err(RecordError::TooLarge);
        }
        let key = self.key(keys, generation)?;
        let mut file = Vec::with_capacity(body.len() + OVERHEAD);
        file.extend_from_slice(&self.magic);
        file.extend_from_slice(&keys.keyring_id.0);
        file.extend_from_slice(&generation.0.to_le_bytes());
        file.extend_from_slice(&[0; 4]);
        let aad = self.aad(&file);
        let tag = key.seal(&mut nonce, &aad, &mut body[..]).map_err(|_| RecordError::Internal)?;
        file.extend_from_slice(&nonce);
        file.extend_from_slice(&body);
        file.extend_from_slice(&tag);
        Ok(file)
    }

    /// The decrypted body of a file.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn open(&self, file: &[u8], keys: &KeySet) -> Result<Zeroizing<Vec<u8>>, RecordError> {
        let damaged = RecordError::Damaged;
        let generation = self.generation_of(file)?;
        let (head, rest) = file.split_at_checked(HEAD_LEN).ok_or(damaged("cut short"))?;
        let id: [u8; 16] = take(head.get(8..).unwrap_or_default())?.0;
        if id != keys.keyring_id.0 {
            return Err(RecordError::OtherCluster(KeyringId(id)));
        }
        let key = self.key(keys, generation)?;
        let (clear, nonce) =
            head.split_at_checked(HEAD_LEN - NONCE_LEN).ok_or(damaged("cut short"))?;
        let (nonce, _) = take::<NONCE_LEN>(nonce)?;
        let end = rest.len().checked_sub(TAG_LEN).ok_or(damaged("cut short"))?;
        let (sealed, tag) = rest.split_at_checked(end).ok_or(damaged("cut short"))?;
        let mut body = Zeroizing::new(vec![0; sealed.len()]);
        key.open_between(&nonce, &self.aad(clear), (sealed, tag), &mut body)
            .map_err(|_| RecordError::NotAuthentic)?;
        Ok(body)
    }

    /// The generation of the data key that a file says it is encrypted with; not authenticated.
    ///
    /// # Errors
    /// [`RecordError::Damaged`].
    pub fn generation_of(&self, file: &[u8]) -> Result<Generation, RecordError> {
        if file.len() > self.max_len {
            return Err(RecordError::Damaged("longer than any record"));
        }
        let (magic, rest) = take::<8>(file)?;
        if magic != self.magic {
            return Err(RecordError::Damaged("not a record"));
        }
        let (_, rest) = take::<16>(rest)?;
        let (generation, rest) = take(rest)?;
        if take::<4>(rest)?.0 != [0; 4] {
            return Err(RecordError::Damaged("a reserved field in use"));
        }
        Ok(Generation(u32::from_le_bytes(generation)))
    }

    /// The associated data: the label, and the head of the file without the nonce.
    fn aad(&self, head: &[u8]) -> Vec<u8> {
        [self.aad_label.as_bytes(), head].concat()
    }

    /// The key of the file; its salt is the keyring's id.
    fn key(&self, keys: &KeySet, generation: Generation) -> Result<Gcm, RecordError> {
        file_key(keys, generation, &keys.keyring_id.0, self.kdf_label)
    }
}

/// The AES-256-GCM key of a file: HKDF-SHA-256 (RFC 5869) of a data key.
pub(crate) fn file_key(
    keys: &KeySet,
    generation: Generation,
    salt: &[u8],
    label: &str,
) -> Result<Gcm, RecordError> {
    let data_key = keys.get(generation).filter(|_| !generation.is_ephemeral());
    let data_key = data_key.ok_or(RecordError::KeyUnknown(generation))?;
    let mut key = Zeroizing::new([0; 32]);
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(data_key.bytes())
        .expand(&[label.as_bytes()], Len32)
        .and_then(|okm| okm.fill(&mut key[..]))
        .map_err(|_| RecordError::Internal)?;
    Gcm::new(&key[..]).map_err(|_| RecordError::Internal)
}

/// The length of an AES-256 key, for HKDF.
struct Len32;

impl hkdf::KeyType for Len32 {
    fn len(&self) -> usize {
        32
    }
}

/// SHA-256 (FIPS 180-4).
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    sum
}

/// Splits off bytes of a known count, as a parser goes on.
pub(crate) fn bytes<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], RecordError> {
    let (found, behind) = rest.split_at_checked(len).ok_or(RecordError::Damaged("cut short"))?;
    *rest = behind;
    Ok(found)
}

/// The first `N` bytes, and the rest.
pub(crate) fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), RecordError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(RecordError::Damaged("cut short"))?;
    Ok((*head, rest))
}

/// Splits off `N` bytes, as a parser goes on.
pub(crate) fn next<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (head, behind) = take::<N>(rest)?;
    *rest = behind;
    Ok(head)
}
