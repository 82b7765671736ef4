//! How often a file key was used (`spec/sealed-file.md`, section 11.1).
//!
//! The writes under a key are not counted one by one: a write whose random nonce begins with two
//! bytes of zeros is a *sample*, which stands for 65,536 writes. Samples are drawn while a file is
//! written, and whoever holds the lock of the header adds them to those in the header. (In a FIPS
//! build the module replaces the nonces; those that were drawn are as good a sample.)

use crate::suite::{Layout, Suite};

/// How many writes a sample stands for.
pub const WRITES_PER_SAMPLE: u64 = 1 << 16;

/// How often a file key may be used (NIST SP 800-38D, section 8.3).
pub const LIMIT: u64 = 1 << 32;

/// From here on a file is to get another key. Half of the limit: what remains is as much as was
/// written to the file until now, and the error of the estimate is a hundredth of it.
pub const DUE: u64 = LIMIT / 2;

/// Whether the writes to files of this suite and layout are counted: the others cannot reach a
/// limit.
#[must_use]
pub fn is_counted(suite: Suite, layout: Layout) -> bool {
    matches!(layout, Layout::Paged | Layout::Wal) && suite != Suite::Aegis256X2
}

/// About how many writes there were with so many samples.
#[must_use]
pub fn writes(samples: u32) -> u64 {
    u64::from(samples) * WRITES_PER_SAMPLE
}

fn is_sample(nonce: &[u8; 12]) -> bool {
    nonce[..2] == [0; 2]
}

/// The samples of a process that are not in the header of the file yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The number of the file key that they were drawn under.
    key_number: u32,
    samples: u32,
    /// Whether a sample was drawn since [`Drawn::new_samples`] was called.
    is_new: bool,
}

impl Drawn {
    /// Notes the nonces of writes under a file key.
    #[inline]
    pub(crate) fn note(&mut self, key_number: u32, nonces: &[[u8; 12]]) {
        for _ in nonces.iter().filter(|nonce| is_sample(nonce)) {
            self.add(key_number);
        }
    }

    #[cold]
    fn add(&mut self, key_number: u32) {
        if self.key_number != key_number {
            *self = Drawn { key_number, ..Drawn::default() };
        }
        self.samples = self.samples.saturating_add(1);
        self.is_new = true;
    }

    /// The number of the key, and how many samples wait, if one was drawn since the last call.
    #[inline]
    pub(crate) fn new_samples(&mut self) -> Option<(u32, u32)> {
        if !self.is_new {
            return None;
        }
        self.is_new = false;
        Some((self.key_number, self.samples))
    }

    /// Whether samples wait.
    pub(crate) fn wait(&self) -> bool {
        self.samples > 0
    }

    /// All waiting samples are in the header.
    pub(crate) fn settle(&mut self) {
        *self = Drawn::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_wait_until_they_are_in_the_header() {
        let mut drawn = Drawn::default();
        let (none, one) = ([1; 12], {
            let mut nonce = [9; 12];
            nonce[..2].fill(0);
            nonce
        });
        drawn.note(1, &[none, [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]);
        assert_eq!(drawn.new_samples(), None);
        drawn.note(1, &[one, none, one]);
        assert_eq!(drawn.new_samples(), Some((1, 2)));
        // They could not be added; the next sample takes them along.
        assert_eq!(drawn.new_samples(), None);
        drawn.note(1, &[one]);
        assert_eq!(drawn.new_samples(), Some((1, 3)));
        drawn.settle();
        drawn.note(1, &[none]);
        assert_eq!(drawn.new_samples(), None);
        // Those of an older key count no more.
        drawn.note(1, &[one]);
        drawn.note(2, &[one]);
        assert_eq!(drawn.new_samples(), Some((2, 1)));
    }
}
