//! The entry of a page in a tag block: nonce, tag, and the number of the file key
//! (`spec/sealed-file.md`, section 6).

use pgseal_crypto::{TAG_LEN, TagBytes};

use crate::geometry::TAG_ENTRY_LEN;
use crate::suite::Suite;

/// Bytes of an entry.
pub const ENTRY: usize = TAG_ENTRY_LEN as usize;

/// The most random bytes that a suite stores.
pub(super) const MAX_NONCE: usize = ENTRY - TAG_LEN - 1;

/// The parts of the entry of a page that was written.
pub struct Entry<'a> {
    /// The random bytes of the nonce.
    pub(super) nonce: &'a [u8],
    tag: &'a [u8],
    number: &'a [u8],
}

impl<'a> Entry<'a> {
    pub fn of(suite: Suite, entry: &'a [u8; ENTRY]) -> Entry<'a> {
        let (nonce, rest) = entry.split_at(suite.nonce_len());
        let (tag, number) = rest.split_at(TAG_LEN);
        Entry { nonce, tag, number }
    }

    pub(super) fn tag(&self) -> TagBytes {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(self.tag);
        tag
    }

    /// How many file keys after the one that sealed the page the newest is, whose number is given.
    /// A short number repeats after 256 keys, so the answer is one of 0 to 255 then.
    pub fn age(&self, newest: u32) -> u32 {
        let (mut number, mut mask) = ([0; 4], [0; 4]);
        number[..self.number.len()].copy_from_slice(self.number);
        mask[..self.number.len()].fill(0xFF);
        newest.wrapping_sub(u32::from_le_bytes(number)) & u32::from_le_bytes(mask)
    }

    /// Whether the number of the key is cut off.
    pub(super) fn has_short_number(&self) -> bool {
        self.number.len() < 4
    }
}

/// Makes the entry of a page: what `nonce` and `tag` leave of it holds the low bytes of the number
/// of the file key.
pub(super) fn encode(nonce: &[u8], tag: &TagBytes, key_number: u32, entry: &mut [u8]) {
    let (nonce_out, rest) = entry.split_at_mut(nonce.len());
    let (tag_out, number_out) = rest.split_at_mut(TAG_LEN);
    nonce_out.copy_from_slice(nonce);
    tag_out.copy_from_slice(tag);
    let number = key_number.to_le_bytes();
    number_out.copy_from_slice(&number[..number_out.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_32_bytes_whatever_the_suite() {
        for suite in Suite::ALL {
            let nonce: Vec<u8> = (1..=suite.nonce_len() as u8).collect();
            let mut entry = [0; ENTRY];
            encode(&nonce, &[0xAA; TAG_LEN], 0x0403_0201, &mut entry);
            let parts = Entry::of(suite, &entry);
            assert_eq!((parts.nonce, parts.tag()), (&nonce[..], [0xAA; TAG_LEN]), "{suite}");
            assert_eq!(parts.age(0x0403_0201), 0);
            assert_eq!(parts.age(0x0403_0202), 1);
            let is_short = suite == Suite::Aegis256X2;
            assert_eq!(parts.has_short_number(), is_short);
            // One key before, and 256 keys after.
            assert_eq!(parts.age(0x0403_0200), if is_short { 255 } else { u32::MAX });
            assert_eq!(parts.age(0x0403_0301), if is_short { 0 } else { 256 });
        }
    }
}
