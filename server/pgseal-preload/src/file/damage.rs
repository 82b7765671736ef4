//! Files whose header is missing, damaged, or cannot be opened with the keys at hand.
//!
//! A damaged file fails when it is read or written, never when it is opened, sized, truncated,
//! renamed or removed: PostgreSQL drops, truncates and replaces files that it cannot read, and in
//! some of these places (`smgrexists` after a commit and in redo) accepts no open error but ENOENT.
//! A file that a power cut left without its header is not damaged if PostgreSQL creates it anew.
//! `spec/sealed-file.md`, section 3.2, has the table of decisions.

use core::ffi::c_int;
use core::fmt;
use core::ops::Range;

use pgseal_core::error::SealError;
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::memory::boxed;
use pgseal_core::storage::Storage;
use pgseal_core::{
    Generation, HeaderFault, KeyringId, Layout, PlainLen, PlainOff, SealedFile, SealedLen, geometry,
};
use pgseal_keys::manifest::Difference;
use pgseal_pgdata::{Class, Misplaced, Renewal};

use crate::file::guard;
use crate::file::named::Named;
use crate::file::plan;
use crate::file::sealing::Sealing;
use crate::file::storage::FdStorage;
use crate::keys::load;
use crate::keys::renewal;
use crate::os::log;
use crate::os::real::Errno;
use crate::os::sys::errno_of;
use crate::place::datadir::{self, Location, Root};
use crate::place::program::{self, Role};
use crate::place::symbol::is_walsender;

/// Why a file does not open.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// There is a header, and it is not valid.
    Header(HeaderFault),
    /// The header is all zeros, and bytes follow it.
    Lost,
    /// A plain file.
    Plain,
    /// The key for the file is not at hand.
    Key {
        /// The keyring that has it.
        keyring_id: KeyringId,
        /// Which key.
        generation: Generation,
    },
    /// The file belongs at another path of the cluster.
    Misplaced(Misplaced),
    /// The file is not as the manifest says.
    Differs(Difference),
}

impl Reason {
    /// Converts an error of opening a file. Errors that do not make the file damaged are returned
    /// as `Err`.
    pub fn of(error: SealError) -> Result<Reason, SealError> {
        match error {
            SealError::Header(fault) => Ok(Reason::Header(fault)),
            SealError::KeyUnknown { keyring_id, generation } => {
                Ok(Reason::Key { keyring_id, generation })
            }
            error => Err(error),
        }
    }

    /// The error number for classes of files of which even the open fails.
    pub fn errno(self) -> Errno {
        // EACCES, not EIO: the file exists and the key is missing; the disk is not broken.
        if matches!(self, Reason::Key { .. }) { libc::EACCES } else { libc::EIO }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Header(fault) => fault.fmt(f),
            Reason::Lost => f.write_str("it has blocks but its header is all zeros"),
            Reason::Misplaced(why) => why.fmt(f),
            Reason::Differs(difference) => difference.fmt(f),
            Reason::Plain => f.write_str("it is a plain file where only sealed ones may be"),
            Reason::Key { keyring_id, generation } => {
                SealError::KeyUnknown { keyring_id: *keyring_id, generation: *generation }.fmt(f)
            }
        }
    }
}

/// The head of a file, as classified with the keys of its data directory.
pub enum Head {
    /// A sealed file, opened.
    Sealed(Box<SealedFile>),
    /// The file holds no header yet: it is empty, or its head is zeros or incomplete with nothing
    /// behind it.
    Empty,
    /// The file cannot be opened, for this reason.
    Bad(Reason),
}

/// Classifies the head of a file. `start` holds its first bytes: [`geometry::HEAD_LEN`], or fewer
/// if the file is shorter.
pub fn look(
    fd: c_int,
    start: &[u8],
    sealing: Option<Sealing>,
    root: Option<&'static Root>,
) -> Result<Head, SealError> {
    let errno = |errno| SealError::Io(std::io::Error::from_raw_os_error(errno));
    let header = match header::classify(start) {
        Ok(Kind::Sealed(header)) => header,
        Ok(Kind::NoHeader) => {
            let has_blocks = FdStorage::new(fd).len()?.0 > geometry::HEADER_LEN;
            return Ok(if has_blocks { Head::Bad(Reason::Lost) } else { Head::Empty });
        }
        Ok(Kind::Plain) => return Ok(Head::Bad(Reason::Plain)),
        Err(SealError::Header(fault)) => return Ok(Head::Bad(Reason::Header(fault))),
        Err(error) => return Err(error),
    };
    let keys = match sealing.map(|sealing| sealing.keys) {
        Some(keys) if keys.keyring_id == header.keyring_id => keys,
        _ => match load::with_id(header.keyring_id, root).map_err(errno)? {
            Some(keys) => keys,
            None => {
                let Header { keyring_id, generation, .. } = header;
                return Ok(Head::Bad(Reason::Key { keyring_id, generation }));
            }
        },
    };
    // The file may have been opened before a newer data key came.
    renewal::catch_up(keys);
    match SealedFile::from_header(start, header, keys) {
        Ok(file) => match sealing.and_then(|sealing| sealing.misplaced(&header)) {
            None => Ok(Head::Sealed(boxed(file)?)),
            Some(why) => Ok(Head::Bad(Reason::Misplaced(why))),
        },
        Err(error) => Ok(Head::Bad(Reason::of(error)?)),
    }
}

/// What reading a damaged file returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Zeros: PostgreSQL does not depend on the content.
    Zeros,
    /// Pages that PostgreSQL rejects as invalid, as for a single page that does not authenticate.
    InvalidPages,
    /// An error.
    Nothing,
}

/// Whether reading a page of a relation that does not authenticate fails, rather than give an
/// invalid page, through a descriptor that is writable or not. A backend gets an invalid page: it
/// reports the page with its block, counts it, and can be told to skip it (`zero_damaged_pages`).
/// So does `pg_checksums --check`. These would hand the page on without a look at it:
/// - a base backup, if the server has no data checksums that it could verify;
/// - a program that writes back what it reads, as `pg_checksums --enable` does. It would seal the
///   invalid page in the place of what may still be restored;
/// - a program that copies: `pg_rewind`, `pg_upgrade`, `pg_combinebackup`, and those that
///   `PGSEAL_PROGRAMS` names.
///
/// A file that belongs to no relation ([`super::named::is_orphan`]) gives invalid pages all the
/// same: a crash leaves such files, and they must not stop every backup after it.
pub fn page_fails(writable: bool) -> bool {
    match program::role() {
        Role::Server | Role::Standalone => guard::has_no_checksums() && is_walsender(),
        Role::Walker => writable || program::rewinds(),
        Role::Tool | Role::Upgrade | Role::CombineBackup => true,
        _ => false,
    }
}

/// A damaged file of a sealed class: its open succeeds.
#[derive(Clone, Copy)]
pub struct Damage {
    /// How the file is sealed when it is created anew.
    pub sealing: Sealing,
    /// Why the file is damaged.
    pub reason: Reason,
    reads: Reads,
    renewal: Renewal,
    is_told: bool,
}

/// What an open does with a file whose header does not open.
#[expect(clippy::large_enum_variant, reason = "it is looked at once, and a box could fail")]
pub enum Handling {
    /// The open succeeds: the file counts as empty.
    NeverWritten,
    /// The open succeeds, and the file is damaged.
    Opens(Damage),
    /// The open fails.
    Fails,
}

/// Decides about a file whose header does not open. `emptied`: the caller truncates it at once.
/// `is_zeros`: whether the whole file is zeros; not asked if that does not matter.
pub fn judge(
    reason: Reason,
    class: Option<Class>,
    path: &[u8],
    sealing: Sealing,
    root: Option<&Root>,
    emptied: bool,
    is_zeros: impl FnOnce() -> bool,
) -> Handling {
    let renewal = class.map_or(Renewal::Never, |class| class.renewal(path));
    let never_written = matches!(reason, Reason::Lost)
        && match renewal {
            Renewal::Empty => true,
            Renewal::ByRedo => {
                root.is_some_and(|root| is_redone(class, root))
                    || matches!(class, Some(Class::Relation { .. })) && is_zeros()
            }
            Renewal::Zeros | Renewal::RefusedZeros | Renewal::Never => false,
        };
    if never_written {
        return Handling::NeverWritten;
    }
    if !emptied && !class.is_some_and(Class::opens_damaged) {
        return Handling::Fails;
    }
    let is_lost = matches!(reason, Reason::Lost);
    let reads = class.map_or(Reads::Nothing, |class| reads(class, path, is_lost));
    Handling::Opens(Damage { sealing, reason, reads, renewal, is_told: false })
}

fn reads(class: Class, path: &[u8], is_lost: bool) -> Reads {
    match (class.renewal(path), class) {
        (Renewal::Zeros, _) => Reads::Zeros,
        (Renewal::RefusedZeros, _) if is_lost => Reads::Zeros,
        (_, Class::Relation { .. }) => Reads::InvalidPages,
        _ => Reads::Nothing,
    }
}

/// The plain length of a damaged file. A damaged relation is never empty, so that reading it fails.
fn damaged_len(layout: Layout, sealed_len: SealedLen, reads: Reads) -> u64 {
    let at_least = if reads == Reads::InvalidPages { geometry::BLOCK_LEN } else { 0 };
    geometry::plain_len(layout, sealed_len).0.max(at_least)
}

/// Whether redo will still create this file anew. For a relation this is only assumed in the
/// process that replays WAL: for sessions of a standby a relation without a header is damaged.
fn is_redone(class: Option<Class>, root: &Root) -> bool {
    let is_relation = matches!(class, Some(Class::Relation { .. }));
    (!is_relation || datadir::replays_here() != Some(false)) && datadir::in_recovery(root)
}

impl Damage {
    /// The plain length.
    pub fn len(&self, storage: &FdStorage<'_>) -> Result<u64, Errno> {
        let sealed_len = storage.len().map_err(|error| errno_of(&error))?;
        Ok(damaged_len(self.sealing.form.layout, sealed_len, self.reads))
    }

    /// Whether reads give invalid pages, if they do not fail.
    pub fn reads_invalid_pages(&self) -> bool {
        self.reads == Reads::InvalidPages
    }

    /// `preadv`; `fails`: instead of giving invalid pages.
    pub fn read_at(
        &self,
        storage: &FdStorage<'_>,
        fails: bool,
        parts: &mut [&mut [u8]],
        off: u64,
    ) -> Result<usize, Errno> {
        if fails || self.reads == Reads::Nothing {
            return Err(libc::EIO);
        }
        let rest = self.len(storage)?.saturating_sub(off);
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        Ok(fill_parts(parts, 0..rest, |piece, at| match self.reads {
            Reads::Zeros => piece.fill(0),
            _ => pgseal_core::fill_with_invalid_pages(piece, PlainOff(off + at as u64)),
        }))
    }

    /// The plain length of the zeros with which a write replaces the file; `None` if its content
    /// matters.
    pub fn len_anew(&self, storage: &FdStorage<'_>) -> Result<Option<PlainLen>, Errno> {
        if self.reads != Reads::Zeros {
            return Ok(None);
        }
        self.len(storage).map(|len| Some(PlainLen(len)))
    }

    /// Whether a write gives the file a new header and keeps its blocks, which do not authenticate
    /// under that header: a relation that redo is about to write to. Pages of which the WAL has
    /// full-page images become valid again, and all others read as invalid pages. Without the new
    /// header the checkpoint that writes the pages would fail for this one file, and so might the
    /// one that ends the recovery.
    ///
    /// Only in the process that replays WAL: elsewhere a session may hold the file open under its
    /// old header, and write to it. A file of which only the key is missing keeps its header.
    pub fn gets_header(&self) -> bool {
        self.reads == Reads::InvalidPages
            && !self.differs()
            && !self.lacks_own_key()
            && datadir::replays_here() == Some(true)
    }

    /// Whether the file opens, but is not as the manifest says.
    pub fn differs(&self) -> bool {
        matches!(self.reason, Reason::Differs(_))
    }

    fn lacks_own_key(&self) -> bool {
        matches!(self.reason, Reason::Key { keyring_id, .. } if keyring_id == self.sealing.keys.keyring_id)
    }

    /// Writes one line to the log, once for each open file. `fails`: a read of it fails instead of
    /// giving invalid pages. Returns whether this call wrote the line.
    pub fn tell(&mut self, path: &[u8], fails: bool) -> bool {
        if core::mem::replace(&mut self.is_told, true) {
            return false;
        }
        let (reason, named) = (self.reason, Named::of(path));
        match (self.renewal.is_harmless(), reason) {
            (true, Reason::Lost) => tell_never_written(path),
            (true, _) => {
                log::line(format_args!("WARNING: {named}: {reason}; PostgreSQL makes it anew"))
            }
            (false, Reason::Key { .. }) => self::fails(reason, path),
            (false, _) if fails => log::line(format_args!(
                "ERROR: {named}: {reason}; its pages are not handed on, {}",
                named.remedy()
            )),
            (false, Reason::Differs(_)) if self.reads == Reads::InvalidPages => {
                log::line(format_args!(
                    "ERROR: {named}: {reason}; its pages are handed on as invalid pages: stop the server and restore the data directory from a backup, or drop the relation, or accept the file with \"pgseal manifest write\""
                ))
            }
            (false, _) if self.reads == Reads::InvalidPages => log::line(format_args!(
                "ERROR: {named}: {reason}; its pages are handed on as invalid pages, {}",
                named.remedy()
            )),
            (false, _) => self::fails(reason, path),
        }
        true
    }

    /// Logs that redo gives a relation a new header.
    pub fn tell_header(&self, path: &[u8]) {
        let (reason, named) = (self.reason, Named::of(path));
        let remedy = named.remedy();
        log::line(format_args!(
            "ERROR: {named}: {reason}; redo gives it a new header, and pages that the WAL does not have are handed on as invalid pages, {remedy}"
        ));
    }
}

/// Logs that a power cut left a file without its header, and that PostgreSQL creates the file anew.
pub fn tell_never_written(path: &[u8]) {
    log::line(format_args!(
        "WARNING: {}: its header never reached the disk; PostgreSQL makes it anew",
        Named::of(path)
    ));
}

/// Logs why a file cannot be used at all.
pub fn fails(reason: Reason, path: &[u8]) {
    let named = Named::of(path);
    match reason {
        Reason::Plain if datadir::base_name(path) == b"RECOVERYXLOG" => log::line(format_args!(
            "ERROR: {named}: restore_command brought plain WAL; if it is to be taken from the archive of a plain server, name the program that writes it here, and it is sealed on the way: restore_command = 'PGSEAL_PROGRAMS=cp cp ...'"
        )),
        Reason::Plain => log::line(format_args!(
            "ERROR: {named} is a plain file where only sealed ones may be; it was not written by this cluster, remove it or restore the sealed one"
        )),
        Reason::Lost => log::line(format_args!(
            "ERROR: {named} has blocks but its header is all zeros: the file is damaged; restore it from a backup"
        )),
        Reason::Misplaced(_) => log::line(format_args!(
            "ERROR: {named}: {reason}; somebody put it here, restore the file from a backup"
        )),
        Reason::Differs(_) => log::line(format_args!(
            "ERROR: {named}: {reason}; restore the data directory from a backup, or accept the file with \"pgseal manifest write\""
        )),
        Reason::Header(_) => log::line(format_args!(
            "ERROR: {named}: {reason}; run \"pgseal verify\" and restore the file from a backup"
        )),
        Reason::Key { .. } => log::line(format_args!(
            "ERROR: {named}: {reason}; put the data directory whose keyring has it into PGSEAL_DATA"
        )),
    }
}

/// The plain size that `stat` reports for a damaged file in a data directory whose keys are loaded:
/// the same as the length of the file once it is open. `is_lost`: the header is all zeros.
pub fn size_at(path: &[u8], sealed_len: SealedLen, is_lost: bool) -> Option<i64> {
    let location = datadir::locate(path)?;
    if !location.class.opens_damaged() || !plan::must_be_sealed(path, &location) {
        return None;
    }
    let Location { root, class, place } = location;
    if is_lost && class.renewal(path) == Renewal::Empty {
        return Some(0);
    }
    let form = class.form(place, root.loaded_keys()?.suite())?;
    let len = damaged_len(form.layout, sealed_len, reads(class, path, is_lost));
    i64::try_from(len).ok()
}

/// Whether a page that does not authenticate reads as zeros. True for the free space map and the
/// visibility map: they are hints, and PostgreSQL writes some of their changes without a full-page
/// image.
pub fn reads_zeros(class: Option<Class>) -> bool {
    class.is_some_and(Class::is_map_of_hints)
}

/// Fills what the parts of a `preadv` have of a range of the bytes that it reads: calls `fill` with
/// each piece and its offset among these bytes. Returns the end of what was filled, at least the
/// start of the range.
pub fn fill_parts(
    parts: &mut [&mut [u8]],
    range: Range<usize>,
    mut fill: impl FnMut(&mut [u8], usize),
) -> usize {
    let (mut at, mut end) = (0, range.start);
    for part in parts {
        let from = range.start.clamp(at, at + part.len());
        let to = range.end.clamp(from, at + part.len());
        if from < to {
            fill(&mut part[from - at..to - at], from);
            end = to;
        }
        at += part.len();
    }
    end
}
