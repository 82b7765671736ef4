//! The fingerprint of a sealed file: its length, its identity, and a digest that changes with each
//! write to it (`spec/manifest.md`, section 2).
//!
//! The digest covers what is drawn or computed anew with each write: the nonces and tags. Of a
//! relation it reads 4 MiB for each GiB.

use std::io;

use aws_lc_rs::digest::{Context, SHA256};

use crate::geometry::{self, HEAD_LEN, HEADER_LEN, TAG_BLOCK_LEN};
use crate::header::{self, Kind};
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::{SealedLen, SealedOff};

/// Bytes that are read at once.
const CHUNK: usize = 8192;

/// What identifies one version of a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bytes of the file on disk.
    pub sealed_len: SealedLen,
    /// The random identity in the header; zeros if the file has no valid header.
    pub file_id: [u8; 16],
    /// SHA-256 (FIPS 180-4) over the length, the head, and the nonces and tags.
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// Bytes of an encoded fingerprint.
    pub const LEN: usize = 56;

    /// Takes the fingerprint of a file. Needs no key, and authenticates nothing.
    ///
    /// # Errors
    /// Errors of the storage. A file that gets shorter meanwhile is `UnexpectedEof`.
    pub fn of<S: Storage + ?Sized>(storage: &S) -> io::Result<Fingerprint> {
        let sealed_len = storage.len()?;
        let mut context = Context::new(&SHA256);
        context.update(&sealed_len.0.to_le_bytes());
        let mut head = [0; HEAD_LEN as usize];
        let got = storage.read_at(&mut head, SealedOff(0))?;
        let head = head.get(..got).unwrap_or_default();
        let sealed = head.first_chunk().zip(header::classify(head).ok());
        let Some((whole, Kind::Sealed(header))) = sealed else {
            context.update(head);
            return Ok(Fingerprint { sealed_len, file_id: [0; 16], digest: finish(context) });
        };
        // A renewal of the data key leaves the file as it is.
        header::lasting(whole).into_iter().for_each(|part| context.update(part));
        match header.layout {
            Layout::Paged | Layout::Wal => {
                let mut group = 0;
                loop {
                    let start = geometry::tag_block_off(group).0;
                    if start >= sealed_len.0 {
                        break;
                    }
                    let end = sealed_len.0.min(start + TAG_BLOCK_LEN);
                    add(&mut context, storage, start, end)?;
                    group += 1;
                }
            }
            Layout::Stream | Layout::Sectored => {
                add(&mut context, storage, HEADER_LEN, sealed_len.0)?;
            }
            // No nonces and no tags: nothing short of the whole content tells two versions
            // apart.
            Layout::InPlace => {}
        }
        Ok(Fingerprint { sealed_len, file_id: header.file_id, digest: finish(context) })
    }

    /// Whether the file holds no page and no byte of content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sealed_len.0 <= HEADER_LEN
    }

    /// The encoded form: length (8, little-endian), identity, digest.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.sealed_len.0.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.file_id);
        bytes[24..].copy_from_slice(&self.digest);
        bytes
    }

    /// The reverse of [`Fingerprint::encode`].
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LEN]) -> Fingerprint {
        let (mut len, mut file_id, mut digest) = ([0; 8], [0; 16], [0; 32]);
        len.copy_from_slice(&bytes[..8]);
        file_id.copy_from_slice(&bytes[8..24]);
        digest.copy_from_slice(&bytes[24..]);
        Fingerprint { sealed_len: SealedLen(u64::from_le_bytes(len)), file_id, digest }
    }
}

fn finish(context: Context) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Adds the bytes of a range to the digest.
fn add<S: Storage + ?Sized>(
    context: &mut Context,
    storage: &S,
    start: u64,
    end: u64,
) -> io::Result<()> {
    let mut buf = [0; CHUNK];
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let part = &mut buf[..want];
        if storage.read_at(part, SealedOff(at))? < want {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        context.update(part);
        at += want as u64;
    }
    Ok(())
}
