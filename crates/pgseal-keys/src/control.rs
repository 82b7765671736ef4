//! The control record, `DATADIR/pgseal/control`: which `pg_control` a server last wrote, and up to
//! which position its WAL is on the disk (`spec/control.md`).
//!
//! The two parts lie in sectors of their own, so that each may be written in place. The second part
//! is written for each commit, so it has two slots: a process stores into one of them while the
//! other one counts, also through a map of the file, and 8 bytes in front say which one counts.

use pgseal_core::random::Random;
use pgseal_core::{Generation, KeySet, KeyringId};
use pgseal_crypto::Gcm;

use crate::envelope::{RecordError, file_key, sha256, take};
use crate::labels;

/// The name of the control record in the directory [`KEYRING_DIR`](crate::KEYRING_DIR) of a data
/// directory.
pub const CONTROL_FILE: &str = "control";
/// The length of each part, in bytes: what a disk writes whole or not at all (`spec/media.md`).
pub const PART_LEN: usize = 512;
/// The length of the file, in bytes.
pub const CONTROL_LEN: usize = 2 * PART_LEN;

const MAGIC: [u8; 8] = *b"PGSCTRL1";
const SALT_LEN: usize = 32;
/// magic 8, kind 2, zeros 2, generation 4, keyring id 16, salt 32
const HEAD_LEN: usize = 64;
/// The length of a nonce, in bytes.
pub const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
const BODY_LEN: usize = 80;
/// The length of what is sealed at once, in bytes: a slot of the second part.
pub const SLOT_LEN: usize = HEAD_LEN + NONCE_LEN + TAG_LEN + BODY_LEN;
/// The length of a confirmation, in bytes.
pub const CONFIRMATION_LEN: usize = 8;
/// Where the confirmation of the slot that counts lies in the file, in bytes.
pub const CONFIRMATION_OFF: usize = PART_LEN;

/// A random number in a slot; the slot whose number stands in front of both counts. It is encrypted
/// in the slot, so whoever does not have the key cannot make the older slot count.
pub type Confirmation = [u8; CONFIRMATION_LEN];

/// Where a slot of the second part lies in the file, in bytes; 0 and 1 are the slots.
#[must_use]
pub const fn slot_off(slot: usize) -> usize {
    CONFIRMATION_OFF + CONFIRMATION_LEN + slot * SLOT_LEN
}

/// The parts of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Part {
    /// [`Controls`].
    Controls = 1,
    /// [`Flushed`].
    Flushed = 2,
}

impl Part {
    /// Where the part lies in the file, in bytes.
    #[must_use]
    pub fn offset(self) -> usize {
        match self {
            Part::Controls => 0,
            Part::Flushed => PART_LEN,
        }
    }
}

/// The versions of `pg_control` that may be on the disk: the current one, and the one about to be
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    /// SHA-256 of each; both are the same if there is one.
    pub digests: [[u8; 32]; 2],
    /// The number of the anchor under which the last server of this directory began to run
    /// (`spec/anchor.md`); 0: none had an anchor.
    pub epoch: u64,
}

impl Controls {
    /// The versions with these contents, in an epoch.
    #[must_use]
    pub fn of(current: &[u8], next: &[u8], epoch: u64) -> Controls {
        Controls { digests: [sha256(current), sha256(next)], epoch }
    }

    /// Whether `pg_control` with this content is one of them.
    #[must_use]
    pub fn fit(&self, control: &[u8]) -> bool {
        self.digests.contains(&sha256(control))
    }
}

/// Up to where the WAL is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The timeline; 0: no position is known.
    pub timeline: u32,
    /// The position (`XLogRecPtr`) up to which a sync of the WAL has returned.
    pub position: u64,
}

/// The key for one part. A random salt makes it new for each sealer, so that the limit for random
/// nonces (2^32, SP 800-38D, section 8.3) counts the writes of one process only.
pub struct Sealer {
    key: Gcm,
    head: [u8; HEAD_LEN],
}

impl Sealer {
    /// A key derived from the active data key, with a random salt.
    ///
    /// # Errors
    /// [`RecordError::Internal`].
    pub fn new(part: Part, keys: &KeySet, random: &dyn Random) -> Result<Sealer, RecordError> {
        let mut salt = [0; SALT_LEN];
        random.fill(&mut salt)?;
        Sealer::with_salt(part, keys, salt)
    }

    fn with_salt(part: Part, keys: &KeySet, salt: [u8; SALT_LEN]) -> Result<Sealer, RecordError> {
        let mut head = [0; HEAD_LEN];
        let fields: [&[u8]; 6] = [
            &MAGIC,
            &(part as u16).to_le_bytes(),
            &[0; 2],
            &keys.active().0.to_le_bytes(),
            &keys.keyring_id.0,
            &salt,
        ];
        let mut at = 0;
        for field in fields {
            if let Some(target) = head.get_mut(at..at + field.len()) {
                target.copy_from_slice(field);
            }
            at += field.len();
        }
        Ok(Sealer { key: key(keys, keys.active(), &head)?, head })
    }

    fn seal(
        &self,
        mut nonce: [u8; NONCE_LEN],
        mut body: [u8; BODY_LEN],
    ) -> Result<[u8; SLOT_LEN], RecordError> {
        let aad = aad(&self.head);
        let tag = self.key.seal(&mut nonce, &aad, &mut body).map_err(|_| RecordError::Internal)?;
        let mut slot = [0; SLOT_LEN];
        let (head, rest) = slot.split_at_mut(HEAD_LEN);
        let (nonce_at, rest) = rest.split_at_mut(NONCE_LEN);
        let (tag_at, body_at) = rest.split_at_mut(TAG_LEN);
        head.copy_from_slice(&self.head);
        nonce_at.copy_from_slice(&nonce);
        tag_at.copy_from_slice(&tag);
        body_at.copy_from_slice(&body);
        Ok(slot)
    }

    /// The bytes of the first part. The nonce is random.
    ///
    /// # Errors
    /// [`RecordError::Internal`].
    pub fn controls(
        &self,
        nonce: [u8; NONCE_LEN],
        controls: &Controls,
    ) -> Result<[u8; PART_LEN], RecordError> {
        let mut body = [0; BODY_LEN];
        body[..32].copy_from_slice(&controls.digests[0]);
        body[32..64].copy_from_slice(&controls.digests[1]);
        body[64..72].copy_from_slice(&controls.epoch.to_le_bytes());
        let mut part = [0; PART_LEN];
        part[..SLOT_LEN].copy_from_slice(&self.seal(nonce, body)?);
        Ok(part)
    }

    /// The bytes of a slot of the second part. Nonce and confirmation are random.
    ///
    /// # Errors
    /// [`RecordError::Internal`].
    pub fn flushed(
        &self,
        nonce: [u8; NONCE_LEN],
        flushed: Flushed,
        confirmation: Confirmation,
    ) -> Result<[u8; SLOT_LEN], RecordError> {
        let mut body = [0; BODY_LEN];
        body[..4].copy_from_slice(&flushed.timeline.to_le_bytes());
        body[8..16].copy_from_slice(&flushed.position.to_le_bytes());
        body[16..24].copy_from_slice(&confirmation);
        self.seal(nonce, body)
    }
}

/// A whole second part: both slots are the same.
#[must_use]
pub fn flushed_part(slot: &[u8; SLOT_LEN], confirmation: Confirmation) -> [u8; PART_LEN] {
    let mut part = [0; PART_LEN];
    part[..CONFIRMATION_LEN].copy_from_slice(&confirmation);
    for number in [0, 1] {
        let at = slot_off(number) - CONFIRMATION_OFF;
        part[at..at + SLOT_LEN].copy_from_slice(slot);
    }
    part
}

/// The first part of a file.
///
/// # Errors
/// [`RecordError`].
pub fn open_controls(file: &[u8], keys: &KeySet) -> Result<Controls, RecordError> {
    let (sector, _) = take::<PART_LEN>(file)?;
    let (slot, padding) = take::<SLOT_LEN>(&sector)?;
    let body = open(Part::Controls, &slot, keys)?;
    let (first, rest) = take(&body[..])?;
    let (second, rest) = take(rest)?;
    let (epoch, rest) = take(rest)?;
    expect_zeros(rest)?;
    expect_zeros(padding)?;
    Ok(Controls { digests: [first, second], epoch: u64::from_le_bytes(epoch) })
}

/// The newest position in the second part of a file. The slot that counts must open; the other one
/// may be unfinished, or newer.
///
/// # Errors
/// [`RecordError`].
pub fn open_flushed(file: &[u8], keys: &KeySet) -> Result<Flushed, RecordError> {
    let cut = RecordError::Damaged("cut short");
    let (sector, _) = take::<PART_LEN>(file.get(PART_LEN..).ok_or(cut)?)?;
    let (confirmation, rest) = take::<CONFIRMATION_LEN>(&sector)?;
    let (first, rest) = take::<SLOT_LEN>(rest)?;
    let (second, padding) = take::<SLOT_LEN>(rest)?;
    expect_zeros(padding)?;
    let slots = [open_slot(&first, keys), open_slot(&second, keys)];
    let counts = |slot: &Result<(Flushed, Confirmation), RecordError>| {
        slot.is_ok_and(|(_, own)| own == confirmation)
    };
    if !slots.iter().any(counts) {
        // If both open, somebody changed the confirmation.
        let why = slots.into_iter().find_map(Result::err);
        return Err(why.unwrap_or(RecordError::NotAuthentic));
    }
    let newest = slots.into_iter().flatten().map(|(flushed, _)| flushed);
    newest.max_by_key(|flushed| (flushed.timeline, flushed.position)).ok_or(cut)
}

fn open_slot(slot: &[u8; SLOT_LEN], keys: &KeySet) -> Result<(Flushed, Confirmation), RecordError> {
    let body = open(Part::Flushed, slot, keys)?;
    let (timeline, rest) = take(&body[..])?;
    let (zeros, rest) = take::<4>(rest)?;
    let (position, rest) = take(rest)?;
    let (confirmation, rest) = take(rest)?;
    expect_zeros(&zeros)?;
    expect_zeros(rest)?;
    let (timeline, position) = (u32::from_le_bytes(timeline), u64::from_le_bytes(position));
    Ok((Flushed { timeline, position }, confirmation))
}

fn expect_zeros(reserved: &[u8]) -> Result<(), RecordError> {
    match reserved.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(RecordError::Damaged("a reserved field in use")),
    }
}

/// The lowest generation of a data key that the file says a part of it is sealed with; not
/// authenticated. Each part is sealed anew when it changes, so they may differ.
///
/// # Errors
/// [`RecordError::Damaged`].
pub fn generation_of(file: &[u8]) -> Result<Generation, RecordError> {
    let generation = |part, at: usize| -> Result<Generation, RecordError> {
        let (head, _) = take::<HEAD_LEN>(file.get(at..).unwrap_or_default())?;
        Ok(fields_of(part, &head)?.0)
    };
    let first = generation(Part::Controls, 0)?;
    // A slot that was never written, or not to its end, does not count.
    let slots = [0, 1].map(|slot| generation(Part::Flushed, slot_off(slot)));
    Ok(slots.into_iter().flatten().fold(first, Generation::min))
}

/// Checks the head of a part, and returns generation and keyring.
fn fields_of(part: Part, head: &[u8; HEAD_LEN]) -> Result<(Generation, KeyringId), RecordError> {
    let (magic, rest) = take::<8>(head)?;
    let (kind, rest) = take::<2>(rest)?;
    let (zeros, rest) = take::<2>(rest)?;
    let (generation, rest) = take::<4>(rest)?;
    let (id, _) = take::<16>(rest)?;
    if magic != MAGIC || kind != (part as u16).to_le_bytes() {
        return Err(RecordError::Damaged("not a record"));
    }
    if zeros != [0; 2] {
        return Err(RecordError::Damaged("a reserved field in use"));
    }
    Ok((Generation(u32::from_le_bytes(generation)), KeyringId(id)))
}

fn open(part: Part, slot: &[u8; SLOT_LEN], keys: &KeySet) -> Result<[u8; BODY_LEN], RecordError> {
    let (head, rest) = take::<HEAD_LEN>(slot)?;
    let (generation, id) = fields_of(part, &head)?;
    if id != keys.keyring_id {
        return Err(RecordError::OtherCluster(id));
    }
    let (nonce, rest) = take::<NONCE_LEN>(rest)?;
    let (tag, sealed) = take::<TAG_LEN>(rest)?;
    let mut body = [0; BODY_LEN];
    key(keys, generation, &head)?
        .open_between(&nonce, &aad(&head), (sealed, &tag), &mut body)
        .map_err(|_| RecordError::NotAuthentic)?;
    Ok(body)
}

const AAD_LEN: usize = labels::AAD_CONTROL.len() + HEAD_LEN;

fn aad(head: &[u8; HEAD_LEN]) -> [u8; AAD_LEN] {
    let mut aad = [0; AAD_LEN];
    let (label, rest) = aad.split_at_mut(labels::AAD_CONTROL.len());
    label.copy_from_slice(labels::AAD_CONTROL.as_bytes());
    rest.copy_from_slice(head);
    aad
}

/// The key of a part; its salt is bytes 8 to 63 of the part.
fn key(keys: &KeySet, generation: Generation, head: &[u8; HEAD_LEN]) -> Result<Gcm, RecordError> {
    file_key(keys, generation, &head[8..], labels::KDF_CONTROL)
}

/// The bytes of a whole file, with random nonces.
///
/// # Errors
/// [`RecordError::Internal`].
pub fn whole(
    controls: &Controls,
    flushed: Flushed,
    keys: &KeySet,
    random: &dyn Random,
) -> Result<[u8; CONTROL_LEN], RecordError> {
    let mut nonces = [[0; NONCE_LEN]; 2];
    let mut confirmation = [0; CONFIRMATION_LEN];
    random.fill(nonces.as_flattened_mut())?;
    random.fill(&mut confirmation)?;
    let mut file = [0; CONTROL_LEN];
    let (first, second) = file.split_at_mut(PART_LEN);
    let sealer = Sealer::new(Part::Controls, keys, random)?;
    first.copy_from_slice(&sealer.controls(nonces[0], controls)?);
    let sealer = Sealer::new(Part::Flushed, keys, random)?;
    let slot = sealer.flushed(nonces[1], flushed, confirmation)?;
    second.copy_from_slice(&flushed_part(&slot, confirmation));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use pgseal_core::random::LibraryRandom;
    use pgseal_core::{DataKey, Suite};

    use super::*;

    fn keys(id: u8, first: u8) -> KeySet {
        let mut keys = KeySet::new(KeyringId([id; 16]), Suite::Aes256Gcm, Generation(2));
        for number in [1, 2] {
            let key = DataKey::init_with(|bytes| {
                bytes.fill(first + number as u8);
                Ok::<(), ()>(())
            });
            keys.insert(Generation(number), key.unwrap());
        }
        keys
    }

    #[test]
    fn a_record_opens_with_its_keys_only_and_no_byte_may_differ() {
        let keys_here = keys(5, 0);
        let controls = Controls::of(b"old", b"new", 0x0102_0304_0506);
        let flushed = Flushed { timeline: 3, position: 0x12_3456_7890 };
        let file = whole(&controls, flushed, &keys_here, &LibraryRandom::new()).unwrap();
        assert_eq!(open_controls(&file, &keys_here), Ok(controls));
        assert_eq!(open_flushed(&file, &keys_here), Ok(flushed));
        assert!(controls.fit(b"old") && controls.fit(b"new") && !controls.fit(b"older"));
        assert_eq!(generation_of(&file), Ok(Generation(2)));
        // A server wrote the first part under a newer data key than the second.
        let mut older = KeySet::new(keys_here.keyring_id, Suite::Aes256Gcm, Generation(1));
        let key = DataKey::init_with(|bytes| {
            bytes.fill(1);
            Ok::<(), ()>(())
        });
        older.insert(Generation(1), key.unwrap());
        let mut mixed = whole(&controls, flushed, &older, &LibraryRandom::new()).unwrap();
        assert_eq!(generation_of(&mixed), Ok(Generation(1)));
        mixed[..PART_LEN].copy_from_slice(&file[..PART_LEN]);
        assert_eq!(open_controls(&mixed, &keys_here), Ok(controls));
        assert_eq!(generation_of(&mixed), Ok(Generation(1)));
        for at in 0..CONTROL_LEN {
            let mut changed = file;
            changed[at] ^= 1;
            let (first, second) =
                (open_controls(&changed, &keys_here), open_flushed(&changed, &keys_here));
            assert_eq!(first.is_ok(), at >= PART_LEN, "byte {at}");
            // Both slots are the same here, so one of them may be unfinished.
            let is_slot = (slot_off(0)..slot_off(2)).contains(&at);
            assert_eq!(second.is_ok(), at < PART_LEN || is_slot, "byte {at}");
            assert!(second.is_err() || second == Ok(flushed));
        }
        assert_eq!(open_controls(&file, &keys(5, 9)), Err(RecordError::NotAuthentic));
        assert_eq!(
            open_flushed(&file, &keys(6, 0)),
            Err(RecordError::OtherCluster(KeyringId([5; 16])))
        );
        for len in [0, 63, 64, 511, 512, 1023] {
            assert!(open_flushed(&file[..len], &keys_here).is_err(), "{len}");
        }
    }

    /// A file whose slots are of two writes, and of which the second one counts.
    fn two_slots(keys: &KeySet, older: Flushed, newer: Flushed) -> [u8; CONTROL_LEN] {
        let mut file =
            whole(&Controls::of(b"", b"", 0), older, keys, &LibraryRandom::new()).unwrap();
        let sealer = Sealer::new(Part::Flushed, keys, &LibraryRandom::new()).unwrap();
        let slot = sealer.flushed([1; NONCE_LEN], newer, [7; 8]).unwrap();
        file[slot_off(1)..slot_off(2)].copy_from_slice(&slot);
        file[CONFIRMATION_OFF..slot_off(0)].copy_from_slice(&[7; 8]);
        file
    }

    #[test]
    fn the_older_slot_does_not_count_whatever_is_changed() {
        let keys = keys(5, 0);
        let older = Flushed { timeline: 1, position: 100 };
        let newer = Flushed { timeline: 1, position: 200 };
        let file = two_slots(&keys, older, newer);
        assert_eq!(open_flushed(&file, &keys), Ok(newer));
        for at in PART_LEN..CONTROL_LEN {
            for bit in [1, 0x80] {
                let mut changed = file;
                changed[at] ^= bit;
                let opened = open_flushed(&changed, &keys);
                let is_older = (slot_off(0)..slot_off(1)).contains(&at);
                assert_eq!(opened.is_ok(), is_older, "byte {at}");
                assert!(opened.is_err() || opened == Ok(newer));
            }
        }
    }

    #[test]
    fn a_write_that_was_cut_off_leaves_one_of_two_positions() {
        let keys = keys(5, 0);
        let older = Flushed { timeline: 2, position: 100 };
        let newer = Flushed { timeline: 3, position: 90 };
        let (before, after) = {
            let after = two_slots(&keys, older, newer);
            let mut before = after;
            let (slot, other) = (slot_off(0)..slot_off(1), slot_off(1)..slot_off(2));
            let first =
                whole(&Controls::of(b"", b"", 0), older, &keys, &LibraryRandom::new()).unwrap();
            before[CONFIRMATION_OFF..].copy_from_slice(&first[CONFIRMATION_OFF..]);
            let mut after = after;
            after[slot.clone()].copy_from_slice(&before[slot]);
            (before, [&before[..other.start], &after[other.clone()], &before[other.end..]].concat())
        };
        // The slot is stored first, byte by byte in whatever order, and then the confirmation.
        let slot = slot_off(1)..slot_off(2);
        for cut in slot.clone() {
            let mut file = before;
            file[slot.start..cut].copy_from_slice(&after[slot.start..cut]);
            assert_eq!(open_flushed(&file, &keys), Ok(older), "{cut}");
        }
        // Stored, and not confirmed.
        assert_eq!(open_flushed(&after, &keys), Ok(newer));
        let mut confirmed = after;
        confirmed[CONFIRMATION_OFF..slot_off(0)].copy_from_slice(&[7; 8]);
        assert_eq!(open_flushed(&confirmed, &keys), Ok(newer));
    }

    #[test]
    fn one_part_does_not_pass_for_the_other() {
        let keys = keys(5, 0);
        let file =
            whole(&Controls::of(b"", b"", 0), Flushed::default(), &keys, &LibraryRandom::new())
                .unwrap();
        let mut swapped = [0; CONTROL_LEN];
        swapped[..PART_LEN].copy_from_slice(&file[PART_LEN..]);
        swapped[PART_LEN..].copy_from_slice(&file[..PART_LEN]);
        let wanted = RecordError::Damaged("not a record");
        assert_eq!(open_controls(&swapped, &keys), Err(wanted));
        assert_eq!(open_flushed(&swapped, &keys), Err(wanted));
    }

    #[test]
    fn each_write_differs() {
        let (keys, controls) = (keys(5, 0), Controls::of(b"", b"", 0));
        let one = whole(&controls, Flushed::default(), &keys, &LibraryRandom::new()).unwrap();
        let other = whole(&controls, Flushed::default(), &keys, &LibraryRandom::new()).unwrap();
        for end in [SLOT_LEN, slot_off(1), slot_off(2)] {
            let body = end - BODY_LEN..end;
            assert_ne!(one[body.clone()], other[body]);
        }
    }
}
