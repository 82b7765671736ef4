//! Prepares a server when it takes its lock file, before it forks or writes: checks the keys and
//! the configuration, and makes the memory that its processes share.

use core::ffi::{CStr, c_int};

use pgseal_core::{KeySet, KeyringId, SealedFile};

use crate::file::anchor;
use crate::file::changes;
use crate::file::config;
use crate::file::counters;
use crate::file::gate;
use crate::file::held;
use crate::file::leftovers;
use crate::file::manifest;
use crate::file::open_file;
use crate::file::shared_tags;
use crate::file::storage::FdStorage;
use crate::file::versions;
use crate::file::wal;
use crate::keys::load;
use crate::keys::renewal;
use crate::keys::vault;
use crate::os::log::{self, Shown};
use crate::os::memory::{self, with_reserve};
use crate::os::real;
use crate::os::sys::{self, PathText};
use crate::place::datadir::{self, Root};
use crate::place::program::{self, Role};

/// Loads the keys before a server forks, verifies them on the relation map, and removes the key
/// from the environment, which its children would inherit. Makes the shared counters.
pub fn starts(root: &'static Root) -> Result<(), c_int> {
    if !matches!(program::role(), Role::Server | Role::Standalone) {
        return Ok(());
    }
    datadir::expect_not_system(root.path())
        .and_then(|()| load::of(root))
        .and_then(|keys| with_reserve(|| prepare_server(root, keys)))
}

fn prepare_server(root: &'static Root, keys: &'static KeySet) -> Result<(), c_int> {
    if !program::makes_cluster() {
        expect_pinned(root, keys.keyring_id)?;
        config::server_starts(root)?;
    }
    let map = datadir::join(root.path(), b"global/pg_filenode.map");
    if !program::makes_cluster() && sys::c_path(&map).is_ok_and(|path| sys::stat(&path).is_none()) {
        log::line(format_args!(
            "ERROR: \"{}\" is not there, which every data directory has; restore the data directory from a backup",
            Shown(&map)
        ));
        return Err(libc::EACCES);
    }
    if let Ok(path) = sys::c_path(&map)
        && let Ok(fd) = sys::open_read(&path)
    {
        match SealedFile::open(&FdStorage::new(fd.0), keys) {
            Ok(_) => {}
            Err(error) => {
                let errno = open_file::describe(&error, &map);
                log::line(format_args!(
                    "ERROR: the keyring \"{}\" does not fit this data directory; put its own back",
                    Shown(&root.keyring_path())
                ));
                return Err(errno);
            }
        }
    }
    if !program::makes_cluster() {
        manifest::server_starts(root)?;
        wal::server_starts(root, keys)?;
        anchor::server_starts(root, keys, || {
            manifest::stopped(root, &datadir::control_file(root).unwrap_or_default())
        })?;
    }
    if program::role() == Role::Server {
        leftovers::server_starts(root, keys);
        wipe_environment(root);
        tell_limit();
        counters::share();
        changes::share();
        held::share();
        gate::share();
        versions::share();
        shared_tags::share();
        renewal::server_starts(root);
        open_file::take_buffers()?;
        memory::grow_stack();
    }
    Ok(())
}

/// The identities of the keyrings that a server accepts, separated by colons; if unset, any.
const PINNED: &CStr = c"PGSEAL_KEYRING_ID";

/// Refuses a server on the data directory of another cluster.
fn expect_pinned(root: &Root, id: KeyringId) -> Result<(), c_int> {
    let Some(pinned) = sys::env(PINNED) else { return Ok(()) };
    let own = id.to_string();
    if pinned.split(|byte| *byte == b':').any(|allowed| allowed == own.as_bytes()) {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: \"{}\" has keyring {own}, and PGSEAL_KEYRING_ID names {}; put back the data directory of this server, or name this keyring if it is the right one",
        Shown(root.path()),
        Shown(&pinned)
    ));
    Err(libc::EACCES)
}

/// Called when a server is about to start in a plain data directory. Fails if the environment asks
/// for sealing: the sealed data directory is missing, and the server would write everything plain.
pub fn starts_plain() -> Result<(), c_int> {
    if !matches!(program::role(), Role::Server | Role::Standalone) {
        return Ok(());
    }
    let names = [PINNED, c"PGSEAL_PROVIDER", c"PGSEAL_CONFIG", anchor::STORE];
    let asked = names.into_iter().find(|name| sys::env(name).is_some());
    let Some(asked) = asked else { return Ok(()) };
    let dir = sys::current_dir().unwrap_or_else(PathText::new);
    log::line(format_args!(
        "ERROR: \"{}\": there is neither a keyring nor a sealed relation map, and {} asks for a sealed data directory; restore it from a backup, or unset {} for a plain server",
        Shown(&dir),
        asked.to_string_lossy(),
        asked.to_string_lossy()
    ));
    Err(libc::EACCES)
}

/// Removes the key from this server's environment: its children must not inherit it.
fn wipe_environment(root: &Root) {
    let name = root.unlocked().and_then(|unlocked| unlocked.key_variable.as_deref());
    if let Some(name) = name
        && let Ok(name) = sys::c_path(name.as_bytes())
    {
        sys::wipe_env(&name);
    }
    if let Some(fd) = sys::env(c"PGSEAL_KEK_FD") {
        if let Some(fd) = core::str::from_utf8(&fd).ok().and_then(|text| text.parse().ok()) {
            // SAFETY: the descriptor was handed to us to be used and closed.
            unsafe { real::close(fd) };
        }
        sys::wipe_env(c"PGSEAL_KEK_FD");
    }
}

/// Warns if the limit does not allow all memory with keys to be locked.
fn tell_limit() {
    let bytes = match vault::prepare() {
        vault::Limit::Enough => return,
        vault::Limit::Bytes(bytes) => bytes,
    };
    log::line(format_args!(
        "WARNING: {} kB of the keys of each process can be locked in memory, the rest may be swapped out (it is in no core dump); raise RLIMIT_MEMLOCK to 1 MB or more (systemd: LimitMEMLOCK=1M), or encrypt swap",
        bytes / 1024
    ));
}
