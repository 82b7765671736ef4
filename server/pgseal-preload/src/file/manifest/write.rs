//! Writes the manifest: just before `pg_control` says "shut down", so that whoever finds that word
//! also finds the manifest.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use pgseal_core::Fingerprint;
use pgseal_core::broken::{self, Order};
use pgseal_keys::manifest::{Listed, MAX_CONTROLS, control_digest};

use super::listing::listed_files;
use super::stored::{MANIFEST, lists_nothing, made, read, store};
use super::watch;
use crate::file::anchor;
use crate::file::storage::FdStorage;
use crate::file::wal;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::real::Errno;
use crate::os::sys::{self, errno_of};
use crate::place::datadir::{self, Location, Root, join};
use crate::place::texts::{self, State};

/// The descriptor through which this process may write `global/pg_control`; -1: none.
static CONTROL: AtomicI32 = AtomicI32::new(-1);
/// Which file that descriptor is, and of which data directory.
static CONTROL_FILE: Mutex<Option<ControlFile>> = Mutex::new(None);

/// An open `global/pg_control`.
#[derive(Clone, Copy)]
pub struct ControlFile {
    root: &'static Root,
    dev: u64,
    ino: u64,
}

impl ControlFile {
    /// Remembers that a descriptor was opened for writing `global/pg_control` of a root.
    pub fn opened(fd: c_int, root: &'static Root) {
        let Some(st) = sys::fstat(fd) else { return };
        let file = ControlFile { root, dev: st.st_dev, ino: st.st_ino };
        *CONTROL_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        CONTROL.store(fd, Ordering::Release);
    }

    /// The control file behind a descriptor, if this descriptor is one.
    #[inline]
    pub fn behind(fd: c_int) -> Option<ControlFile> {
        if CONTROL.load(Ordering::Relaxed) == fd { ControlFile::look(fd) } else { None }
    }

    #[cold]
    fn look(fd: c_int) -> Option<ControlFile> {
        let file = (*CONTROL_FILE.lock().unwrap_or_else(PoisonError::into_inner))?;
        let st = sys::fstat(fd)?;
        // The number may be that of another file by now.
        (st.st_dev == file.dev && st.st_ino == file.ino).then_some(file)
    }
}

/// To be called before `new` is written to the control file. If `new` says "shut down", the
/// manifest that fits it is written first.
pub fn before_control(file: ControlFile, new: &[u8]) -> Result<(), Errno> {
    wal::before_control(file.root, new)?;
    watch::set_left();
    if texts::state(new) != Some(State::Stopped) {
        return Ok(());
    }
    let root = file.root;
    with_reserve(|| {
        if !watch::is_server() {
            return tool_writes_control(root, new);
        }
        if broken::is(Order::ManifestBehindControl) {
            return Ok(());
        }
        write(root, new)?;
        watch::set_written();
        Ok(())
    })
}

/// To be called when the postmaster is about to remove its lock file: it is alone. Writes the
/// manifest again if a process wrote to a file after the last checkpoint, and tells the anchor.
pub fn server_ends(root: &'static Root) {
    with_reserve(|| {
        let control = datadir::control_file(root).unwrap_or_default();
        if texts::state(&control) != Some(State::Stopped) {
            return;
        }
        if watch::is_outdated() || broken::is(Order::ManifestBehindControl) {
            if write(root, &control).is_err() {
                return;
            }
            watch::set_written();
        }
        anchor::server_ends(root, || stopped(root, &control));
    });
}

/// To be called when `pg_basebackup` has written everything but the name of `backup_manifest`.
/// A backup without a manifest is as good as one of a server that crashed, so it goes on.
pub fn backup_ends(root: &'static Root) {
    with_reserve(|| {
        let control = datadir::control_file(root).unwrap_or_default();
        if write(root, &control).is_err() {
            log::line(format_args!(
                "WARNING: the backup has no manifest of pgseal: nobody can tell whether one of its files is missing or older"
            ));
        }
    });
}

/// The number of the manifest and the digest of `pg_control`, if the server was shut down cleanly
/// and the two fit.
pub fn stopped(root: &'static Root, control: &[u8]) -> Option<(u64, [u8; 32])> {
    if texts::state(control) != Some(State::Stopped) {
        return None;
    }
    let manifest = read(root).ok().filter(|manifest| manifest.fits(control))?;
    Some((manifest.number, control_digest(control)))
}

/// Writes the manifest of all files as they are, valid with this content of `pg_control`. A file
/// that no process has opened, or that differs from the last manifest, keeps its line.
fn write(root: &'static Root, control: &[u8]) -> Result<(), Errno> {
    let watch = watch::of(root);
    let mut files = Vec::new();
    let mut found = listed_files(root, control);
    for path in &mut found {
        let fingerprint = match watch.and_then(|watch| watch.kept(path)) {
            Some(kept) => kept,
            None => match fingerprint(root, path) {
                Ok(Some(fingerprint)) => fingerprint,
                // No regular file: the server did not make it. Or a process of the server removed
                // it meanwhile.
                Ok(None) | Err(libc::ENOENT) => continue,
                // One file that cannot be read does not keep the server from being shut down.
                Err(errno) => {
                    log::line(format_args!(
                        "ERROR: \"{}\" cannot be read for the manifest (errno {errno}); the next start does not compare it",
                        Shown(path)
                    ));
                    continue;
                }
            },
        };
        files.push(Listed { path: core::mem::take(path), fingerprint });
    }
    for lost in watch.into_iter().flat_map(|watch| watch.lost()) {
        if let Err(at) = files.binary_search_by(|listed| listed.path.cmp(&lost.path)) {
            files.insert(at, lost.clone());
        }
    }
    // That on the disk is newer if this server has made it list nothing.
    let on_disk = read(root).ok().map(|manifest| manifest.number);
    let before = on_disk.max(watch.map(watch::Watch::number));
    let controls = vec![control_digest(control)];
    store(root, made(before.unwrap_or(0), true, controls, files))
}

/// The fingerprint of a file; `None` if it is no regular file.
fn fingerprint(root: &Root, rel: &[u8]) -> Result<Option<Fingerprint>, Errno> {
    let fd = sys::open_read(&join(root.path(), rel).into_c()?)?;
    if !sys::fstat(fd.0).is_some_and(|st| sys::is_regular(st.st_mode)) {
        return Ok(None);
    }
    Fingerprint::of(&FdStorage::new(fd.0)).map(Some).map_err(|error| errno_of(&error))
}

/// A program of PostgreSQL is about to write `pg_control` of a stopped server. What the manifest
/// says of the files stays; it becomes valid with the new content, too.
fn tool_writes_control(root: &'static Root, new: &[u8]) -> Result<(), Errno> {
    let old = datadir::control_file(root).unwrap_or_default();
    let was_stopped = texts::state(&old) == Some(State::Stopped);
    let (manifest, wanted) = (read(root), control_digest(new));
    match manifest {
        Ok(manifest) if was_stopped && manifest.fits(&old) => {
            let mut controls = vec![control_digest(&old), wanted];
            controls.dedup();
            controls.truncate(MAX_CONTROLS);
            store(root, made(manifest.number, manifest.is_whole, controls, manifest.files))
        }
        // The server will refuse the directory, as before.
        _ if was_stopped => Ok(()),
        // pg_resetwal after a crash: an act of the administrator.
        manifest => {
            let before = manifest.map_or(0, |manifest| manifest.number);
            store(root, made(before, false, vec![wanted], Vec::new()))
        }
    }
}

/// Which file the manifest is: inode, seconds and nanoseconds of its last change.
type Version = (u64, i64, i64);

/// The data directory whose manifest this process has emptied, and which file that manifest is: the
/// servers that `pg_upgrade` runs write a whole one again.
static EMPTIED: Mutex<Option<(&'static Root, Option<Version>)>> = Mutex::new(None);

/// To be called before a program of PostgreSQL other than the server changes a file of a stopped
/// data directory: the manifest then lists nothing.
#[cold]
pub fn tool_changes(path: &[u8]) {
    let Some(Location { root, class, .. }) = datadir::locate(path) else { return };
    if datadir::within(root, path, |rel| class.is_listed(rel)) != Some(true) {
        return;
    }
    let mut emptied = EMPTIED.lock().unwrap_or_else(PoisonError::into_inner);
    if emptied
        .is_some_and(|(done, version)| core::ptr::eq(done, root) && version == version_of(root))
    {
        return;
    }
    with_reserve(|| {
        let control = datadir::control_file(root).unwrap_or_default();
        if texts::state(&control) != Some(State::Stopped) {
            return;
        }
        if let Ok(manifest) = read(root)
            && manifest.is_whole
            && manifest.fits(&control)
        {
            // If this fails, the server refuses the directory, and the log says why.
            let _ = lists_nothing(root, &manifest);
        }
    });
    *emptied = Some((root, version_of(root)));
}

fn version_of(root: &Root) -> Option<Version> {
    let path = join(root.path(), MANIFEST).into_c().ok()?;
    sys::stat(&path).map(|st| (st.st_ino, st.st_ctime, st.st_ctime_nsec))
}
