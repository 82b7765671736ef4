//! Counts how often the key of a file was used (`spec/sealed-file.md`, section 11.1): adds the
//! samples that this process drew to those in the header, and tells when a file comes near the
//! limit.

use core::ffi::{CStr, c_int};

use libc::{O_CLOEXEC, O_RDONLY};
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::storage::Storage;
use pgseal_core::usage::{DUE, LIMIT};
use pgseal_core::{Generation, Layout, SealError, SealedFile, SealedOff, geometry};
use pgseal_pgdata::WalSegment;

use crate::file::gate;
use crate::file::named::Named;
use crate::file::range_lock::RangeLock;
use crate::file::storage::FdStorage;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys::{self, errno_of};
use crate::place::datadir;

/// Adds the new samples of a write that has ended to the header. The caller is not behind the gate
/// of the file and has no lock of it. A failure does not make the write fail: the samples wait for
/// the next one that this process draws for this file.
pub fn count(file: &mut SealedFile, fd: c_int, path: &[u8]) {
    let Some(samples) = file.new_samples() else { return };
    match add(file, fd, samples) {
        Ok(change) => {
            file.samples_counted();
            if let Some((before, after)) = change {
                tell(before, &after, path);
            }
        }
        Err(errno) => log::line(format_args!(
            "WARNING: \"{}\": the writes under its key could not be counted (errno {errno}); the next count of this process includes them",
            Shown(path)
        )),
    }
}

/// Writes the header with more samples. Returns the writes that were counted before, and the new
/// header; `None`: another key seals by now.
fn add(file: &SealedFile, fd: c_int, samples: (u32, u32)) -> Result<Option<(u64, Header)>, Errno> {
    let failed = |error: SealError| match &error {
        SealError::Io(error) => errno_of(error),
        _ => libc::EIO,
    };
    let _lock = RangeLock::exclusive(fd)?;
    let mut head = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd, &mut head, 0)?;
    let Kind::Sealed(header) = header::classify(&head[..got]).map_err(failed)? else {
        return Err(libc::EIO);
    };
    // Somebody put another file there.
    if header.file_id != file.header().file_id {
        return Err(libc::EIO);
    }
    let keys = load::of_header(&header)?;
    let counted = header::count(&head, &header, keys, samples, &KernelRandom).map_err(failed)?;
    let Some((head, after)) = counted else { return Ok(None) };
    FdStorage::new(fd).write_at(&head, SealedOff(0)).map_err(|error| errno_of(&error))?;
    Ok(Some((header.writes(), after)))
}

/// Asks for a new key for a file at half of the limit or beyond. Logs that a file has come to half
/// of the limit, or to the limit: once each, because whoever wrote the header saw the count before
/// and after.
fn tell(before: u64, after: &Header, path: &[u8]) {
    let crossed = |bound: u64| before < bound && after.writes() >= bound;
    // A segment of WAL gets a new key when PostgreSQL has no use for it: see `is_worn_out`.
    if after.layout == Layout::Wal || after.writes() < DUE {
        return;
    }
    let is_temporary = after.generation == Generation::EPHEMERAL;
    if !is_temporary {
        // Again with each sample: the worker may have failed, or had no room.
        gate::ask_for_keys();
    }
    if !crossed(LIMIT) && !crossed(DUE) {
        return;
    }
    let writes = after.writes();
    let bound = if crossed(LIMIT) { "the limit of 2^32" } else { "half of the limit of 2^32" };
    let named = Named::of(path);
    if is_temporary {
        log::line(format_args!(
            "WARNING: the key of {named} sealed about {writes} writes, {bound}; it is a temporary table: end the session that has it"
        ));
    } else {
        log::line(format_args!(
            "WARNING: the key of {named} sealed about {writes} writes, {bound}; the server gives it a new one if pgseal.auto_reseal is on; else run \"pgseal reseal\""
        ));
    }
}

/// Whether PostgreSQL is about to use an old segment of WAL again whose keys were used so often
/// that they are to be replaced. PostgreSQL removes a segment that it cannot rename, and makes a
/// new file, with new keys, in its place.
pub fn is_worn_out(from: &CStr, to: &CStr) -> bool {
    let is_segment =
        |path: &CStr| WalSegment::of_name(datadir::base_name(path.to_bytes())).is_some();
    if !is_segment(from) || !is_segment(to) {
        return false;
    }
    let mut head = [0; geometry::HEAD_LEN as usize];
    let got =
        sys::open(from, O_RDONLY | O_CLOEXEC, 0).and_then(|fd| sys::pread_full(fd.0, &mut head, 0));
    let Ok(got) = got else { return false };
    match header::classify(&head[..got]) {
        Ok(Kind::Sealed(header)) if header.layout == Layout::Wal && header.writes() >= DUE => {
            log::line(format_args!(
                "LOG: the keys of \"{}\" sealed about {} writes; PostgreSQL cannot use the file again, and makes a new one with new keys",
                Shown(from.to_bytes()),
                header.writes()
            ));
            true
        }
        _ => false,
    }
}
