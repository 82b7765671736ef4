//! Files under a temporary name that a power cut left torn: `pg_stat/pgstat.tmp`, for example.
//!
//! PostgreSQL writes a file under a name with `.tmp`, and gives it its own name when it is whole.
//! It never reads a file under the temporary name, and it does not sync each of them. But
//! `pg_basebackup` copies them, and reading a torn sealed file fails. So a server that starts after
//! a crash removes those that do not open.

use pgseal_core::error::SealError;
use pgseal_core::memory::boxed;
use pgseal_core::storage::Storage;
use pgseal_core::verify::verify_file;
use pgseal_core::{HeaderFault, KeySet, Opened, Scratch, SealedFile};
use pgseal_pgdata::LISTED_DIRECTORIES;

use crate::file::storage::FdStorage;
use crate::os::log::{self, Shown};
use crate::os::sys;
use crate::place::datadir::{self, Root, join};
use crate::place::texts::{self, State};
use crate::place::tree::{databases, names_in};

/// Directories that may have such files, besides those that a manifest lists and those of
/// databases.
const MORE_DIRECTORIES: [&[u8]; 2] = [b"pg_stat", b"pg_logical/snapshots"];

/// Removes the torn files of a directory whose server was not shut down cleanly. The postmaster
/// calls this before it forks.
pub fn server_starts(root: &Root, keys: &KeySet) {
    let control = datadir::control_file(root).unwrap_or_default();
    if texts::state(&control) == Some(State::Stopped) {
        return;
    }
    let fixed = LISTED_DIRECTORIES.into_iter().chain(MORE_DIRECTORIES);
    for directory in fixed.map(<[u8]>::to_vec).chain(databases(root)) {
        for name in names_in(root, &directory) {
            if name.ends_with(b".tmp") {
                remove_torn(root, keys, &join(&directory, &name));
            }
        }
    }
}

fn remove_torn(root: &Root, keys: &KeySet, rel: &[u8]) {
    let Ok(path) = join(root.path(), rel).into_c() else { return };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(fd) = sys::open(&path, flags, 0) else { return };
    if !is_torn(&FdStorage::new(fd.0), keys) {
        return;
    }
    if sys::unlink(&path).is_ok() {
        log::line(format_args!(
            "LOG: \"{}\" removed: a crash cut off the program that wrote it, and PostgreSQL writes it anew when it needs it",
            Shown(rel)
        ));
    }
}

/// Whether this is a sealed file of which a part is missing. A file that cannot be read now, or
/// whose key is not at hand, is not.
fn is_torn(storage: &FdStorage, keys: &KeySet) -> bool {
    match SealedFile::open(storage, keys) {
        Ok(Opened::Sealed(mut file)) => {
            let Ok(mut scratch) = boxed(Scratch::default()) else { return false };
            verify_file(&mut file, storage, &mut scratch, &mut |_| {})
                .is_ok_and(|report| !report.damaged.is_empty() || report.stray_bytes > 0)
        }
        Ok(Opened::NoHeader { .. }) => storage.len().is_ok_and(|len| len.0 > 0),
        Err(SealError::Header(fault)) => {
            matches!(fault, HeaderFault::NotAuthentic | HeaderFault::BadPlace)
        }
        Ok(Opened::Plain) | Err(_) => false,
    }
}
