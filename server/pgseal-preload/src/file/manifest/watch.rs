//! Compares the files of a data directory with its manifest: the names when the server starts, each
//! file when it is first opened.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::OnceLock;

use pgseal_core::Fingerprint;
use pgseal_keys::manifest::{Difference, Listed, Manifest, difference};
use pgseal_pgdata::{Class, classify, segment_of};

use super::listing::listed_files;
use super::stored::{MODE, lists_nothing, read, shown};
use crate::file::named::Named;
use crate::file::storage::FdStorage;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::os::sys::{self, errno_of};
use crate::place::datadir::{self, Root};
use crate::place::program;
use crate::place::texts::{self, State};

/// No process has opened the file since the server started.
const UNSEEN: u8 = 0;
/// The file was as listed when a process first opened it. From then on the server may change it.
const SEEN: u8 = 1;
/// The server removed, replaced or emptied the file, or makes it anew: the line counts no more.
const RELEASED: u8 = 2;
/// The file differs from its line.
const DIFFERS: u8 = 3;
/// The relation lacks a segment that is listed.
const SEGMENT_MISSING: u8 = 4;
/// The relation has a segment that is not listed.
const SEGMENT_ADDED: u8 = 5;

/// At most this many files are named in the log when a server starts.
const NAMED: usize = 20;

/// What all processes of a server share, in front of the states of the files.
#[repr(C)]
struct Shared {
    /// The manifest on the disk says no more what the files are: `pg_control` has changed since the
    /// server started, or the manifest lists nothing any more.
    is_left: AtomicBool,
    /// The manifest of the shutdown is written.
    is_written: AtomicBool,
    /// A listed file was written after that.
    is_outdated: AtomicBool,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// The manifest that the files of a data directory are compared with.
pub struct Watch {
    root: &'static Root,
    manifest: Manifest,
    /// One for each file of the manifest.
    states: &'static [AtomicU8],
}

static WATCH: OnceLock<Watch> = OnceLock::new();

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// The manifest that this process compares files with, if it does.
pub fn of(root: &'static Root) -> Option<&'static Watch> {
    WATCH.get().filter(|watch| ptr::eq(watch.root, root))
}

/// Reads the manifest, and compares the names of all files with it. The postmaster calls this
/// before it forks. After a crash there is no manifest to compare with; a base backup has the one
/// that `pg_basebackup` wrote.
pub fn server_starts(root: &'static Root) -> Result<(), Errno> {
    let control = datadir::control_file(root).unwrap_or_default();
    if texts::state(&control) != Some(State::Stopped) {
        // `pg_control` of a base backup that no server has used yet is as `pg_basebackup` left it.
        return match read(root) {
            Ok(manifest) if manifest.is_whole && manifest.fits(&control) => {
                compare(root, manifest, &control)
            }
            _ => {
                if texts::state(&control).is_some() && !program::only_prints() {
                    log::line(format_args!(
                        "LOG: the server was not shut down cleanly, or follows another one: there is no manifest to tell whether a file is missing or older"
                    ));
                }
                share(0).map(drop)
            }
        };
    }
    let manifest = match read(root) {
        Ok(manifest) if manifest.fits(&control) => manifest,
        Ok(manifest) => {
            let number = manifest.number;
            return refuse(
                root,
                &format_args!(
                    "manifest {number} is not that of the last shutdown: it or \"global/pg_control\" is an older copy"
                ),
            );
        }
        Err(why) => return refuse(root, &why),
    };
    if !manifest.is_whole {
        if !program::only_prints() {
            tell_unlisted(&manifest);
        }
        return share(0).map(drop);
    }
    compare(root, manifest, &control)
}

/// Compares names now, and from now on each file when it is first opened.
fn compare(root: &'static Root, manifest: Manifest, control: &[u8]) -> Result<(), Errno> {
    let states = share(manifest.files.len())?;
    let watch = Watch { root, manifest, states };
    compare_names(&watch, control)?;
    // A second data directory in one process is not compared; no program of PostgreSQL does that.
    let _ = WATCH.set(watch);
    Ok(())
}

fn tell_unlisted(manifest: &Manifest) {
    const UNKNOWN: &str =
        "whether a file is missing or older cannot be told until the next shutdown";
    match &*manifest.writer {
        b"postgres" => log::line(format_args!(
            "LOG: the server ended while it was starting the last time: {UNKNOWN}"
        )),
        program => log::line(format_args!(
            "LOG: {} changed this data directory while the server was stopped: {UNKNOWN}",
            Shown(program)
        )),
    }
}

fn refuse(root: &Root, why: &dyn core::fmt::Display) -> Result<(), Errno> {
    if sys::env_is(MODE, b"ignore") {
        log::line(format_args!(
            "WARNING: \"{}\": {why}; PGSEAL_MANIFEST=ignore: the server starts without comparing any file",
            shown(root)
        ));
        return share(0).map(drop);
    }
    log::line(format_args!(
        "ERROR: \"{}\": {why}; restore the data directory from a backup, or, if it is as you want it, run \"pgseal manifest write {}\"",
        shown(root),
        Shown(root.path())
    ));
    Err(libc::EACCES)
}

/// Makes the memory that the processes of the server share, with a state for each of `count` files.
fn share(count: usize) -> Result<&'static [AtomicU8], Errno> {
    let len = size_of::<Shared>() + count;
    let map = sys::shared_memory(len).inspect_err(|errno| {
        log::line(format_args!("ERROR: no shared memory for the manifest (errno {errno})"));
    })?;
    SHARED.store(map.cast(), Ordering::Release);
    // SAFETY: the map is longer than `Shared`, and is never unmapped.
    let states = unsafe { map.add(size_of::<Shared>()).cast::<AtomicU8>() };
    // SAFETY: `count` bytes of zeros that stay mapped; all access to them is atomic.
    Ok(unsafe { core::slice::from_raw_parts(states, count) })
}

/// Compares the names of the files with those of the manifest. A missing file of a class that the
/// server cannot do without refuses the start; a missing or added segment makes its relation
/// unreadable. All other differences show when the file is opened.
fn compare_names(watch: &Watch, control: &[u8]) -> Result<(), Errno> {
    let found = listed_files(watch.root, control);
    let mut vital = false;
    let mut told = 0;
    let mut tell = |path: &[u8], difference: Difference, what_follows: Option<&str>| {
        told += 1;
        if told <= NAMED {
            let named = Named::of(path);
            match what_follows {
                Some(text) => log::line(format_args!("ERROR: {named}: {difference}; {text}")),
                None => {
                    let remedy = named.remedy();
                    log::line(format_args!("ERROR: {named}: {difference}; {remedy}"));
                }
            }
        }
    };
    for listed in &watch.manifest.files {
        let path = &*listed.path;
        if listed.fingerprint.is_empty()
            || found.binary_search_by(|name| (**name).cmp(path)).is_ok()
        {
            continue;
        }
        let class = classify(path);
        if class.is_map_of_hints() {
            watch.set(path, RELEASED);
        } else if class.is_vital() {
            vital = true;
            tell(path, Difference::Missing, Some("restore it from a backup"));
        } else {
            tell(path, Difference::Missing, None);
            watch.mark_segments(path, SEGMENT_MISSING);
        }
    }
    for path in &found {
        let (first, number) = segment_of(path);
        if number > 0 && watch.manifest.find(path).is_none() && watch.manifest.find(first).is_some()
        {
            tell(path, Difference::SegmentAdded, Some("remove it"));
            watch.mark_segments(path, SEGMENT_ADDED);
        }
    }
    if told > NAMED {
        log::line(format_args!("ERROR: and {} files more", told - NAMED));
    }
    if !vital || sys::env_is(MODE, b"ignore") {
        return Ok(());
    }
    refuse(watch.root, &"files are missing without which the server would lose transactions")
}

impl Watch {
    /// The line of the file at this path below the data directory, and its state.
    fn line(&self, path: &[u8]) -> Option<(&Listed, &'static AtomicU8)> {
        let at = self.manifest.find(path)?;
        Some((self.manifest.files.get(at)?, self.states.get(at)?))
    }

    /// The line of the file at a path as a program uses it.
    fn line_at(&self, path: &[u8]) -> Option<(&Listed, &'static AtomicU8)> {
        datadir::within(self.root, path, |rel| self.line(rel))?
    }

    fn set(&self, path: &[u8], state: u8) {
        if let Some((_, old)) = self.line(path) {
            old.store(state, Ordering::Release);
        }
    }

    /// Sets the state of all listed segments of the relation that this segment belongs to.
    fn mark_segments(&self, path: &[u8], state: u8) {
        let (first, _) = segment_of(path);
        let from = self.manifest.files.partition_point(|listed| &*listed.path < first);
        let rest = self.manifest.files.get(from..).unwrap_or_default();
        for listed in rest.iter().take_while(|listed| listed.path.starts_with(first)) {
            if segment_of(&listed.path).0 == first {
                self.set(&listed.path, state);
            }
        }
    }

    /// What the next manifest says of a file that is there: the old line if no process has opened
    /// the file, or if the file differs; `None` if the file has to be looked at.
    pub fn kept(&self, path: &[u8]) -> Option<Fingerprint> {
        let (listed, state) = self.line(path)?;
        match state.load(Ordering::Acquire) {
            SEEN | RELEASED => None,
            _ => Some(listed.fingerprint),
        }
    }

    /// The files that are missing although the server has not removed them.
    pub fn lost(&self) -> impl Iterator<Item = &Listed> {
        let lines = self.manifest.files.iter().zip(self.states);
        lines
            .filter(|(listed, state)| {
                !matches!(state.load(Ordering::Acquire), SEEN | RELEASED)
                    && !listed.fingerprint.is_empty()
            })
            .map(|(listed, _)| listed)
    }

    /// The number of the manifest.
    pub fn number(&self) -> u64 {
        self.manifest.number
    }
}

/// How a file that was just opened differs from its line. `is_made`: the caller has just created
/// the file, or empties it.
pub fn objection(
    fd: c_int,
    path: &[u8],
    is_made: bool,
    root: Option<&'static Root>,
) -> Result<Option<Difference>, Errno> {
    let Some(watch) = root.and_then(of) else { return Ok(None) };
    let Some((listed, state)) = watch.line_at(path) else { return Ok(None) };
    match state.load(Ordering::Acquire) {
        SEEN | RELEASED => return Ok(None),
        _ if is_made => {
            state.store(RELEASED, Ordering::Release);
            return Ok(None);
        }
        SEGMENT_MISSING => return Ok(Some(Difference::SegmentMissing)),
        SEGMENT_ADDED => return Ok(Some(Difference::SegmentAdded)),
        _ => {}
    }
    let found = Fingerprint::of(&FdStorage::new(fd)).map_err(|error| errno_of(&error))?;
    let Some(difference) = difference(&listed.fingerprint, &found) else {
        state.store(SEEN, Ordering::Release);
        return Ok(None);
    };
    // Another process may have compared the file meanwhile, and written to it.
    match state.compare_exchange(UNSEEN, DIFFERS, Ordering::AcqRel, Ordering::Acquire) {
        Err(SEEN | RELEASED) => Ok(None),
        Ok(_) | Err(_) => Ok(Some(difference)),
    }
}

fn state_at(path: &[u8]) -> Option<&'static AtomicU8> {
    let watch = WATCH.get()?;
    watch.line_at(path).map(|(_, state)| state)
}

/// Whether the file at a path still counts as different from its line.
pub fn differs(path: &[u8]) -> bool {
    state_at(path).is_some_and(|state| !matches!(state.load(Ordering::Acquire), SEEN | RELEASED))
}

/// To be called before this server removes, replaces or empties the file at a path.
pub fn release(path: &[u8]) {
    if WATCH.get().is_some()
        && let Some(state) = state_at(path)
    {
        leave(path);
        state.store(RELEASED, Ordering::Release);
    }
}

/// The manifest that the server started with, if the files are about to change while `pg_control`
/// still makes it valid. `None`: not in this process, or some process has seen to that already.
fn still_valid() -> Option<&'static Watch> {
    let watch = WATCH.get()?;
    (!shared()?.is_left.load(Ordering::Relaxed)).then_some(watch)
}

/// To be called before this server changes the file at a path.
///
/// The startup process of some versions writes `pg_multixact` before it writes `pg_control`. If it
/// ended in between, the directory would say "shut down" and not be as listed. So the manifest is
/// made one that lists nothing, which is on the disk when this returns.
#[cold]
pub fn leave(path: &[u8]) {
    let Some(watch) = still_valid() else { return };
    let is_listed = watch.line_at(path).is_some();
    // A manifest that cannot be replaced stays, and the next start may refuse the directory.
    if is_listed && lists_nothing(watch.root, &watch.manifest).is_ok() {
        set_left();
    }
}

/// To be called when `pg_control` is about to get another content than the server started with.
pub fn set_left() {
    if let Some(shared) = shared() {
        shared.is_left.store(true, Ordering::Relaxed);
    }
}

/// To be called before this server writes the file of this class at a path: if the manifest of the
/// shutdown is already there, the postmaster has to write it again.
#[inline]
pub fn server_writes(class: Option<Class>, path: &[u8]) {
    let Some(shared) = shared() else { return };
    if !shared.is_left.load(Ordering::Relaxed) {
        leave(path);
    }
    if shared.is_written.load(Ordering::Relaxed)
        && !matches!(class, Some(Class::Wal | Class::Statistics | Class::ReplicationSlotState))
    {
        shared.is_outdated.store(true, Ordering::Relaxed);
    }
}

/// Records that the manifest of the shutdown is written.
pub fn set_written() {
    if let Some(shared) = shared() {
        shared.is_outdated.store(false, Ordering::Relaxed);
        shared.is_written.store(true, Ordering::Relaxed);
    }
}

/// Whether a file was written after the manifest of the shutdown.
pub fn is_outdated() -> bool {
    shared().is_some_and(|shared| shared.is_outdated.load(Ordering::Relaxed))
}

/// Whether this process is the server itself, and not a program of PostgreSQL that works on a
/// stopped data directory.
#[inline]
pub fn is_server() -> bool {
    matches!(program::role(), program::Role::Server | program::Role::Standalone)
}
