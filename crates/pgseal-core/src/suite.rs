//! Suites and layouts: which cipher seals a file, and how its blocks lie in it.
//!
//! The numbers come from `spec/sealed-file.md`, section 3.

use core::fmt;
use core::str::FromStr;

use pgseal_crypto::{NotApproved, Service};

/// A cipher with its key length, as the header of a sealed file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Suite {
    /// AES-128 in Galois/Counter Mode (SP 800-38D), 96-bit random nonce, 128-bit tag.
    Aes128Gcm = 1,
    /// AES-256 in Galois/Counter Mode.
    Aes256Gcm = 2,
    /// XTS-AES-128 (IEEE 1619), two independent 128-bit keys, 8192-byte data unit.
    Aes128Xts = 3,
    /// XTS-AES-256, two independent 256-bit keys.
    Aes256Xts = 4,
    /// AES-128 in counter mode (SP 800-38A), 96-bit random nonce per write, no authentication.
    Aes128Ctr = 5,
    /// AES-192 in counter mode.
    Aes192Ctr = 6,
    /// AES-256 in counter mode.
    Aes256Ctr = 7,
    /// AEGIS-256X2 (RFC 10032), 256-bit nonce of which 120 bits are random, 128-bit tag.
    Aegis256X2 = 8,
}

/// How the blocks of a sealed file lie behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Layout {
    /// 8192-byte pages in groups of 256, each group behind a tag block of 8192 bytes.
    Paged = 1,
    /// Blocks of up to 8192 bytes, each with its nonce before and its tag behind.
    Stream = 2,
    /// Length-preserving 16-byte cells, no tags.
    InPlace = 3,
    /// Sectors of 512 bytes, each with its nonce and tag, 17 for a page.
    Sectored = 4,
    /// In-place cells in groups of 256 pages, each group behind a tag block with an entry for each
    /// page and with flush records.
    Wal = 5,
}

impl Suite {
    /// All suites, in the order of their numbers.
    pub const ALL: [Suite; 8] = [
        Suite::Aes128Gcm,
        Suite::Aes256Gcm,
        Suite::Aes128Xts,
        Suite::Aes256Xts,
        Suite::Aes128Ctr,
        Suite::Aes192Ctr,
        Suite::Aes256Ctr,
        Suite::Aegis256X2,
    ];

    /// The suite with this number in a header, if there is one.
    #[must_use]
    pub fn from_id(id: u16) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// The number of the suite in a header.
    #[must_use]
    pub fn id(self) -> u16 {
        self as u16
    }

    /// Bytes of key material, out of the 64 that a header wraps.
    #[must_use]
    pub fn key_len(self) -> usize {
        match self {
            Suite::Aes128Gcm | Suite::Aes128Ctr => 16,
            Suite::Aes192Ctr => 24,
            Suite::Aes256Gcm | Suite::Aes256Ctr | Suite::Aes128Xts | Suite::Aegis256X2 => 32,
            Suite::Aes256Xts => 64,
        }
    }

    /// Random bytes of a nonce, which are stored with what they seal. XTS has none.
    #[must_use]
    pub fn nonce_len(self) -> usize {
        if self == Suite::Aegis256X2 { 15 } else { 12 }
    }

    /// Whether a changed block is noticed.
    #[must_use]
    pub fn authenticates(self) -> bool {
        self.is_gcm() || self == Suite::Aegis256X2
    }

    fn is_gcm(self) -> bool {
        matches!(self, Suite::Aes128Gcm | Suite::Aes256Gcm)
    }

    /// Whether a page and its nonce or tag can reach the disk at different moments, so that
    /// PostgreSQL must write full-page images, also for hint bits (data checksums or
    /// `wal_log_hints`).
    #[must_use]
    pub fn needs_full_page_images(self) -> bool {
        !matches!(self, Suite::Aes128Xts | Suite::Aes256Xts)
    }

    /// Whether PostgreSQL's data checksums must be on: a nonce that does not fit its page shows
    /// only as noise, and nothing else finds that.
    #[must_use]
    pub fn needs_data_checksums(self) -> bool {
        self.needs_full_page_images() && !self.authenticates()
    }

    /// Whether this build has what a cluster of this suite needs: clusters of 128 bits have their
    /// WAL in XTS-AES-128.
    ///
    /// # Errors
    /// [`NotApproved`] in a FIPS build.
    pub fn check_approved(self) -> Result<(), NotApproved> {
        match (self, self.for_kind(FileKind::Wal).0) {
            (Suite::Aegis256X2, _) => pgseal_crypto::check(Service::Aegis),
            (_, Suite::Aes128Xts) => pgseal_crypto::check(Service::Xts128),
            _ => Ok(()),
        }
    }

    /// The name, as in `--suite`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::Aes256Gcm => "aes-256-gcm",
            Suite::Aes128Xts => "aes-128-xts",
            Suite::Aes256Xts => "aes-256-xts",
            Suite::Aes128Ctr => "aes-128-ctr",
            Suite::Aes192Ctr => "aes-192-ctr",
            Suite::Aes256Ctr => "aes-256-ctr",
            Suite::Aegis256X2 => "aegis-256x2",
        }
    }

    /// The suite and layout of a file of this kind in a cluster whose relation suite is `self`.
    ///
    /// Files that are written once, and small files that PostgreSQL overwrites in place without a
    /// full-page image, are always authenticated; WAL is always in XTS, with a MAC for each page.
    /// The key length follows the cluster's; 192 bits exist for CTR only and become 256 elsewhere.
    /// AEGIS seals relations only; the other files are as with AES-256-GCM.
    #[must_use]
    pub fn for_kind(self, kind: FileKind) -> (Suite, Layout) {
        let short = matches!(self, Suite::Aes128Gcm | Suite::Aes128Xts | Suite::Aes128Ctr);
        let gcm = if short { Suite::Aes128Gcm } else { Suite::Aes256Gcm };
        let xts = if short { Suite::Aes128Xts } else { Suite::Aes256Xts };
        match kind {
            FileKind::Relation => match self {
                Suite::Aes128Xts | Suite::Aes256Xts => (self, Layout::InPlace),
                _ => (self, Layout::Paged),
            },
            FileKind::Stream => (gcm, Layout::Stream),
            FileKind::Wal => (xts, Layout::Wal),
            FileKind::Sectored => (gcm, Layout::Sectored),
        }
    }
}

/// How PostgreSQL uses a file, as far as the choice of suite and layout depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Pages of a relation: protected by full-page images.
    Relation,
    /// Written once, in order, or by write-and-rename.
    Stream,
    /// Appended to in place after a sync, torn writes tolerated behind what was synced (WAL).
    Wal,
    /// Overwritten in place without full-page images, torn writes tolerated (SLRU, relation map,
    /// logical mappings).
    Sectored,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [FileKind; 4] =
        [FileKind::Relation, FileKind::Stream, FileKind::Wal, FileKind::Sectored];
}

impl Layout {
    /// All layouts, in the order of their numbers.
    pub const ALL: [Layout; 5] =
        [Layout::Paged, Layout::Stream, Layout::InPlace, Layout::Sectored, Layout::Wal];

    /// The layout with this number in a header, if there is one.
    #[must_use]
    pub fn from_id(id: u16) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.id() == id)
    }

    /// The number of the layout in a header.
    #[must_use]
    pub fn id(self) -> u16 {
        self as u16
    }

    /// The name, as `pgseal inspect` shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Paged => "paged",
            Layout::Stream => "stream",
            Layout::InPlace => "in-place",
            Layout::Sectored => "sectored",
            Layout::Wal => "wal",
        }
    }

    /// Whether the layout can carry the suite.
    #[must_use]
    pub fn carries(self, suite: Suite) -> bool {
        match self {
            Layout::Paged => !matches!(suite, Suite::Aes128Xts | Suite::Aes256Xts),
            Layout::Stream | Layout::Sectored => suite.is_gcm(),
            Layout::InPlace | Layout::Wal => {
                matches!(suite, Suite::Aes128Xts | Suite::Aes256Xts)
            }
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSuite(pub String);

impl fmt::Display for UnknownSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no suite is called \"{}\"; use one of", self.0)?;
        for suite in Suite::ALL {
            write!(f, " {suite}")?;
        }
        write!(f, ", or gcm, xts, ctr, aegis for the 256-bit ones")
    }
}

impl std::error::Error for UnknownSuite {}

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Suite, UnknownSuite> {
        match text {
            "gcm" => return Ok(Suite::Aes256Gcm),
            "xts" => return Ok(Suite::Aes256Xts),
            "ctr" => return Ok(Suite::Aes256Ctr),
            "aegis" => return Ok(Suite::Aegis256X2),
            _ => {}
        }
        Suite::ALL
            .into_iter()
            .find(|suite| suite.name() == text)
            .ok_or_else(|| UnknownSuite(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for suite in Suite::ALL {
            assert_eq!(Suite::from_id(suite.id()), Some(suite));
            assert_eq!(suite.name().parse::<Suite>(), Ok(suite));
        }
        assert_eq!(Suite::from_id(0), None);
        assert_eq!(Suite::from_id(9), None);
        assert!("aes-512-gcm".parse::<Suite>().is_err());
    }

    #[test]
    fn every_kind_gets_a_layout_that_carries_its_suite() {
        for suite in Suite::ALL {
            for kind in FileKind::ALL {
                let (chosen, layout) = suite.for_kind(kind);
                assert!(layout.carries(chosen), "{suite} {kind:?} -> {chosen} {layout}");
            }
            for kind in [FileKind::Stream, FileKind::Sectored] {
                assert!(suite.for_kind(kind).0.authenticates());
            }
            assert_eq!(suite.for_kind(FileKind::Wal).1, Layout::Wal);
        }
    }
}
