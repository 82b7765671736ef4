//! The least length that each file of a relation must have, in memory that all processes of a
//! server share (`spec/while-it-runs.md`, section 3): a file that is shorter was cut by somebody
//! else.
//!
//! A file is named by its path in the data directory, because an emptied one has no header. What a
//! process of the server does with a file changes the length that is known: a write that lengthens
//! it raises it afterwards; truncation, removal and renaming drop it before. The first look at a
//! file learns it.

use core::ffi::c_int;
use core::ops::Range;
use std::sync::OnceLock;

use pgseal_core::geometry::BLOCK_LEN;
use pgseal_core::versions::{Page, Seen, Table, Version};
use pgseal_pgdata::{Class, segment_of};

use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir;

/// How many files have a slot of their own, a power of two: 4 MiB.
pub const FILES: usize = 1 << 18;
/// How often a length is looked at again that other processes change meanwhile.
const LOOKS: usize = 5;

static TABLE: OnceLock<Table> = OnceLock::new();

/// Lengths are kept in this table from now on.
pub fn keep_in(table: Table) {
    let _ = TABLE.set(table);
}

/// A recovery begins: all processes that were truncating have been killed.
pub fn recovery_begins() {
    if let Some(table) = TABLE.get() {
        table.all_writers_have_ended();
    }
}

/// A file whose length is kept.
#[derive(Clone, Copy)]
pub struct Watched {
    table: &'static Table,
    file: Page,
}

/// A file that is shorter than the server left it, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    /// The length that it has.
    pub len: u64,
    /// The least length that it must have.
    pub least: u64,
}

impl Shortage {
    /// The pages that become a hole if the file is written at `off`, which only a recovery may do.
    pub fn lost(self, off: u64) -> Result<Range<u64>, Errno> {
        if !datadir::cwd_root().is_some_and(datadir::in_recovery) {
            return Err(libc::EIO);
        }
        Ok(self.len / BLOCK_LEN..off.min(self.least).div_ceil(BLOCK_LEN))
    }
}

/// A truncation that is under way.
#[must_use]
pub struct Cutting {
    watched: Watched,
    begun: Seen,
}

impl Cutting {
    /// The file has this length now; `None`: its length is not known.
    pub fn ended(self, len: Option<u64>) {
        let Watched { table, file } = self.watched;
        table.written(file, self.begun, len.map(|len| Version::of_length(len / BLOCK_LEN)));
    }
}

impl Watched {
    /// The file of this class at a path, if its length is kept. Those of free space and visibility
    /// maps are not: what is missing there reads as zeros, which is always a safe answer.
    pub fn at(path: &[u8], class: Option<Class>) -> Option<Watched> {
        let table = TABLE.get()?;
        if !matches!(class, Some(class @ Class::Relation { .. }) if !class.is_map_of_hints()) {
            return None;
        }
        // Under another path the same file would have another name.
        let file = datadir::within(datadir::cwd_root()?, path, Page::named)?;
        Some(Watched { table, file })
    }

    /// As [`Watched::at`], for a file of any class.
    fn at_path(path: &[u8]) -> Option<Watched> {
        TABLE.get()?;
        Watched::at(path, Some(datadir::locate(path)?.class))
    }

    /// To be called before the length is looked at, or a write that may lengthen the file.
    #[inline]
    pub fn before(self) -> Seen {
        self.table.before_read(self.file)
    }

    /// The least length that the file must have in bytes, if nobody has changed it since `before`;
    /// otherwise 0.
    #[inline]
    pub fn least(self, before: Seen) -> u64 {
        self.table.least_length(self.file, before) * BLOCK_LEN
    }

    /// The file has at least this length after a write that began after `before`.
    pub fn has_grown(self, before: Seen, len: u64) {
        self.table.note_length(self.file, before, len / BLOCK_LEN);
    }

    /// Whether the file is shorter than it must be. `len` asks the kernel; `is_named`: whether the
    /// file still has a name. A length that is greater than what is known is kept.
    pub fn shortage<E>(
        self,
        mut len: impl FnMut() -> Result<u64, E>,
        is_named: impl Fn() -> bool,
    ) -> Result<Result<u64, Shortage>, E> {
        for _ in 0..LOOKS {
            let before = self.before();
            let found = len()?;
            let least = self.least(before);
            if self.before() != before {
                continue;
            }
            let whole = found - found % BLOCK_LEN;
            if whole < least {
                return Ok(Err(Shortage { len: found, least }));
            }
            if whole > least && is_named() {
                self.has_grown(before, whole);
            }
            return Ok(Ok(found));
        }
        len().map(Ok)
    }

    /// To be called before the file is truncated, or lengthened other than by a write.
    pub fn will_cut(self) -> Cutting {
        Cutting { watched: self, begun: self.table.will_write(self.file) }
    }
}

/// Whether the file behind a descriptor still has a name.
pub fn is_named(fd: c_int) -> bool {
    sys::fstat(fd).is_some_and(|st| st.st_nlink > 0)
}

/// Forgets the length of the file at a path: it is new, or about to get another name or none, or
/// has just lost its name.
pub fn forget(path: &[u8]) {
    if let Some(watched) = Watched::at_path(path) {
        watched.will_cut().ended(None);
    }
}

/// The size that `stat` reports for a file at a path that is shorter than it must be; `size` asks
/// for the size that it has.
pub fn size_at(path: &[u8], size: impl FnMut() -> Result<u64, ()>) -> Option<u64> {
    let shortage = Watched::at_path(path)?.shortage(size, || false).ok()?;
    shortage.err().map(|shortage| shortage.least)
}

/// Whether a file that is not there is a later segment of a relation, and had pages.
pub fn is_lost_segment(path: &[u8]) -> bool {
    segment_of(path).1 > 0
        && Watched::at_path(path).is_some_and(|watched| watched.least(watched.before()) > 0)
}
