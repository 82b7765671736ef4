//! The anchor of a server (`spec/anchor.md`): compares the data directory with it before the server
//! begins to run, and tells the anchor of the beginning and of a clean shutdown. The helper talks
//! to the store.

use core::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use pgseal_core::{KeySet, KeyringId};
use pgseal_keys::anchor::{Directory, Seen, State};

use crate::file::wal;
use crate::keys::{helper, load};
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::Root;
use crate::place::program::{self, Role};

/// The environment variable that names the store of the anchor.
pub const STORE: &CStr = c"PGSEAL_ANCHOR";

/// The anchor of the server of this process.
static CURRENT: Mutex<Option<State>> = Mutex::new(None);

/// Compares the data directory with its anchor, and tells the anchor that a server begins to run.
/// `stopped`: what the manifest says, see [`Directory::stopped`]. The postmaster calls this before
/// it forks, after it has checked manifest and control record.
pub fn server_starts(
    root: &'static Root,
    keys: &KeySet,
    stopped: impl FnOnce() -> Option<(u64, [u8; 32])>,
) -> Result<(), Errno> {
    let Some(store) = sys::env(STORE) else { return Ok(()) };
    if program::only_prints() {
        return Ok(());
    }
    let refuse = |why: &dyn core::fmt::Display| {
        log::line(format_args!(
            "ERROR: \"{0}\": the anchor in {1} does not allow this data directory: {why}; put the newest copy back, or, if this is the one that you want, run \"pgseal anchor accept {0}\"",
            Shown(root.path()),
            Shown(&scheme(&store))
        ));
        Err(libc::EACCES)
    };
    let Some(anchor) = read(root, keys.keyring_id)? else {
        if program::role() == Role::Standalone {
            // initdb, before there can be an anchor.
            return Ok(());
        }
        return refuse(&"it has none for this keyring yet");
    };
    let directory = Directory {
        epoch: wal::epoch(root, keys),
        is_backup: wal::has_backup_label(root),
        stopped: stopped(),
    };
    if let Err(objection) = anchor.expect(&directory) {
        return refuse(&objection);
    }
    let Some(next) = anchor.next(Seen::Running) else { return refuse(&"its numbers are used up") };
    wal::begin_epoch(root, keys, next.sequence)?;
    advance(root, keys.keyring_id, &next)?;
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    Ok(())
}

/// Tells the anchor that the server was shut down cleanly. If that fails, the anchor still says
/// that a server runs, and the next start compares the run.
pub fn server_ends(root: &'static Root, stopped: impl FnOnce() -> Option<(u64, [u8; 32])>) {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(anchor) = current.take() else { return };
    let told = stopped().and_then(|(manifest, control)| {
        let next = anchor.next(Seen::Stopped { manifest, control })?;
        advance(root, load::of(root).ok()?.keyring_id, &next).ok()
    });
    if told.is_none() {
        log::line(format_args!(
            "WARNING: the anchor was not told of this shutdown: until the next start, copies of the data directory from this run of the server are not told apart"
        ));
    }
}

/// What stands before the colon of a store's URI: the rest may hold secrets.
fn scheme(store: &[u8]) -> Vec<u8> {
    let mut scheme = store.split(|byte| *byte == b':').next().unwrap_or_default().to_vec();
    scheme.extend_from_slice(b":...");
    scheme
}

/// The anchor of a keyring; `None` if the store has none. The helper has logged an error.
fn read(root: &Root, id: KeyringId) -> Result<Option<State>, Errno> {
    let answer = helper::run(&helper::of_cluster(b"anchor-read", root.path(), id))?;
    if answer.is_empty() {
        return Ok(None);
    }
    let state = core::str::from_utf8(&answer).ok().and_then(|text| text.trim_end().parse().ok());
    state.map(Some).ok_or_else(|| {
        log::line(format_args!("ERROR: the helper gave no anchor; is it of another version?"));
        libc::EACCES
    })
}

fn advance(root: &Root, id: KeyringId, state: &State) -> Result<(), Errno> {
    let mut arguments = helper::of_cluster(b"anchor-advance", root.path(), id);
    arguments.extend([b"--state".to_vec(), state.to_string().into_bytes()]);
    helper::run(&arguments).map(drop)
}
