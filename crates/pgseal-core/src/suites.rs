//! The suites of a cluster: the one of new relation files, and those that older files may have
//! (`spec/key-hierarchy.md`, section 12).

use crate::suite::Suite;

/// The suite that new relation files get, and the suites that existing ones may have besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suites {
    newest: Suite,
    /// A bit for each suite, by its number; never that of `newest`.
    older: u8,
}

/// The numbers of suites are 1 to 8, so a byte has a bit for each.
const fn bit(suite: Suite) -> u8 {
    1 << (suite as u16 - 1)
}

impl From<Suite> for Suites {
    fn from(newest: Suite) -> Suites {
        Suites { newest, older: 0 }
    }
}

impl Suites {
    /// The suite that new relation files get.
    #[must_use]
    pub const fn newest(self) -> Suite {
        self.newest
    }

    /// The suites that existing files may have besides, in the order of their numbers.
    pub fn older(self) -> impl Iterator<Item = Suite> {
        Suite::ALL.into_iter().filter(move |suite| self.older & bit(*suite) != 0)
    }

    /// All: the newest first.
    pub fn all(self) -> impl Iterator<Item = Suite> {
        core::iter::once(self.newest).chain(self.older())
    }

    /// The same, and existing files may also have this suite.
    #[must_use]
    pub fn with_older(mut self, suite: Suite) -> Suites {
        self.older |= bit(suite) & !bit(self.newest);
        self
    }

    /// New files get this suite; files of the suite that they got so far stay.
    #[must_use]
    pub fn changed_to(self, suite: Suite) -> Suites {
        Suites { newest: suite, older: (self.older | bit(self.newest)) & !bit(suite) }
    }

    /// The two bytes of the binary formats: the number of the newest suite in the low byte, and in
    /// the high byte bit n - 1 for each older suite n.
    #[must_use]
    pub fn code(self) -> u16 {
        self.newest.id() | u16::from(self.older) << 8
    }

    /// The suites with this code; `None` if a suite is unknown, or is both the newest and an older
    /// one.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Suites> {
        let [number, older] = code.to_le_bytes();
        let newest = Suite::from_id(u16::from(number))?;
        let known = Suite::ALL.into_iter().fold(0, |known, suite| known | bit(suite));
        (older & !known == 0 && older & bit(newest) == 0).then_some(Suites { newest, older })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_the_older_suites() {
        let first = Suites::from(Suite::Aes256Xts);
        assert_eq!(first.all().collect::<Vec<_>>(), [Suite::Aes256Xts]);
        let second = first.changed_to(Suite::Aes256Gcm);
        let third = second.changed_to(Suite::Aes128Ctr);
        assert_eq!(third.newest(), Suite::Aes128Ctr);
        assert_eq!(third.older().collect::<Vec<_>>(), [Suite::Aes256Gcm, Suite::Aes256Xts]);
        let back = third.changed_to(Suite::Aes256Xts);
        assert_eq!(back.older().collect::<Vec<_>>(), [Suite::Aes256Gcm, Suite::Aes128Ctr]);
        assert_eq!(second.changed_to(Suite::Aes256Gcm), second);
        assert_eq!(second.with_older(Suite::Aes256Gcm), second, "the newest is no older one");
    }

    #[test]
    fn codes_round_trip_and_others_are_refused() {
        let mut known = 0;
        for code in 0..=u16::MAX {
            if let Some(suites) = Suites::from_code(code) {
                assert_eq!(suites.code(), code);
                known += 1;
            }
        }
        // Eight suites, each with every set of the seven others.
        assert_eq!(known, 8 * 128);
        let suites = Suites::from(Suite::Aes256Gcm).with_older(Suite::Aes256Xts);
        assert_eq!(suites.code(), 0x0802);
        for wrong in [0, 9, 0x0202, 0x8008] {
            assert_eq!(Suites::from_code(wrong), None, "{wrong:#x}");
        }
    }
}
