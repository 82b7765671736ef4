//! The header of a sealed file (`spec/sealed-file.md`, section 3).
//!
//! All fields lie in the first 512 bytes, the head, so that a disk that writes sectors atomically
//! holds either all fields or none. The rest of the header is padding: zeros that no reader looks
//! at.

use pgseal_crypto::Gcm;

use crate::error::{HeaderFault, SealError};
use crate::geometry::{HEAD_LEN, HEADER_LEN};
use crate::keyset::{Generation, KeySet, KeyringId};
use crate::memory::KeyBytes;
use crate::place::Place;
use crate::random::Random;
use crate::suite::{Layout, Suite};
use crate::usage;

/// The first eight bytes of every sealed file.
pub const MAGIC: [u8; 8] = *b"\x89PGSEAL\n";
/// The format version that this crate writes.
pub const FORMAT_VERSION: u16 = 2;
/// Bytes of file key material in every header; a suite uses the first [`Suite::key_len`] of these
/// bytes.
pub const FILE_KEY_LEN: usize = 64;

const LEN: usize = HEAD_LEN as usize;
const GENERATION_AT: usize = 48;
const PREDECESSORS_AT: usize = 52;
const STAGE_AT: usize = 56;
const SAMPLES_AT: usize = 60;
/// The file key before the present one: nonce, wrapped key, tag.
const OLDER_NONCE_AT: usize = 192;
const OLDER_WRAPPED_AT: usize = 204;
const OLDER_TAG_AT: usize = 268;
const OLDER_END: usize = 284;
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

/// How far a file is on its way to another file key (`spec/sealed-file.md`, section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The file has one key.
    Settled,
    /// There is a newer key, and pages are still sealed with the older one.
    Announced,
    /// Pages are sealed with the newer key, and some may still have the older one.
    Moving,
}

impl Stage {
    fn of(number: u32) -> Option<Stage> {
        [Stage::Settled, Stage::Announced, Stage::Moving].get(number as usize).copied()
    }

    /// The stage after this one.
    #[must_use]
    pub fn next(self) -> Stage {
        match self {
            Stage::Settled => Stage::Announced,
            Stage::Announced => Stage::Moving,
            Stage::Moving => Stage::Settled,
        }
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
    /// The number of the newest file key: 1, and one more for each resealing.
    pub key_number: u32,
    /// Whether there is a file key before that one, and which of the two seals.
    pub stage: Stage,
    /// How many samples of the writes under the file key that seals were counted
    /// ([`crate::usage`]).
    pub samples: u32,
}

impl Header {
    /// Where a file stands in the order of all heads that it ever has.
    pub(crate) fn progress(&self) -> (u32, u8) {
        let of_key = match self.stage {
            Stage::Announced => 0,
            Stage::Moving => 1,
            Stage::Settled => 2,
        };
        (self.key_number, of_key)
    }

    /// The number of the file key that seals.
    #[must_use]
    pub fn sealing_number(&self) -> u32 {
        match self.stage {
            Stage::Announced => self.key_number - 1,
            Stage::Moving | Stage::Settled => self.key_number,
        }
    }

    /// About how many writes were sealed with the file key that seals.
    #[must_use]
    pub fn writes(&self) -> u64 {
        usage::writes(self.samples)
    }

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
    let predecessors = u32::from_le_bytes(array_at(start, PREDECESSORS_AT));
    let stage = u32::from_le_bytes(array_at(start, STAGE_AT));
    let bad_stage = SealError::Header(HeaderFault::BadKeyStage { predecessors, stage });
    let Some(stage) = Stage::of(stage) else { return Err(bad_stage) };
    let is_first = predecessors == 0;
    if predecessors == u32::MAX
        || is_first && stage != Stage::Settled
        || !is_first && layout != Layout::Paged
    {
        return Err(bad_stage);
    }
    let samples = u32::from_le_bytes(array_at(start, SAMPLES_AT));
    let unused = if stage == Stage::Settled { PLACE_END } else { OLDER_END };
    let reserved = [&start[14..16], &start[unused..AAD_LEN]];
    let is_counted = usage::is_counted(suite, layout);
    if !is_counted && samples != 0 || reserved.into_iter().flatten().any(|byte| *byte != 0) {
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
        key_number: predecessors + 1,
        stage,
        samples,
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
    let (key_number, stage, samples) = (1, Stage::Settled, 0);
    let header = Header {
        suite,
        layout,
        place,
        file_id,
        keyring_id,
        generation,
        key_number,
        stage,
        samples,
    };

    let mut bytes = [0_u8; HEADER_LEN as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&suite.id().to_le_bytes());
    bytes[12..14].copy_from_slice(&layout.id().to_le_bytes());
    bytes[16..32].copy_from_slice(&file_id);
    bytes[32..48].copy_from_slice(&keyring_id.0);
    bytes[GENERATION_AT..GENERATION_AT + 4].copy_from_slice(&generation.0.to_le_bytes());
    place.encode(&mut bytes[PLACE_AT..PLACE_END]);
    NEWEST.seal(&mut bytes, wrapping_key, &file_key, random)?;
    Ok((header, file_key, bytes))
}

fn wrapping_key(keys: &KeySet, generation: Generation) -> Result<&Gcm, SealError> {
    let unknown = SealError::KeyUnknown { keyring_id: keys.keyring_id, generation };
    keys.wrapping_key(generation).ok_or(unknown)
}

/// Where a wrapped file key lies in a head: everything before its nonce is authenticated with it.
#[derive(Clone, Copy)]
struct Wrap {
    nonce_at: usize,
    wrapped_at: usize,
    tag_at: usize,
}

/// The newest file key of a file.
const NEWEST: Wrap = Wrap { nonce_at: NONCE_AT, wrapped_at: WRAPPED_AT, tag_at: TAG_AT };
/// The file key before it.
const OLDER: Wrap =
    Wrap { nonce_at: OLDER_NONCE_AT, wrapped_at: OLDER_WRAPPED_AT, tag_at: OLDER_TAG_AT };
const _: () = assert!(OLDER_NONCE_AT == PLACE_END && OLDER_TAG_AT + 16 == OLDER_END);

impl Wrap {
    /// Writes a random nonce, the wrapped file key and the tag behind the fields of a head.
    fn seal(
        self,
        bytes: &mut [u8],
        wrapping_key: &Gcm,
        file_key: &FileKey,
        random: &dyn Random,
    ) -> Result<(), SealError> {
        let Wrap { nonce_at, wrapped_at, tag_at } = self;
        let mut nonce = [0; 12];
        random.fill(&mut nonce)?;
        let (aad, rest) = bytes.split_at_mut(nonce_at);
        let body = &mut rest[wrapped_at - nonce_at..tag_at - nonce_at];
        body.copy_from_slice(file_key.as_slice());
        let tag = wrapping_key.seal(&mut nonce, aad, body)?;
        bytes[nonce_at..wrapped_at].copy_from_slice(&nonce);
        bytes[tag_at..tag_at + 16].copy_from_slice(&tag);
        Ok(())
    }

    fn open(self, start: &[u8], header: &Header, keys: &KeySet) -> Result<FileKey, SealError> {
        let Header { keyring_id, generation, .. } = *header;
        if keys.keyring_id != keyring_id {
            return Err(SealError::KeyUnknown { keyring_id, generation });
        }
        let wrapping_key = wrapping_key(keys, generation)?;
        let damaged = || SealError::Header(HeaderFault::NotAuthentic);
        if start.len() < LEN {
            return Err(damaged());
        }
        let Wrap { nonce_at, wrapped_at, tag_at } = self;
        let mut file_key = FileKey::zeros()?;
        wrapping_key
            .open_between(
                &array_at(start, nonce_at),
                &start[..nonce_at],
                (&start[wrapped_at..tag_at], &start[tag_at..tag_at + 16]),
                file_key.as_mut_slice(),
            )
            .map_err(|_| damaged())?;
        Ok(file_key)
    }
}

/// The head of the same file with its file keys wrapped under the active generation of `keys`: file
/// keys, identity, form and place stay. `start` is the head that [`classify`] called sealed, with
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
    let (newest, older) = (unwrap_key(start, header, keys)?, unwrap_older(start, header, keys)?);
    let to = Header { generation: keys.active(), ..*header };
    wrapped(start, &to, keys, (&newest, older.as_ref()), random)
}

/// The head of the same file with more samples of the writes under the file key of this number
/// (`spec/sealed-file.md`, section 11.1), and its header; everything else stays, also the
/// generation. `None`: another file key seals by now, so these writes are not to be counted any
/// more.
///
/// # Errors
/// As for opening the file.
pub fn count(
    start: &[u8],
    header: &Header,
    keys: &KeySet,
    (key_number, samples): (u32, u32),
    random: &dyn Random,
) -> Result<Option<([u8; LEN], Header)>, SealError> {
    if header.sealing_number() != key_number || !usage::is_counted(header.suite, header.layout) {
        return Ok(None);
    }
    let (newest, older) = (unwrap_key(start, header, keys)?, unwrap_older(start, header, keys)?);
    let to = Header { samples: header.samples.saturating_add(samples), ..*header };
    Ok(Some((wrapped(start, &to, keys, (&newest, older.as_ref()), random)?, to)))
}

/// The head of the same file at its next [`Stage`]: `Announced` brings a new random file key,
/// `Moving` uses it, and `Settled` drops the older one. The keys are wrapped under the active
/// generation of `keys`. What must hold before each step is in `spec/sealed-file.md`, section 6.1.
///
/// # Errors
/// As [`rewrap`]; [`SealError::NotResealable`] if a file of this layout cannot have two keys.
pub fn advance(
    start: &[u8],
    header: &Header,
    keys: &KeySet,
    random: &dyn Random,
) -> Result<[u8; LEN], SealError> {
    let known = unwrap_key(start, header, keys)?;
    let stage = header.stage.next();
    let to = Header { stage, generation: keys.active(), ..*header };
    match stage {
        Stage::Announced => {
            let is_temporary = header.generation.is_ephemeral();
            if header.layout != Layout::Paged || is_temporary || header.key_number >= u32::MAX - 1 {
                return Err(SealError::NotResealable);
            }
            let mut newest = FileKey::zeros()?;
            random.fill(newest.as_mut_slice())?;
            let to = Header { key_number: header.key_number + 1, ..to };
            wrapped(start, &to, keys, (&newest, Some(&known)), random)
        }
        Stage::Moving => {
            // From here on the newer key seals.
            let to = Header { samples: 0, ..to };
            let older = unwrap_older(start, header, keys)?;
            wrapped(start, &to, keys, (&known, older.as_ref()), random)
        }
        Stage::Settled => wrapped(start, &to, keys, (&known, None), random),
    }
}

/// The head `start` with the generation, key number, stage and samples of `to`, and with these
/// keys.
fn wrapped(
    start: &[u8],
    to: &Header,
    keys: &KeySet,
    (newest, older): (&FileKey, Option<&FileKey>),
    random: &dyn Random,
) -> Result<[u8; LEN], SealError> {
    let generation = to.generation;
    let wrapping_key = wrapping_key(keys, generation)?;
    let mut head = [0; LEN];
    head.copy_from_slice(&start[..LEN]);
    head[GENERATION_AT..PREDECESSORS_AT].copy_from_slice(&generation.0.to_le_bytes());
    head[PREDECESSORS_AT..STAGE_AT].copy_from_slice(&(to.key_number - 1).to_le_bytes());
    head[STAGE_AT..SAMPLES_AT].copy_from_slice(&(to.stage as u32).to_le_bytes());
    head[SAMPLES_AT..PLACE_AT].copy_from_slice(&to.samples.to_le_bytes());
    match older {
        Some(older) => OLDER.seal(&mut head, wrapping_key, older, random)?,
        None => head[OLDER_NONCE_AT..OLDER_END].fill(0),
    }
    NEWEST.seal(&mut head, wrapping_key, newest, random)?;
    Ok(head)
}

/// The bytes of a sealed head that stay when the file keys are wrapped anew ([`rewrap`]).
#[must_use]
pub fn lasting(head: &[u8; LEN]) -> [&[u8]; 3] {
    let is_settled = head[STAGE_AT..SAMPLES_AT] == [0; 4];
    let unused = if is_settled { OLDER_NONCE_AT } else { OLDER_END };
    [&head[..GENERATION_AT], &head[PREDECESSORS_AT..PLACE_END], &head[unused..AAD_LEN]]
}

/// Unwraps the newest file key of a header that [`classify`] called sealed. Public also for tests
/// of other crates, which search the memory of a server for the key.
pub fn unwrap_key(start: &[u8], header: &Header, keys: &KeySet) -> Result<FileKey, SealError> {
    NEWEST.open(start, header, keys)
}

/// As [`unwrap_key`], of the file key before the newest; `None` if the header has no such key.
pub fn unwrap_older(
    start: &[u8],
    header: &Header,
    keys: &KeySet,
) -> Result<Option<FileKey>, SealError> {
    match header.stage {
        Stage::Settled => Ok(None),
        Stage::Announced | Stage::Moving => OLDER.open(start, header, keys).map(Some),
    }
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
        assert!(keys.adopt(
            next,
            DataKey::init_with(|key| random.fill(key)).unwrap(),
            keys.suites()
        ));
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

    /// A head of a file of two keys, and the key before the newest.
    fn resealing(keys: &KeySet) -> ([u8; LEN], FileKey) {
        let random = LibraryRandom::new();
        let form = Form::anywhere(Suite::Aes256Gcm, Layout::Paged);
        let (header, key, bytes) = create(&form, keys, keys.active(), &random).unwrap();
        (advance(&bytes, &header, keys, &random).unwrap(), key)
    }

    fn parsed(head: &[u8]) -> Header {
        let Kind::Sealed(header) = classify(head).unwrap() else { panic!("not sealed") };
        header
    }

    #[test]
    fn a_head_goes_through_the_stages_and_keeps_its_keys() {
        let (keys, random) = (keys(), LibraryRandom::new());
        let (announced, first) = resealing(&keys);
        let header = parsed(&announced);
        assert_eq!((header.key_number, header.stage), (2, Stage::Announced));
        assert_eq!(unwrap_older(&announced, &header, &keys).unwrap().unwrap()[..], first[..]);
        let second = unwrap_key(&announced, &header, &keys).unwrap();
        assert_ne!(second[..], first[..]);

        let moving = advance(&announced, &header, &keys, &random).unwrap();
        let header = parsed(&moving);
        assert_eq!((header.key_number, header.stage), (2, Stage::Moving));
        assert_eq!(unwrap_older(&moving, &header, &keys).unwrap().unwrap()[..], first[..]);
        assert_eq!(unwrap_key(&moving, &header, &keys).unwrap()[..], second[..]);

        let settled = advance(&moving, &header, &keys, &random).unwrap();
        let header = parsed(&settled);
        assert_eq!((header.key_number, header.stage), (2, Stage::Settled));
        assert!(unwrap_older(&settled, &header, &keys).unwrap().is_none());
        assert_eq!(unwrap_key(&settled, &header, &keys).unwrap()[..], second[..]);
        assert!(settled[OLDER_NONCE_AT..OLDER_END].iter().all(|byte| *byte == 0));

        // A data key that is renewed meanwhile keeps both.
        let next = Generation(keys.active().0 + 1);
        assert!(keys.adopt(
            next,
            DataKey::init_with(|key| random.fill(key)).unwrap(),
            keys.suites()
        ));
        let renewed = rewrap(&moving, &parsed(&moving), &keys, &random).unwrap();
        let header = parsed(&renewed);
        assert_eq!((header.generation, header.stage), (next, Stage::Moving));
        assert_eq!(unwrap_older(&renewed, &header, &keys).unwrap().unwrap()[..], first[..]);
        assert_eq!(unwrap_key(&renewed, &header, &keys).unwrap()[..], second[..]);
        assert_eq!(lasting(&renewed), lasting(&moving));
        assert_ne!(lasting(&announced), lasting(&moving));
    }

    #[test]
    fn the_count_belongs_to_the_key_that_seals() {
        let (keys, random) = (keys(), LibraryRandom::new());
        let form = Form::anywhere(Suite::Aes256Gcm, Layout::Paged);
        let (header, first, bytes) = create(&form, &keys, keys.active(), &random).unwrap();
        // A data key that came meanwhile is left to whoever renews it.
        let next = Generation(keys.active().0 + 1);
        assert!(keys.adopt(
            next,
            DataKey::init_with(|key| random.fill(key)).unwrap(),
            keys.suites()
        ));
        let (head, counted) = count(&bytes, &header, &keys, (1, 3), &random).unwrap().unwrap();
        assert_eq!(parsed(&head), counted);
        assert_eq!(counted, Header { samples: 3, ..header });
        assert_eq!(counted.writes(), 3 << 16);
        assert_eq!(unwrap_key(&head, &counted, &keys).unwrap()[..], first[..]);
        assert!(unwrap_key(&head, &Header { samples: 0, ..counted }, &keys).is_ok());
        assert_ne!(lasting(&head), lasting(bytes.first_chunk().unwrap()));

        let announced = advance(&head, &counted, &keys, &random).unwrap();
        assert_eq!((parsed(&announced).samples, parsed(&announced).sealing_number()), (3, 1));
        let more = count(&announced, &parsed(&announced), &keys, (1, 2), &random).unwrap();
        let (announced, _) = more.unwrap();
        assert_eq!(parsed(&announced).samples, 5);
        let moving = advance(&announced, &parsed(&announced), &keys, &random).unwrap();
        assert_eq!((parsed(&moving).samples, parsed(&moving).sealing_number()), (0, 2));
        let older = (1, 1);
        assert!(count(&moving, &parsed(&moving), &keys, older, &random).unwrap().is_none());
        let (moving, _) =
            count(&moving, &parsed(&moving), &keys, (2, 7), &random).unwrap().unwrap();
        let settled = advance(&moving, &parsed(&moving), &keys, &random).unwrap();
        assert_eq!(parsed(&settled).samples, 7);
        let renewed = rewrap(&settled, &parsed(&settled), &keys, &random).unwrap();
        assert_eq!(parsed(&renewed).samples, 7);
        let most = (2, u32::MAX);
        let (full, _) = count(&renewed, &parsed(&renewed), &keys, most, &random).unwrap().unwrap();
        assert_eq!(parsed(&full).samples, u32::MAX);
    }

    #[test]
    fn only_files_of_pages_that_outlive_the_server_are_resealed() {
        let random = LibraryRandom::new();
        let mut keys = keys();
        keys.insert(Generation::EPHEMERAL, crate::testing::data_key(9));
        for (layout, suite, generation) in [
            (Layout::Stream, Suite::Aes256Gcm, keys.active()),
            (Layout::Wal, Suite::Aes256Xts, keys.active()),
            (Layout::Paged, Suite::Aes256Gcm, Generation::EPHEMERAL),
        ] {
            let form = Form::anywhere(suite, layout);
            let (header, _, bytes) = create(&form, &keys, generation, &random).unwrap();
            let refused = advance(&bytes, &header, &keys, &random);
            assert!(matches!(refused, Err(SealError::NotResealable)), "{layout}");
        }
    }

    /// Neither key of a head can be put in the place of the other, and no bit can be flipped.
    #[test]
    fn no_bit_of_a_head_with_two_keys_can_be_flipped() {
        let keys = keys();
        let (mut head, _) = resealing(&keys);
        let opens = |head: &[u8]| match classify(head) {
            Ok(Kind::Sealed(header)) => {
                unwrap_key(head, &header, &keys).is_ok()
                    && unwrap_older(head, &header, &keys).is_ok()
            }
            Ok(Kind::Plain | Kind::NoHeader) | Err(_) => false,
        };
        assert!(opens(&head));
        for bit in 0..LEN * 8 {
            head[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(&head), "bit {bit}");
            head[bit / 8] ^= 1 << (bit % 8);
        }
        let mut swapped = head;
        swapped[OLDER_NONCE_AT..OLDER_END].copy_from_slice(&head[NONCE_AT..LEN]);
        swapped[NONCE_AT..LEN].copy_from_slice(&head[OLDER_NONCE_AT..OLDER_END]);
        let header = parsed(&swapped);
        assert!(unwrap_key(&swapped, &header, &keys).is_err());
        assert!(unwrap_older(&swapped, &header, &keys).is_err());
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
