//! Files whose head is no header that opens.
//!
//! Damage is an error of reading and writing a file, never of opening, sizing, emptying, renaming or
//! removing it: PostgreSQL drops, truncates and replaces files that it cannot read, and in some of
//! these places (`smgrexists` after a commit and in redo) takes no other error of an open than that
//! there is no such file. What never reached the disk in a power cut is no damage, where nobody
//! misses it. `spec/sealed-file.md`, section 3.2, has the table of decisions.

use core::ffi::c_int;
use core::fmt;

use pgseal_core::error::SealError;
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::memory::boxed;
use pgseal_core::storage::Storage;
use pgseal_core::{
    Generation, HeaderFault, KeyringId, Layout, PlainLen, SealedFile, SealedLen, geometry,
};
use pgseal_pgdata::{Class, Fork, Misplaced, Policy, Renewal};

use crate::file::storage::FdStorage;
use crate::file::want::Want;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::os::sys::errno_of;
use crate::place::datadir::{self, Location, Root};

/// Why a file does not open.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// The header is there and not acceptable.
    Header(HeaderFault),
    /// Zeros in the place of the header, and bytes behind.
    Lost,
    /// A plain file.
    Plain,
    /// No key for it is at hand.
    Key {
        /// The keyring that has it.
        keyring_id: KeyringId,
        /// Which key.
        generation: Generation,
    },
    /// It is another file of the cluster.
    Misplaced(Misplaced),
}

impl Reason {
    /// The reason behind an error of opening; what is none is an error as such.
    pub fn of(error: SealError) -> Result<Reason, SealError> {
        match error {
            SealError::Header(fault) => Ok(Reason::Header(fault)),
            SealError::KeyUnknown { keyring_id, generation } => {
                Ok(Reason::Key { keyring_id, generation })
            }
            error => Err(error),
        }
    }

    /// What an open fails with where even an open fails.
    pub fn errno(self) -> Errno {
        // No permission to what is there, rather than a broken disk.
        if matches!(self, Reason::Key { .. }) { libc::EACCES } else { libc::EIO }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Header(fault) => fault.fmt(f),
            Reason::Lost => f.write_str("it has blocks but its header is all zeros"),
            Reason::Misplaced(why) => why.fmt(f),
            Reason::Plain => f.write_str("it is a plain file where only sealed ones may be"),
            Reason::Key { keyring_id, generation } => {
                SealError::KeyUnknown { keyring_id: *keyring_id, generation: *generation }.fmt(f)
            }
        }
    }
}

/// The head of a file, looked at with the keys of its data directory.
pub enum Head {
    /// A sealed file, opened.
    Sealed(Box<SealedFile>),
    /// Nothing was written, or less than a header.
    Empty,
    /// One of these.
    Bad(Reason),
}

/// Looks at the head of a file; `start` is as much of it as there is.
pub fn look(
    fd: c_int,
    start: &[u8],
    want: Option<Want>,
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
    let keys = match want.map(|want| want.keys) {
        Some(keys) if keys.keyring_id == header.keyring_id => keys,
        _ => match load::with_id(header.keyring_id, root).map_err(errno)? {
            Some(keys) => keys,
            None => {
                let Header { keyring_id, generation, .. } = header;
                return Ok(Head::Bad(Reason::Key { keyring_id, generation }));
            }
        },
    };
    match SealedFile::from_header(start, header, keys) {
        Ok(file) => match want.and_then(|want| want.misplaced(&header)) {
            None => Ok(Head::Sealed(boxed(file)?)),
            Some(why) => Ok(Head::Bad(Reason::Misplaced(why))),
        },
        Err(error) => Ok(Head::Bad(Reason::of(error)?)),
    }
}

/// What a damaged file reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Zeros: nobody misses the content.
    Zeros,
    /// Pages that PostgreSQL does not accept, as a single one that does not authenticate.
    InvalidPages,
    /// Nothing: an error.
    Nothing,
}

/// A file of a sealed class that can be opened, and not read.
#[derive(Clone, Copy)]
pub struct Damage {
    /// How it would be sealed.
    pub want: Want,
    /// What is wrong.
    pub reason: Reason,
    reads: Reads,
    renewal: Renewal,
    is_told: bool,
}

/// What is to be done with a file whose head does not open.
#[expect(clippy::large_enum_variant, reason = "it is looked at once, and a box could fail")]
pub enum Handling {
    /// It was never written.
    NeverWritten,
    /// It opens, and is damaged.
    Opens(Damage),
    /// The open fails.
    Fails,
}

/// Decides about a file whose head does not open; `emptied`: the caller empties it at once.
pub fn judge(
    reason: Reason,
    class: Option<Class>,
    path: &[u8],
    want: Want,
    root: Option<&Root>,
    emptied: bool,
) -> Handling {
    let renewal = class.map_or(Renewal::Never, |class| class.renewal(path));
    let never_written = matches!(reason, Reason::Lost)
        && match renewal {
            Renewal::Empty => true,
            Renewal::ByRedo => root.is_some_and(|root| is_redone(class, root)),
            Renewal::Zeros | Renewal::Never => false,
        };
    if never_written {
        return Handling::NeverWritten;
    }
    if !emptied && !class.is_some_and(Class::opens_damaged) {
        return Handling::Fails;
    }
    let reads = class.map_or(Reads::Nothing, |class| reads(class, path));
    Handling::Opens(Damage { want, reason, reads, renewal, is_told: false })
}

fn reads(class: Class, path: &[u8]) -> Reads {
    match (class.renewal(path), class) {
        (Renewal::Zeros, _) => Reads::Zeros,
        (_, Class::Relation { .. }) => Reads::InvalidPages,
        _ => Reads::Nothing,
    }
}

/// A relation that cannot be read is never empty, so that reading it fails.
fn damaged_len(layout: Layout, sealed_len: SealedLen, reads: Reads) -> u64 {
    let at_least = if reads == Reads::InvalidPages { geometry::BLOCK_LEN } else { 0 };
    geometry::plain_len(layout, sealed_len).0.max(at_least)
}

/// Whether redo makes such a file anew, and has not been there yet. Of a relation only the process
/// that replays may think so: to sessions of a standby a table without its header is damaged.
fn is_redone(class: Option<Class>, root: &Root) -> bool {
    let is_relation = matches!(class, Some(Class::Relation { .. }));
    (!is_relation || datadir::replays_here() != Some(false)) && datadir::in_recovery(root)
}

impl Damage {
    /// The plain length.
    pub fn len(&self, storage: &FdStorage<'_>) -> Result<u64, Errno> {
        let sealed_len = storage.len().map_err(|error| errno_of(&error))?;
        Ok(damaged_len(self.want.form.layout, sealed_len, self.reads))
    }

    /// `pread`.
    pub fn read_at(
        &self,
        storage: &FdStorage<'_>,
        buf: &mut [u8],
        off: u64,
    ) -> Result<usize, Errno> {
        if self.reads == Reads::Nothing {
            return Err(libc::EIO);
        }
        let rest = self.len(storage)?.saturating_sub(off);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let part = &mut buf[..len];
        match self.reads {
            Reads::Zeros => part.fill(0),
            _ => pgseal_core::fill_with_invalid_pages(part, pgseal_core::PlainOff(off)),
        }
        Ok(len)
    }

    /// The length with which a write makes the file anew, of zeros: where nobody misses what it held.
    pub fn len_anew(&self, storage: &FdStorage<'_>) -> Result<Option<PlainLen>, Errno> {
        if self.reads != Reads::Zeros {
            return Ok(None);
        }
        self.len(storage).map(|len| Some(PlainLen(len)))
    }

    /// Whether the file gets a new header here and keeps its blocks, which do not open under it: a relation
    /// that redo is about to write to. Pages of which the WAL has images become good again; the
    /// checkpoint that writes them must not fail for one file, least of all the one that ends the
    /// recovery. All other pages stay what they are to a reader, invalid.
    ///
    /// Only in the process that replays: elsewhere a session may hold the file open under its old header, and
    /// write to it. A file whose key is only missing keeps its header.
    pub fn gets_header(&self) -> bool {
        self.reads == Reads::InvalidPages
            && !self.lacks_own_key()
            && datadir::replays_here() == Some(true)
    }

    fn lacks_own_key(&self) -> bool {
        matches!(self.reason, Reason::Key { keyring_id, .. } if keyring_id == self.want.keys.keyring_id)
    }

    /// One line to the log, once for each open file. Returns whether it was this time.
    pub fn tell(&mut self, path: &[u8]) -> bool {
        if core::mem::replace(&mut self.is_told, true) {
            return false;
        }
        let (reason, shown) = (self.reason, Shown(path));
        match (self.renewal.is_harmless(), reason) {
            (true, Reason::Lost) => tell_never_written(path),
            (true, _) => {
                log::line(format_args!("WARNING: \"{shown}\": {reason}; PostgreSQL makes it anew"))
            }
            (false, Reason::Key { .. }) => fails(reason, path),
            (false, _) if self.reads == Reads::InvalidPages => log::line(format_args!(
                "ERROR: \"{shown}\": {reason}; its pages are handed on as invalid pages, restore it from a backup or a standby, or drop it"
            )),
            (false, _) => fails(reason, path),
        }
        true
    }

    /// The line about a relation that redo gave a new header.
    pub fn tell_header(&self, path: &[u8]) {
        log::line(format_args!(
            "ERROR: \"{}\": {}; redo gives it a new header, and pages that the WAL does not have are handed on as invalid pages, restore it from a backup or a standby, or drop it",
            Shown(path),
            self.reason
        ));
    }
}

/// A file that a power cut left without its header, and that does not matter.
pub fn tell_never_written(path: &[u8]) {
    log::line(format_args!(
        "WARNING: \"{}\": its header never reached the disk; PostgreSQL makes it anew",
        Shown(path)
    ));
}

/// The line about a file that cannot be used at all.
pub fn fails(reason: Reason, path: &[u8]) {
    let shown = Shown(path);
    match reason {
        Reason::Plain if datadir::base_name(path) == b"RECOVERYXLOG" => log::line(format_args!(
            "ERROR: \"{shown}\": restore_command brought plain WAL; if it is to be taken from the archive of a plain server, name the program that writes it here, and it is sealed on the way: restore_command = 'PGSEAL_PROGRAMS=cp cp ...'"
        )),
        Reason::Plain => log::line(format_args!(
            "ERROR: \"{shown}\" is a plain file where only sealed ones may be; it was not written by this cluster, remove it or restore the sealed one"
        )),
        Reason::Lost => log::line(format_args!(
            "ERROR: \"{shown}\" has blocks but its header is all zeros: the file is damaged; restore it from a backup"
        )),
        Reason::Misplaced(_) => log::line(format_args!(
            "ERROR: \"{shown}\": {reason}; somebody put it here, restore the file from a backup"
        )),
        Reason::Header(_) => log::line(format_args!(
            "ERROR: \"{shown}\": {reason}; run \"pgseal verify\" and restore the file from a backup"
        )),
        Reason::Key { .. } => log::line(format_args!(
            "ERROR: \"{shown}\": {reason}; put the data directory whose keyring has it into PGSEAL_DATA"
        )),
    }
}

/// The plain size, as `stat` tells it, of a damaged file in a data directory whose keys are at hand: as
/// long as one that is opened. `is_lost`: there are zeros in the place of its header.
pub fn size_at(path: &[u8], sealed_len: SealedLen, is_lost: bool) -> Option<i64> {
    let Location { root, class, place } = datadir::locate(path)?;
    let Policy::Seal { reads_plain: false, .. } = class.policy() else { return None };
    if !class.opens_damaged() {
        return None;
    }
    if is_lost && class.renewal(path) == Renewal::Empty {
        return Some(0);
    }
    let form = class.form(place, root.loaded_keys()?.suite)?;
    let len = damaged_len(form.layout, sealed_len, reads(class, path));
    i64::try_from(len).ok()
}

/// Whether a page that does not authenticate reads as zeros: of the maps that are hints, and that
/// PostgreSQL writes without a full-page image now and then.
pub fn reads_zeros(class: Option<Class>) -> bool {
    matches!(class, Some(Class::Relation { fork: Fork::Vm | Fork::Fsm, .. }))
}
