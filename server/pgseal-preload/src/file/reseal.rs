//! Another file key for a relation while the server runs (`spec/sealed-file.md`, section 6.1).
//!
//! The extension drives it (`server/guard/reseal.c`): it opens a segment of a relation, calls
//! [`begin`], has PostgreSQL write the pages anew that [`others`] names, and calls [`end`].
//!
//! The functions of C take a descriptor of the file, open for reading and writing, and return 0 or
//! an error number.

use core::ffi::{CStr, c_char, c_int};

use pgseal_core::error::SealError;
use pgseal_core::header::{self, Header, Kind, Stage};
use pgseal_core::storage::Storage;
use pgseal_core::{Census, GroupKeys, SealedFile, SealedOff, geometry, usage};

use crate::file::fds;
use crate::file::gate;
use crate::file::open_file::describe;
use crate::file::range_lock::RangeLock;
use crate::file::storage::FdStorage;
use crate::keys::{helper, load};
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys::{self, errno_of};
use crate::place::datadir;

/// The room for the name of a suite, as `server/guard/reseal.h` has it.
const SUITE_NAME_LEN: usize = 32;

/// Writes the header of the next stage if the file is still at the stage `from`. Returns the stage
/// after that.
fn advance(fd: c_int, path: &[u8], from: Stage) -> Result<Stage, Errno> {
    let _lock = RangeLock::exclusive(fd)?;
    advance_locked(fd, path, from)
}

fn advance_locked(fd: c_int, path: &[u8], from: Stage) -> Result<Stage, Errno> {
    let failed = |error: SealError| describe(&error, path);
    let mut head = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd, &mut head, 0)?;
    let Kind::Sealed(header) = header::classify(&head[..got]).map_err(failed)? else {
        return Err(libc::EIO);
    };
    if header.stage != from {
        return Ok(header.stage);
    }
    let next = header::advance(&head, &header, load::of_header(&header)?, &KernelRandom)
        .map_err(failed)?;
    FdStorage::new(fd).write_at(&next, SealedOff(0)).map_err(|error| errno_of(&error))?;
    Ok(from.next())
}

fn sync(fd: c_int) -> Result<(), Errno> {
    FdStorage::new(fd).sync().map_err(|error| errno_of(&error))
}

/// Tells all processes that the header has changed, and waits until they have noticed.
fn tell(file_id: &[u8; 16], path: &[u8]) -> Result<(), Errno> {
    gate::header_has_changed(file_id).map_err(|_| {
        log::line(format_args!(
            "ERROR: \"{}\": a write to this file has not ended for a minute; reseal the relation again later",
            Shown(path)
        ));
        libc::EBUSY
    })
}

/// The sealed file behind a descriptor, with the keys that its header has now.
fn with_file<T>(
    fd: c_int,
    part: impl FnOnce(&mut SealedFile, &[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let shared = fds::get(fd).ok_or(libc::EINVAL)?;
    let mut open = fds::lock(&shared);
    open.take_over_keys(fd)?;
    open.with_sealed(part)
}

/// The identity and the path of a file whose header is about to change.
fn will_change(fd: c_int) -> Result<([u8; 16], Vec<u8>), Errno> {
    let shared = fds::get(fd).ok_or(libc::EINVAL)?;
    let mut open = fds::lock(&shared);
    open.take_over_keys(fd)?;
    open.will_change();
    open.with_sealed(|file, path| Ok((file.header().file_id, path.to_vec())))
}

/// Gives the file a new key, and returns when every page that any process writes from now on is
/// sealed with it. Goes on where an earlier run was interrupted.
fn begin(fd: c_int) -> Result<(), Errno> {
    if !gate::is_shared() {
        return Err(libc::ENOSYS);
    }
    let (file_id, path) = will_change(fd)?;
    let path = &path[..];
    let mut stage = advance(fd, path, Stage::Settled)?;
    if stage == Stage::Announced {
        // On the disk, and known to all, before the first page is sealed with the new key. Whoever
        // wrote this header may not have come so far.
        sync(fd)?;
        tell(&file_id, path)?;
        stage = advance(fd, path, Stage::Announced)?;
    }
    if stage != Stage::Moving {
        // Another process has ended a run meanwhile.
        return Err(libc::EAGAIN);
    }
    tell(&file_id, path)
}

/// Which pages of a group are still sealed with another key; `None` behind the end of the file.
fn others(fd: c_int, group: u64) -> Result<Option<GroupKeys>, Errno> {
    with_file(fd, |file, path| {
        file.group_keys(&FdStorage::new(fd), group).map_err(|error| describe(&error, path))
    })
}

/// Drops the older key if no page has it any more. `EAGAIN`: pages have it.
fn end(fd: c_int) -> Result<(), Errno> {
    let (file_id, path) = will_change(fd)?;
    let path = &path[..];
    // No process may seal with the older key any more, whoever wrote the header.
    tell(&file_id, path)?;
    {
        // A write that could put an older entry back takes this lock, too.
        let _lock = RangeLock::exclusive(fd)?;
        let census = with_file(fd, |file, path| {
            match file.header().stage {
                Stage::Moving => {}
                Stage::Settled => return Ok(None),
                Stage::Announced => return Err(libc::EAGAIN),
            }
            let census = file.census(&FdStorage::new(fd));
            census.map(Some).map_err(|error| describe(&error, path))
        })?;
        match census {
            None => return Ok(()),
            Some(Census { others: 0, .. }) => {}
            Some(_) => return Err(libc::EAGAIN),
        }
        sync(fd)?;
        advance_locked(fd, path, Stage::Moving)?;
    }
    tell(&file_id, path)?;
    sync(fd)
}

fn result(done: Result<(), Errno>) -> c_int {
    done.err().unwrap_or(0)
}

/// For the extension: see [`begin`].
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_reseal_begin(fd: c_int) -> c_int {
    result(with_reserve(|| begin(fd)))
}

/// For the extension: see [`end`].
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_reseal_end(fd: c_int) -> c_int {
    result(with_reserve(|| end(fd)))
}

/// Has the helper write a line of the audit trail (`spec/audit.md`).
fn record(outcome: &[u8], detail: &[u8]) -> Result<(), Errno> {
    let root = datadir::cwd_root().ok_or(libc::ENOENT)?.real();
    let keys = load::of(root)?;
    let mut arguments = helper::of_cluster(b"record-reseal", root.path(), keys.keyring_id);
    arguments.extend([b"--generation".to_vec(), keys.active().0.to_string().into_bytes()]);
    arguments.extend([b"--outcome".to_vec(), outcome.to_vec()]);
    arguments.extend([b"--detail".to_vec(), detail.to_vec()]);
    helper::run(&arguments).map(drop)
}

/// For the guard module: writes a line of the audit trail about new file keys: `begun`, `done` or
/// `failed`, and what it is about. Fails only if the trail is required and does not take the line;
/// the server's log then says why.
///
/// # Safety
/// Both are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_reseal_record(
    outcome: *const c_char,
    detail: *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    let [outcome, detail] = [outcome, detail].map(|text| unsafe { CStr::from_ptr(text) });
    result(with_reserve(|| record(outcome.to_bytes(), detail.to_bytes())))
}

/// For the extension: sets a bit in `bits` (32 bytes) for each page of a group of 256 that is still
/// sealed with another key than the newest. `ENOENT`: the file ends before the group.
///
/// # Safety
/// `bits` is valid for writes of 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_reseal_others(fd: c_int, group: u64, bits: *mut u8) -> c_int {
    match with_reserve(|| others(fd, group)) {
        Ok(Some(keys)) => {
            // SAFETY: the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(keys.others.as_ptr(), bits, 32) };
            0
        }
        Ok(None) => libc::ENOENT,
        Err(errno) => errno,
    }
}

/// For the extension: how often a file came so near to the limit of its key that it is to get a new
/// one, since the server started.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_reseal_asked() -> u64 {
    gate::asked_for_keys()
}

/// For the extension: a worker has come to its end, and has left so many files with two keys, or
/// with their old one.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_reseal_ended(failed: u64) {
    gate::resealing_ended(failed);
}

/// For the extension: how many workers have come to their end since the server started, and how
/// many files they have left with two keys, or with their old one.
///
/// # Safety
/// `numbers` is valid for writes of 2 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_reseal_outcome(numbers: *mut u64) {
    let outcome = gate::resealings();
    // SAFETY: the caller's contract.
    unsafe { core::ptr::copy_nonoverlapping(outcome.as_ptr(), numbers, outcome.len()) };
}

/// For the extension: the number of the newest file key, the stage (0 one key, 1 and 2 two keys),
/// if there are two, how many pages have the newest key, another one, and none, then about how many
/// writes the key that seals has sealed, and from how many on the file is to get a new one.
/// `EINVAL`: this is no sealed file with pages.
///
/// # Safety
/// `numbers` is valid for writes of 7 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_reseal_state(fd: c_int, numbers: *mut u64) -> c_int {
    let state = with_reserve(|| {
        with_file(fd, |file, path| {
            let census = match file.header().stage {
                Stage::Settled => Ok(Census::default()),
                Stage::Announced | Stage::Moving => file.census(&FdStorage::new(fd)),
            };
            let Census { newest, others, holes } =
                census.map_err(|error| describe(&error, path))?;
            let header @ Header { key_number, stage, .. } = *file.header();
            let key_number = u64::from(key_number);
            Ok([key_number, stage as u64, newest, others, holes, header.writes(), usage::DUE])
        })
    });
    match state {
        Ok(state) => {
            // SAFETY: the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(state.as_ptr(), numbers, state.len()) };
            0
        }
        Err(errno) => errno,
    }
}

/// For the guard module: the name of the suite of a sealed file, as a C string of at most 32 bytes,
/// and whether new files of relations get another suite. `EINVAL`: this is no sealed file with a
/// header.
///
/// # Safety
/// `name` is valid for writes of 32 bytes, `is_older` for one of a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_suite_of(
    fd: c_int,
    name: *mut c_char,
    is_older: *mut c_int,
) -> c_int {
    let suite = with_reserve(|| {
        let header = with_file(fd, |file, _| Ok(*file.header()))?;
        Ok((header.suite, load::of_header(&header)?.suite() != header.suite))
    });
    match suite {
        Ok((suite, older)) => {
            let mut text = [0; SUITE_NAME_LEN];
            let len = suite.name().len().min(SUITE_NAME_LEN - 1);
            text[..len].copy_from_slice(&suite.name().as_bytes()[..len]);
            // SAFETY: the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
            // SAFETY: the same.
            unsafe { is_older.write(c_int::from(older)) };
            0
        }
        Err(errno) => errno,
    }
}
