//! The header of a sealed file (`spec/sealed-file.md`, section 3).
//!
//! All fields lie in the first 512 bytes, the head, so that a disk that writes sectors atomically
//! holds either all fields or none. The rest of the header is padding: zeros that no reader looks
//! at.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};

use crate::error::{HeaderFault, SealError};
use crate::geometry::{HEAD_LEN, HEADER_LEN};
use crate::keyset::{Generation, KeySet, KeyringId};
use crate::memory::KeyBytes;
use crate::place::Place;
use crate::random::Random;
use crate::suite::{Layout, Suite};

/// The first eight bytes of every sealed file.
pub const MAGIC: [u8; 8] = *b"\x89PGSEAL\n";
/// The format version that this crate writes.
pub const FORMAT_VERSION: u16 = 2;
/// Bytes of file key material in every header; a suite uses the first [`Suite::key_len`] of these
/// bytes.
pub const FILE_KEY_LEN: usize = 64;

const LEN: usize = HEAD_LEN as usize;
const GENERATION_AT: usize = 48;
const PLACE_AT: usize = 64;
const PLACE_END: usize = PLACE_AT + 2 + Place::MAX_LEN;
/// The bytes before the wrap nonce, which are authenticated with the file key.
const AAD_LEN: usize = 420;
const NONCE_AT: usize = AAD_LEN;
const WRAPPED_AT: usize = 432;
const TAG_AT: usize = 496;

/// The random identity of a sealed file.
pub type FileId = [u8; 16];

/// The random key material of one file.
pub type FileKey = KeyBytes<FILE_KEY_LEN>;

/// The properties of a new file, apart from its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The cipher of the blocks.
    pub suite: Suite,
    /// How the blocks lie.
    pub layout: Layout,
    /// Which file of the cluster it is.
    pub place: Place,
}

impl Form {
    /// A file that is bound to no place.
    #[must_use]
    pub fn anywhere(suite: Suite, layout: Layout) -> Form {
        Form { suite, layout, place: Place::ANY }
    }
}

/// The fields of a header that are not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cipher of the blocks.
    pub suite: Suite,
    /// How the blocks lie.
    pub layout: Layout,
    /// Which file of the cluster it is.
    pub place: Place,
    /// The identity of the file, bound into every authenticated block.
    pub file_id: FileId,
    /// The keyring that holds the data key.
    pub keyring_id: KeyringId,
    /// The generation of the data key.
    pub generation: Generation,
}

impl Header {
    /// The form with which a new file like this one is created.
    #[must_use]
    pub fn form(&self) -> Form {
        let Header { suite, layout, place, .. } = *self;
        Form { suite, layout, place }
    }
}

/// What the first bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sealed file.
    Sealed(Header),
    /// A file without a header, usually because the header never reached the disk: a head of zeros,
    /// or a file shorter than a head that is all zeros or begins with [`MAGIC`].
    NoHeader,
    /// Something else: a plain file.
    Plain,
}

/// Looks at the first bytes of a file without any key. `start` holds the first [`HEAD_LEN`] bytes,
/// or the whole file if it is shorter.
pub fn classify(start: &[u8]) -> Result<Kind, SealError> {
    if start.len() < LEN {
        let no_header = start.starts_with(&MAGIC) || start.iter().all(|byte| *byte == 0);
        return Ok(if no_header { Kind::NoHeader } else { Kind::Plain });
    }
    if !start.starts_with(&MAGIC) {
        let no_header = start.iter().take(LEN).all(|byte| *byte == 0);
        return Ok(if no_header { Kind::NoHeader } else { Kind::Plain });
    }
    let version = u16_at(start, 8);
    if version != FORMAT_VERSION {
        return Err(SealError::Header(HeaderFault::UnknownVersion(version)));
    }
    let (suite_id, layout_id) = (u16_at(start, 10), u16_at(start, 12));
    let unknown =
        SealError::Header(HeaderFault::UnknownSuite { suite: suite_id, layout: layout_id });
    let (Some(suite), Some(layout)) = (Suite::from_id(suite_id), Layout::from_id(layout_id)) else {
        return Err(unknown);
    };
    if !layout.carries(suite) {
        return Err(unknown);
    }
    let reserved = [&start[14..16], &start[52..PLACE_AT], &start[PLACE_END..AAD_LEN]];
    if reserved.into_iter().flatten().any(|byte| *byte != 0) {
        return Err(SealError::Header(HeaderFault::ReservedNotZero));
    }
    let place = Place::decode(&start[PLACE_AT..PLACE_END])
        .ok_or(SealError::Header(HeaderFault::BadPlace))?;
    Ok(Kind::Sealed(Header {
        suite,
        layout,
        place,
        file_id: array_at(start, 16),
        keyring_id: KeyringId(array_at(start, 32)),
        generation: Generation(u32::from_le_bytes(array_at(start, GENERATION_AT))),
    }))
}

/// Makes the header of a new file with a fresh file id and file key.
pub(crate) fn create(
    form: &Form,
    keys: &KeySet,
    generation: Generation,
    random: &dyn Random,
) -> Result<(Header, FileKey, [u8; HEADER_LEN as usize]), SealError> {
    let Form { suite, layout, place } = *form;
    let keyring_id = keys.keyring_id;
    let wrapping_key = wrapping_key(keys, generation)?;
    let mut file_id = [0; 16];
    random.fill(&mut file_id)?;
    let mut file_key = FileKey::zeros()?;
    random.fill(file_key.as_mut_slice())?;
    let header = Header { suite, layout, place, file_id, keyring_id, generation };

    let mut bytes = [0_u8; HEADER_LEN as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&suite.id().to_le_bytes());
    bytes[12..14].copy_from_slice(&layout.id().to_le_bytes());
    bytes[16..32].copy_from_slice(&file_id);
    bytes[32..48].copy_from_slice(&keyring_id.0);
    bytes[GENERATION_AT..GENERATION_AT + 4].copy_from_slice(&generation.0.to_le_bytes());
    place.encode(&mut bytes[PLACE_AT..PLACE_END]);
    wrap_key(&mut bytes, wrapping_key, &file_key, random)?;
    Ok((header, file_key, bytes))
}

fn wrapping_key(keys: &KeySet, generation: Generation) -> Result<&LessSafeKey, SealError> {
    let unknown = SealError::KeyUnknown { keyring_id: keys.keyring_id, generation };
    keys.wrapping_key(generation).ok_or(unknown)
}

/// Writes a random nonce, the wrapped file key and the tag behind the other fields of a head.
fn wrap_key(
    bytes: &mut [u8],
    wrapping_key: &LessSafeKey,
    file_key: &FileKey,
    random: &dyn Random,
) -> Result<(), SealError> {
    let mut nonce = [0; 12];
    random.fill(&mut nonce)?;
    bytes[NONCE_AT..WRAPPED_AT].copy_from_slice(&nonce);
    let (aad, rest) = bytes.split_at_mut(AAD_LEN);
    let body = &mut rest[WRAPPED_AT - AAD_LEN..TAG_AT - AAD_LEN];
    body.copy_from_slice(file_key.as_slice());
    let tag = wrapping_key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), body)
        .map_err(|_| SealError::Cipher("file key not wrapped"))?;
    bytes[TAG_AT..LEN].copy_from_slice(tag.as_ref());
    Ok(())
}

/// The head of the same file with its file key wrapped under the active generation of `keys`: file
/// key, identity, form and place stay. `start` is the head that [`classify`] called sealed, with
/// this header.
///
/// # Errors
/// As for opening the file; the keys need its generation and the active one.
pub fn rewrap(
    start: &[u8],
    header: &Header,
    keys: &KeySet,
    random: &dyn Random,
) -> Result<[u8; LEN], SealError> {
    let file_key = unwrap_key(start, header, keys)?;
    let generation = keys.active();
    let wrapping_key = wrapping_key(keys, generation)?;
    let mut head = [0; LEN];
    head.copy_from_slice(&start[..LEN]);
    head[GENERATION_AT..GENERATION_AT + 4].copy_from_slice(&generation.0.to_le_bytes());
    wrap_key(&mut head, wrapping_key, &file_key, random)?;
    Ok(head)
}

/// The bytes of a sealed head that stay when the file key is wrapped anew ([`rewrap`]).
#[must_use]
pub fn lasting(head: &[u8; LEN]) -> [&[u8]; 2] {
    [&head[..GENERATION_AT], &head[GENERATION_AT + 4..AAD_LEN]]
}

/// Unwraps the file key of a header that [`classify`] called sealed. Public also for tests of other
/// crates, which search the memory of a server for the key.
pub fn unwrap_key(start: &[u8], header: &Header, keys: &KeySet) -> Result<FileKey, SealError> {
    let Header { keyring_id, generation, .. } = *header;
    if keys.keyring_id != keyring_id {
        return Err(SealError::KeyUnknown { keyring_id, generation });
    }
    let wrapping_key = wrapping_key(keys, generation)?;
    let damaged = || SealError::Header(HeaderFault::NotAuthentic);
    if start.len() < LEN {
        return Err(damaged());
    }
    let mut file_key = FileKey::zeros()?;
    wrapping_key
        .open_separate_gather(
            Nonce::assume_unique_for_key(array_at(start, NONCE_AT)),
            Aad::from(&start[..AAD_LEN]),
            &start[WRAPPED_AT..TAG_AT],
            &start[TAG_AT..LEN],
            file_key.as_mut_slice(),
        )
        .map_err(|_| damaged())?;
    Ok(file_key)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyset::DataKey;
    use crate::random::LibraryRandom;
    use crate::testing::keys;

    #[test]
    fn a_header_survives_and_names_itself() {
        let keys = keys();
        let random = LibraryRandom::new();
        let place = Place::of(b"base/5/16384").unwrap();
        let form = Form { suite: Suite::Aes256Gcm, layout: Layout::Paged, place };
        let (header, key, bytes) = create(&form, &keys, keys.active(), &random).unwrap();
        assert_eq!(header.place, place);
        assert_eq!(classify(&bytes[..]).unwrap(), Kind::Sealed(header));
        assert_eq!(unwrap_key(&bytes[..], &header, &keys).unwrap()[..], key[..]);
    }

    #[test]
    fn a_head_is_wrapped_anew_with_the_same_key() {
        let keys = keys();
        let random = LibraryRandom::new();
        let place = Place::of(b"base/5/16384").unwrap();
        let form = Form { suite: Suite::Aes256Gcm, layout: Layout::Paged, place };
        let (header, key, bytes) = create(&form, &keys, keys.active(), &random).unwrap();
        let next = Generation(keys.active().0 + 1);
        assert!(keys.adopt(next, DataKey::init_with(|key| random.fill(key)).unwrap()));
        let head = rewrap(&bytes, &header, &keys, &random).unwrap();
        let Kind::Sealed(renewed) = classify(&head).unwrap() else { panic!("not sealed") };
        assert_eq!(renewed, Header { generation: next, ..header });
        assert_eq!(unwrap_key(&head, &renewed, &keys).unwrap()[..], key[..]);
        assert_eq!(lasting(&head), lasting(bytes.first_chunk().unwrap()));
        assert!(unwrap_key(&bytes, &renewed, &keys).is_err(), "the generation is authenticated");
        // A damaged head stays one.
        let mut damaged = bytes;
        damaged[440] ^= 1;
        assert!(rewrap(&damaged, &header, &keys, &random).is_err());
    }

    /// Every bit of the header matters: none can be flipped without an error or another verdict.
    #[test]
    fn no_bit_can_be_flipped() {
        let keys = keys();
        let random = LibraryRandom::new();
        let place = Place::of(b"pg_xact/0000").unwrap();
        let form = Form { suite: Suite::Aes256Xts, layout: Layout::InPlace, place };
        let (_, key, mut bytes) = create(&form, &keys, keys.active(), &random).unwrap();
        for bit in 0..LEN * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let accepted = match classify(&bytes[..]) {
                Ok(Kind::Sealed(header)) => unwrap_key(&bytes[..], &header, &keys).is_ok(),
                Ok(Kind::Plain | Kind::NoHeader) | Err(_) => false,
            };
            assert!(!accepted, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let Kind::Sealed(header) = classify(&bytes[..]).unwrap() else { panic!("not sealed") };
        assert_eq!(unwrap_key(&bytes[..], &header, &keys).unwrap()[..], key[..]);
    }

    #[test]
    fn what_never_reached_the_disk_is_an_empty_file() {
        assert_eq!(classify(&[]).unwrap(), Kind::NoHeader);
        assert_eq!(classify(&[0; 100]).unwrap(), Kind::NoHeader);
        assert_eq!(classify(&[0; LEN]).unwrap(), Kind::NoHeader);
        assert_eq!(classify(&MAGIC).unwrap(), Kind::NoHeader);
        assert_eq!(classify(b"PostgreSQL").unwrap(), Kind::Plain);
        assert_eq!(classify(&[1; LEN]).unwrap(), Kind::Plain);
    }
}
