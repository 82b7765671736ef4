//! Changes that the server itself makes to a locked configuration: `ALTER SYSTEM` replaces a file,
//! and the end of recovery removes a signal file.
//!
//! First the record is changed to allow the old and the new state, then the server changes the
//! file, then the record is changed to allow the new state alone. A crash at any point leaves a
//! state that the record allows.

use core::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_keys::config_record::Version;

use super::record::{self, Alone};
use super::{AUTO, AUTO_NEW, Located, SIGNALS, in_memory, is_server, locate, read};
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::real;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Root};

/// The new `postgresql.auto.conf` as the server has written it, in memory that no other process can
/// write to. In a file, other processes could change it before it is recorded.
static STAGED: Mutex<Option<sys::Fd>> = Mutex::new(None);

fn staged_file() -> MutexGuard<'static, Option<sys::Fd>> {
    STAGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The descriptor for the file that `ALTER SYSTEM` writes; `None`: the file is opened like any
/// other.
pub(super) fn staged(file: &Located, path: &CStr, flags: c_int) -> Option<Result<c_int, Errno>> {
    match record::current(file.root) {
        Ok(Some(_)) => {}
        Ok(None) => return None,
        Err(errno) => return Some(Err(errno)),
    }
    if flags & libc::O_CREAT != 0 {
        return Some(stage(flags));
    }
    // The server opens the file again to sync it before the rename: write it out now.
    write_out(path).err().map(Err)
}

fn stage(flags: c_int) -> Result<c_int, Errno> {
    let fd = in_memory(&[], flags)?;
    // SAFETY: no pointers involved.
    let copy = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, core::ptr::null_mut()) };
    if copy < 0 {
        let errno = real::errno();
        // SAFETY: ours.
        unsafe { real::close(fd) };
        return Err(errno);
    }
    *staged_file() = Some(sys::Fd(copy));
    Ok(fd)
}

fn staged_bytes() -> Result<Option<Vec<u8>>, Errno> {
    let staged = staged_file();
    let Some(fd) = &*staged else { return Ok(None) };
    let len = sys::fstat(fd.0).map_or(0, |st| usize::try_from(st.st_size).unwrap_or(0));
    let mut bytes = pgseal_core::memory::zeros(len).map_err(|_| libc::ENOMEM)?;
    let got = sys::pread_full(fd.0, &mut bytes, 0)?;
    if got == len { Ok(Some(bytes)) } else { Err(libc::EIO) }
}

/// Writes the staged content to a new file.
fn write_out(path: &CStr) -> Result<(), Errno> {
    let Some(bytes) = staged_bytes()? else { return Ok(()) };
    // SAFETY: a C string. There may be no such file, or one that is a link to elsewhere.
    unsafe { real::unlink(path.as_ptr()) };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let mode = datadir_mode(path);
    let fd = sys::open(path, flags, mode)?;
    sys::pwrite_all(fd.0, &bytes, 0)
}

/// The mode for a new file, as `PG_FILE_MODE_OWNER` and `PG_FILE_MODE_GROUP`
/// (`common/file_perm.h`).
fn datadir_mode(path: &CStr) -> libc::mode_t {
    let dir = sys::c_path(datadir::parent(path.to_bytes())).ok().and_then(|dir| sys::stat(&dir));
    if dir.is_some_and(|st| st.st_mode & 0o050 == 0o050) { 0o640 } else { 0o600 }
}

/// A change of one file in progress; the record already allows it.
pub struct Change {
    root: &'static Root,
    name: Vec<u8>,
    before: Version,
    after: Version,
    alone: Alone,
}

impl Change {
    fn begin(file: &Located, after: Version) -> Result<Option<Change>, Errno> {
        let alone = Alone::wait(file.root)?;
        let Some(mut record) = record::current(file.root)? else { return Ok(None) };
        let path = datadir::join(file.root.path(), &file.name).into_c()?;
        let found = read(&path)?;
        let known = record.get(&file.name).map(|entry| entry.versions.as_slice());
        let before = match known {
            Some(known) => known.iter().find(|version| version.is(found.as_deref())).cloned(),
            None => Some(Version::Absent).filter(|version| version.is(found.as_deref())),
        };
        let Some(before) = before else {
            super::say_it_differs(file.root, &file.name, "is not as it was recorded");
            return Err(libc::EACCES);
        };
        let mut versions = vec![before.clone()];
        if after != before {
            versions.push(after.clone());
        }
        record.set(&file.name, versions);
        record.sequence += 1;
        record::replace(file.root, &record, &alone)?;
        let name = file.name.to_vec();
        stop_here_if_asked(b"recorded");
        Ok(Some(Change { root: file.root, name, before, after, alone }))
    }

    /// Records the final state: the new one if `is_done`, else the old one.
    pub fn finish(self, is_done: bool) {
        stop_here_if_asked(b"changed");
        let errno = real::errno();
        let finished = with_reserve(|| {
            let Some(mut record) = record::current(self.root)? else { return Ok(()) };
            let now = if is_done { self.after.clone() } else { self.before.clone() };
            record.set(&self.name, vec![now]);
            record.sequence += 1;
            record::replace(self.root, &record, &self.alone)
        });
        if finished.is_err() {
            log::line(format_args!(
                "WARNING: the record of the locked configuration allows \"{}\" as it was before the last change, too",
                Shown(&self.name)
            ));
        }
        real::set_errno(errno);
    }
}

/// For tests, in debug builds only: kills the process between two steps.
fn stop_here_if_asked(step: &[u8]) {
    if cfg!(debug_assertions) && sys::env_is(c"PGSEAL_TEST_CONFIG_STOP", step) {
        // SAFETY: ends the process, as a crash would.
        unsafe { libc::raise(libc::SIGKILL) };
    }
}

fn refuse(file: &Located, what: &str) -> Errno {
    log::line(format_args!(
        "ERROR: \"{}/{}\" cannot be {what} by the server: the configuration of this data directory is locked",
        Shown(file.root.path()),
        Shown(&file.name)
    ));
    libc::EACCES
}

/// Whether the record has an entry for the file.
fn is_recorded(file: &Located) -> Result<bool, Errno> {
    Ok(record::current(file.root)?.is_some_and(|record| record.get(&file.name).is_some()))
}

/// Locates a path if the file may be in the record of a locked data directory.
fn locate_recorded(path: &CStr) -> Option<Located> {
    let name = datadir::base_name(path.to_bytes());
    let known = super::LOCKED.load(core::sync::atomic::Ordering::Relaxed);
    if !known && !name.ends_with(b".signal") && name != AUTO {
        return None;
    }
    locate(path.to_bytes()).filter(|file| super::may_be_recorded(Some(file.class)))
}

/// Called before the server renames a file.
///
/// # Errors
/// If the locked configuration forbids the change.
pub fn before_rename(from: &CStr, to: &CStr) -> Result<Option<Change>, Errno> {
    if !is_server() {
        return Ok(None);
    }
    with_reserve(|| {
        if let Some(file) = locate_recorded(from)
            && is_recorded(&file)?
        {
            return Err(refuse(&file, "renamed"));
        }
        let Some(file) = locate_recorded(to) else { return Ok(None) };
        let is_ours = *file.name == *AUTO && datadir::base_name(from.to_bytes()) == AUTO_NEW;
        match staged_bytes()?.filter(|_| is_ours) {
            Some(bytes) => {
                *staged_file() = None;
                Change::begin(&file, Version::Content(bytes))
            }
            None if is_recorded(&file)? => Err(refuse(&file, "replaced")),
            None => Ok(None),
        }
    })
}

/// Called before the server removes a file.
///
/// # Errors
/// If the locked configuration forbids the change.
pub fn before_unlink(path: &CStr) -> Result<Option<Change>, Errno> {
    if !is_server() {
        return Ok(None);
    }
    with_reserve(|| {
        let Some(file) = locate_recorded(path) else { return Ok(None) };
        if SIGNALS.contains(&&file.name[..]) {
            return Change::begin(&file, Version::Absent);
        }
        if is_recorded(&file)? && sys::stat(path).is_some() {
            return Err(refuse(&file, "removed"));
        }
        Ok(None)
    })
}
