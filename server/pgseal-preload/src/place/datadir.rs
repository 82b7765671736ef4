//! Which data directory a path belongs to, and the class of the file there.

use core::ffi::c_int;
use core::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pgseal_core::{KeySet, KeyringId, Place};
use pgseal_keys::handover::{Conversion, Unlocked};
use pgseal_pgdata::{Class, locate_in_tablespace, tablespace_relative};

use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::paths::is_walked;
pub use crate::os::paths::{base_name, is_system, join, parent};
use crate::os::sys::{self, PathText};
use crate::place::head;
use crate::place::program::{self, Role};
use crate::place::symbol::Symbol;
use crate::place::texts;

/// The keyring's path below a data directory.
pub const KEYRING: &[u8] = b"pgseal/keyring";
/// The journal of an unfinished conversion (`pgseal encrypt`, `decrypt`, `rekey`). Only its
/// existence matters here.
const CONVERSION: &[u8] = b"pgseal/conversion";

/// The helper's answer about the keyring of a data directory.
#[derive(Clone, Copy)]
pub enum Keyring {
    /// The keys, which live as long as the process.
    Unlocked(&'static Unlocked),
    /// The keyring has this identity, and its keys were not needed so far.
    Locked(KeyringId),
}

/// A sealed data directory that this process has met. Never freed: there are one or two.
pub struct Root {
    path: Vec<u8>,
    /// Whether some of its files are plain and some sealed.
    half_converted: bool,
    /// The outcome of the first attempt; a failed attempt is not repeated for every file.
    keyring: Mutex<Option<Result<Keyring, c_int>>>,
    /// The interrupted conversion, once the helper was asked.
    interrupted: OnceLock<Option<Conversion>>,
    config_seen: Mutex<Option<u64>>,
    /// The same directory under its path without symbolic links, once it was asked for.
    real: OnceLock<&'static Root>,
}

/// The position of a path in a sealed data directory, and the class of the file.
pub struct Location {
    /// The data directory; for a path in one of its tablespaces, too.
    pub root: &'static Root,
    /// The class of the file.
    pub class: Class,
    /// Which file of the cluster it is.
    pub place: Place,
}

impl Location {
    fn new(root: &'static Root, (class, place): (Class, Place)) -> Option<Location> {
        Some(Location { root, class, place })
    }
}

#[derive(Default)]
struct State {
    roots: Vec<&'static Root>,
    /// The working directory and, if it is a root, that root; `None` until looked up.
    cwd: Option<(PathText, Option<&'static Root>)>,
}

static STATE: Mutex<State> = Mutex::new(State { roots: Vec::new(), cwd: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Root {
    /// The absolute path of the data directory.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether a conversion was interrupted: some of its files are plain and some sealed.
    pub fn is_half_converted(&self) -> bool {
        self.half_converted
    }

    /// Which conversion was interrupted. `ask` asks the helper, once. `None`: the helper does not
    /// know either.
    pub fn interrupted(&self, ask: impl FnOnce() -> Option<Conversion>) -> Option<Conversion> {
        *self.interrupted.get_or_init(|| with_reserve(ask))
    }

    /// The same directory under its path without symbolic links, or this root if that path is no
    /// sealed directory. The first answer that succeeds is kept.
    pub fn real(&'static self) -> &'static Root {
        if let Some(root) = self.real.get() {
            return root;
        }
        let path = sys::c_path(&self.path).ok().and_then(|path| sys::real_path(&path));
        match path.and_then(|path| sealed_root(&path)) {
            Some(root) => self.real.get_or_init(|| root),
            None => self,
        }
    }

    /// The least sequence number that this process accepts in the record of a locked configuration;
    /// 0: nothing is locked, `None`: the process has not looked yet.
    pub fn config_seen(&self) -> MutexGuard<'_, Option<u64>> {
        self.config_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the keyring.
    pub fn keyring_path(&self) -> PathText {
        join(&self.path, KEYRING)
    }

    /// What this process knows of the keyring. Calls `ask`, which asks the helper, if nothing is
    /// known yet, or if the keys are needed and not loaded. With `wanted` the keys are needed only
    /// if the keyring has this identity.
    pub fn keyring_or_ask(
        &self,
        wanted: Option<KeyringId>,
        ask: impl FnOnce() -> Result<Keyring, c_int>,
    ) -> Result<Keyring, c_int> {
        let mut keyring = self.keyring.lock().unwrap_or_else(PoisonError::into_inner);
        match *keyring {
            Some(Ok(Keyring::Locked(id))) if wanted.is_none_or(|wanted| wanted == id) => {}
            Some(known) => return known,
            None => {}
        }
        let answer = with_reserve(ask);
        // A failure for lack of memory may be retried later.
        if !matches!(answer, Err(libc::ENOMEM)) {
            *keyring = Some(answer);
        }
        answer
    }

    /// The keys that the helper handed over, if it was asked for them.
    pub fn unlocked(&self) -> Option<&'static Unlocked> {
        match *self.keyring.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(Keyring::Unlocked(unlocked))) => Some(unlocked),
            _ => None,
        }
    }

    /// The data keys if they are already loaded.
    pub fn loaded_keys(&self) -> Option<&'static KeySet> {
        self.unlocked().map(|unlocked| &unlocked.keys)
    }

    /// Whether there is a keyring.
    pub fn has_keyring(&self) -> bool {
        exists(&self.path, KEYRING)
    }
}

/// Whether this process has met a sealed data directory.
pub fn has_met_a_root() -> bool {
    !state().roots.is_empty()
}

/// The sealed data directories that this process has met.
pub fn met_roots() -> Vec<&'static Root> {
    state().roots.clone()
}

/// Called when the working directory has changed: discards the cached one.
pub fn forget_cwd() {
    state().cwd = None;
}

/// The working directory as a root, if it is a sealed data directory. In a server it usually is.
pub fn cwd_root() -> Option<&'static Root> {
    let known = state().cwd.as_ref().map(|(_, root)| *root);
    known.unwrap_or_else(find_cwd_root)
}

// Each path takes pages of the stack, so what seldom runs has a frame of its own.
#[cold]
#[inline(never)]
fn find_cwd_root() -> Option<&'static Root> {
    look_at_cwd().1
}

#[cold]
#[inline(never)]
fn look_at_cwd() -> (PathText, Option<&'static Root>) {
    let path = sys::current_dir().unwrap_or_else(|| PathText::of(b"/"));
    let root = sealed_root(&path);
    state().cwd = Some((PathText::of(&path), root));
    (path, root)
}

/// The root at exactly this absolute path, if it is a sealed data directory.
pub fn sealed_root(path: &[u8]) -> Option<&'static Root> {
    if let Some(root) = state().roots.iter().find(|root| root.path == path) {
        return Some(root);
    }
    if exists(path, KEYRING) || lost_its_keyring(path) {
        return Some(register(path));
    }
    None
}

/// Whether this is a sealed data directory whose keyring is missing: if it were taken for a plain
/// one, new files would be plain. Tells it by a sealed relation map, which exists from `initdb` on,
/// or by the journal of a conversion.
fn lost_its_keyring(path: &[u8]) -> bool {
    if !exists(path, b"PG_VERSION") {
        return false;
    }
    if exists(path, CONVERSION) {
        return true;
    }
    let map = join(path, b"global/pg_filenode.map");
    map.as_c().is_ok_and(head::looks_sealed)
}

fn exists(dir: &[u8], name: &[u8]) -> bool {
    let path = join(dir, name);
    path.as_c().is_ok_and(|path| sys::stat(path).is_some_and(|st| sys::is_regular(st.st_mode)))
}

/// Adds a directory to the list of roots.
pub fn register(path: &[u8]) -> &'static Root {
    let mut state = state();
    if let Some(root) = state.roots.iter().find(|root| root.path == path) {
        return root;
    }
    let half_converted = exists(path, CONVERSION);
    // If memory ran out here, the data directory would be taken for a plain one.
    let root = with_reserve(|| {
        let root = Root {
            path: path.to_vec(),
            half_converted,
            keyring: Mutex::new(None),
            interrupted: OnceLock::new(),
            config_seen: Mutex::new(None),
            real: OnceLock::new(),
        };
        let root: &'static Root = Box::leak(Box::new(root));
        state.roots.push(root);
        root
    });
    // The working directory may be the new root.
    state.cwd = None;
    drop(state);
    with_reserve(|| name_for_children(root));
    root
}

/// `pg_verifybackup` starts `pg_waldump` with the WAL directory alone, which may lie outside the
/// backup (`--wal-directory`). So this adds the backup to `PGSEAL_DATA`, so that `pg_waldump` finds
/// its keys, unless `PGSEAL_DATA` names others. A path with a colon cannot be in that list.
fn name_for_children(root: &Root) {
    if program::name() != b"pg_verifybackup" || root.path.contains(&b':') {
        return;
    }
    let mut list = sys::env(c"PGSEAL_DATA").unwrap_or_default();
    if list.split(|byte| *byte == b':').any(|dir| dir == root.path) {
        return;
    }
    if !list.is_empty() {
        list.push(b':');
    }
    list.extend_from_slice(&root.path);
    if let Ok(list) = sys::c_path(&list) {
        // pg_verifybackup has one thread.
        sys::set_env(c"PGSEAL_DATA", &list);
    }
}

/// The absolute form of a path, without `.`, `..` and doubled slashes. Symbolic links are not
/// resolved: the class of a file follows from the name that PostgreSQL uses for it.
pub fn absolute(path: &[u8]) -> PathText {
    let mut full = PathText::new();
    if !path.starts_with(b"/") {
        // Ask first, so that the working directory is known.
        cwd_root();
        match &state().cwd {
            Some((cwd, _)) => full.push(cwd),
            None => full.push(&sys::current_dir().unwrap_or_else(|| PathText::of(b"/"))),
        }
    }
    full.walk(path);
    full
}

/// Refuses a data directory below a system directory, where paths are not searched.
pub fn expect_not_system(dir: &[u8]) -> Result<(), c_int> {
    if !is_system(dir) {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: \"{}\" is below a directory of the system, where pgseal looks for no data directory; move it to another place",
        Shown(dir)
    ));
    Err(libc::EACCES)
}

/// Locates a path; `None`: it lies in no sealed data directory. Fast for the relative paths that a
/// server uses.
pub fn locate(path: &[u8]) -> Option<Location> {
    if !path.starts_with(b"/")
        && !path.split(|byte| *byte == b'/').any(|part| part == b"..")
        && let Some(root) = cwd_root()
    {
        return Location::new(root, pgseal_pgdata::locate(path));
    }
    locate_absolute(path)
}

#[inline(never)]
fn locate_absolute(path: &[u8]) -> Option<Location> {
    let path = absolute(path);
    if is_system(&path) {
        return None;
    }
    let mut above: &[u8] = &path;
    while above.len() > 1 {
        above = parent(above);
        if let Some(root) = sealed_root(above) {
            let inside = path.get(above.len() + 1..).unwrap_or_default();
            return Location::new(root, pgseal_pgdata::locate(inside));
        }
    }
    if let Some(len) = tablespace_relative(&path)
        && !through_link(&path[..len])
        && let Some(root) = primary_root()
    {
        return Location::new(root, locate_in_tablespace(&path[len..]));
    }
    None
}

/// Whether this path of a tablespace, with its final slash, goes through the link in a data
/// directory. That data directory is plain, or `locate` would have found it, and so the tablespace
/// is plain.
fn through_link(tablespace: &[u8]) -> bool {
    let tablespace = tablespace.strip_suffix(b"/").unwrap_or(tablespace);
    parent(tablespace).ends_with(b"/pg_tblspc")
}

/// The data directory that this process works on: the working directory, else the one that it has
/// met, else `PGDATA`. A program that makes a copy works on the copy, wherever it was started and
/// whichever data directories it reads; if the copy is plain, the result is `None`.
pub fn primary_root() -> Option<&'static Root> {
    with_reserve(find_primary_root)
}

fn find_primary_root() -> Option<&'static Root> {
    let copy = match program::role() {
        Role::BaseBackup => Some(program::copy_target()),
        Role::CombineBackup => Some(program::combine_backup_target().0),
        _ => None,
    };
    if let Some(target) = copy {
        return target.and_then(|target| sealed_root(&absolute(&target)));
    }
    if let Some(root) = cwd_root() {
        return Some(root);
    }
    if let Some(root) = state().roots.first() {
        return Some(root);
    }
    named_roots().next()
}

/// The sealed data directories among those that `PGSEAL_DATA` and `PGDATA` name.
pub fn named_roots() -> impl Iterator<Item = &'static Root> {
    named_directories().into_iter().filter_map(|dir| sealed_root(&absolute(&dir)))
}

/// The directories of `PGSEAL_DATA` and `PGDATA`.
fn named_directories() -> Vec<Vec<u8>> {
    let listed = sys::env(c"PGSEAL_DATA").unwrap_or_default();
    let mut dirs: Vec<Vec<u8>> = listed
        .split(|byte| *byte == b':')
        .filter(|dir| !dir.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    dirs.extend(sys::env(c"PGDATA"));
    dirs
}

/// Calls `then` with the path relative to a root; `None` if the path does not lie below it. Fast
/// for the relative paths that a server uses.
pub fn within<R>(root: &Root, path: &[u8], then: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if is_walked(path) && cwd_root().is_some_and(|cwd| ptr::eq(cwd, root)) {
        return Some(then(path));
    }
    within_absolute(root, path, then)
}

#[inline(never)]
fn within_absolute<R>(root: &Root, path: &[u8], then: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let path = absolute(path);
    let rel = path.strip_prefix(root.path.as_slice())?.strip_prefix(b"/")?;
    Some(then(rel))
}

/// Whether the server of this data directory is in recovery, including the checkpoint at the end of
/// recovery. This follows from `state` of `global/pg_control` (`catalog/pg_control.h`), and from
/// the status of the postmaster in the last line of its lock file (`utils/pidfile.h`). The state
/// alone is not enough: before the first record it is the state at the crash, and both the last
/// checkpoint of a recovery and that of a shutdown are made under "shutting down".
pub fn in_recovery(root: &Root) -> bool {
    match control_state(root) {
        Some(texts::State::Recovering) => true,
        Some(texts::State::Perhaps) => postmaster_starts(root),
        Some(texts::State::Stopped | texts::State::StoppedInRecovery) | None => false,
    }
}

fn control_state(root: &Root) -> Option<texts::State> {
    texts::state(&control_file(root)?)
}

/// The content of `global/pg_control`.
pub fn control_file(root: &Root) -> Option<Vec<u8>> {
    let path = sys::c_path(&join(&root.path, b"global/pg_control")).ok()?;
    sys::read_whole(&path, 1 << 16).ok()
}

/// Whether this process belongs to a server whose postmaster lets no session write yet.
fn postmaster_starts(root: &Root) -> bool {
    if !matches!(program::role(), Role::Server | Role::Standalone) {
        // The lock file belongs to a server that may be long gone.
        return false;
    }
    let text = sys::c_path(&join(&root.path, b"postmaster.pid"))
        .and_then(|path| sys::read_whole(&path, 1 << 14))
        .unwrap_or_default();
    // A single-user server is its own postmaster and writes no status.
    texts::says_it_starts(&text).unwrap_or_else(|| replays_here().unwrap_or(false))
}

/// Whether this process itself replays WAL (`InRecovery`,
/// `src/backend/access/transam/xlogutils.c`): only the startup process does; sessions of a standby
/// only read. `None`: this process is no server.
pub fn replays_here() -> Option<bool> {
    static IN_RECOVERY: Symbol = Symbol::new(c"InRecovery");
    IN_RECOVERY.flag()
}

/// A path for messages, as the user knows it.
pub fn shown(path: &[u8]) -> Shown<'_> {
    Shown(path)
}
