//! The two file keys of a file that gets a new one (`spec/sealed-file.md`, section 6.1).

use super::paged::{ENTRY, Entry};
use super::{HEAD_TRIES, SealedFile, all_zero};
use crate::cipher::Cipher;
use crate::error::{HeaderFault, SealError};
use crate::geometry::{BLOCK_LEN, GROUP_PAGES, HEAD_LEN, TAG_BLOCK_LEN, tag_block_off};
use crate::header::{self, Header, Kind, Stage};
use crate::keyset::KeySet;
use crate::memory::boxed;
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::SealedOff;

const PAGES: usize = GROUP_PAGES as usize;

/// Which pages of one group are not sealed with the newest file key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKeys {
    /// A bit for each page that has another key; bit 0 of the first byte is the first page.
    pub others: [u8; PAGES / 8],
    /// What is in the group.
    pub census: Census,
}

/// How many pages have which file key, by their entries. Nothing is authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Pages with the newest key.
    pub newest: u64,
    /// Pages with another key: as a rule the one before.
    pub others: u64,
    /// Pages that were never written.
    pub holes: u64,
}

impl SealedFile {
    /// The cipher that seals pages, and the number of its key.
    pub(super) fn sealing(&mut self) -> (&mut Cipher, u32) {
        match (&mut self.older, self.header.stage) {
            (Some(older), Stage::Announced) => (&mut **older, self.header.key_number - 1),
            _ => (&mut self.cipher, self.header.key_number),
        }
    }

    /// The cipher of the key that is so many before the newest, if the header has it.
    pub(super) fn cipher_of(&mut self, age: u32) -> Option<&mut Cipher> {
        let cipher = match age {
            0 => Some(&mut self.cipher),
            1 => self.older.as_deref_mut(),
            _ => None,
        };
        self.lacked_key |= cipher.is_none();
        cipher
    }

    /// The cipher of the file key before the newest, if the header has one.
    pub(super) fn older_cipher(
        start: &[u8],
        header: &Header,
        keys: &KeySet,
    ) -> Result<Option<Box<Cipher>>, SealError> {
        let key = header::unwrap_older(start, header, keys)?;
        key.map(|key| Ok(boxed(Cipher::new(header, &key)?)?)).transpose()
    }

    /// Whether an entry of a page named, or may have meant, a file key that this value does not
    /// have, since the last call. Then another process may have changed the header: call
    /// [`SealedFile::refresh`], and read again if it returns `true`.
    pub fn lacked_key(&mut self) -> bool {
        core::mem::take(&mut self.lacked_key)
    }

    /// Reads the head again, and takes over the file keys that it has now. Returns whether they are
    /// others than before.
    ///
    /// # Errors
    /// As for opening the file; [`HeaderFault::Replaced`] if it is the head of another file, or one
    /// that this file had before. The keys stay as they were.
    pub fn refresh<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        keys: &KeySet,
    ) -> Result<bool, SealError> {
        let mut start = [0; HEAD_LEN as usize];
        let mut got = storage.read_at(&mut start, SealedOff(0))?;
        let mut adopted = self.adopt_head(&start[..got], keys);
        for _ in 1..HEAD_TRIES {
            if adopted.is_ok() {
                break;
            }
            let before = (start, got);
            got = storage.read_at(&mut start, SealedOff(0))?;
            if start[..got] == before.0[..before.1] {
                break;
            }
            adopted = self.adopt_head(&start[..got], keys);
        }
        adopted
    }

    fn adopt_head(&mut self, start: &[u8], keys: &KeySet) -> Result<bool, SealError> {
        let replaced = SealError::Header(HeaderFault::Replaced);
        let Kind::Sealed(found) = header::classify(start)? else { return Err(replaced) };
        let Header { generation, key_number, stage, samples, .. } = found;
        if found != (Header { generation, key_number, stage, samples, ..self.header })
            || found.progress() < self.header.progress()
        {
            return Err(replaced);
        }
        if found.progress() == self.header.progress() {
            self.header.samples = samples;
            return Ok(false);
        }
        let newest = Cipher::new(&found, &header::unwrap_key(start, &found, keys)?)?;
        self.older = SealedFile::older_cipher(start, &found, keys)?;
        (self.cipher, self.header) = (newest, found);
        Ok(true)
    }

    /// Reads the tag block of a group, and says which of its pages have another file key than the
    /// newest. `None`: the file ends before the group, or has no tag blocks with entries of pages.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn group_keys<S: Storage + ?Sized>(
        &self,
        storage: &S,
        group: u64,
    ) -> Result<Option<GroupKeys>, SealError> {
        if self.header.layout != Layout::Paged {
            return Ok(None);
        }
        let pages = self.plain_len(storage)?.0.div_ceil(BLOCK_LEN);
        let here = pages.saturating_sub(group.saturating_mul(GROUP_PAGES)).min(GROUP_PAGES);
        if here == 0 {
            return Ok(None);
        }
        let mut tags = [0; TAG_BLOCK_LEN as usize];
        storage.read_at(&mut tags, tag_block_off(group))?;
        let mut keys = GroupKeys { others: [0; PAGES / 8], census: Census::default() };
        let entries = tags.as_chunks::<ENTRY>().0.iter().take(here as usize);
        for (index, entry) in entries.enumerate() {
            if all_zero(entry) {
                keys.census.holes += 1;
            } else if Entry::of(self.header.suite, entry).age(self.header.key_number) == 0 {
                keys.census.newest += 1;
            } else {
                keys.census.others += 1;
                keys.others[index / 8] |= 1 << (index % 8);
            }
        }
        Ok(Some(keys))
    }

    /// How many pages of the whole file have which key.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn census<S: Storage + ?Sized>(&self, storage: &S) -> Result<Census, SealError> {
        let mut all = Census::default();
        let mut group = 0;
        while let Some(keys) = self.group_keys(storage, group)? {
            let Census { newest, others, holes } = keys.census;
            all.newest += newest;
            all.others += others;
            all.holes += holes;
            group += 1;
        }
        Ok(all)
    }
}
