//! The manifest of a data directory (`spec/manifest.md`): which files it consists of, and which
//! version of each, as of the last clean shutdown.
//!
//! [`write`] writes the manifest just before `pg_control` says "shut down", and at the end of
//! `pg_basebackup`. [`watch`] reads the
//! manifest when a server starts, and compares each file with it when the file is first opened.

mod listing;
mod stored;
mod watch;
mod write;

use pgseal_pgdata::Class;

pub use self::watch::{differs, leave, objection, release, server_starts};
pub use self::write::{ControlFile, before_control, stopped};

use crate::place::datadir;
use crate::place::program::{self, Role};

/// To be called before the file at a path is removed. The end of a server is the removal of its
/// lock file.
pub fn before_unlink(path: &[u8]) {
    before_change(path);
    if datadir::base_name(path) == b"postmaster.pid"
        && watch::is_server()
        && let Some(location) = datadir::locate(path)
    {
        write::server_ends(location.root);
    }
}

/// To be called before the file at a path gets another name, and perhaps replaces the file there.
/// The last step of `pg_basebackup` is to give `backup_manifest` its name.
pub fn before_rename(from: &[u8], to: &[u8]) {
    if program::role() == Role::BaseBackup
        && datadir::base_name(from) == b"backup_manifest.tmp"
        && let Some(location) = datadir::locate(to)
    {
        return write::backup_ends(location.root);
    }
    before_change(from);
    before_change(to);
}

fn before_change(path: &[u8]) {
    if watch::is_server() {
        release(path);
    } else if program::active() {
        write::tool_changes(path);
    }
}

/// To be called before a sealed file of this class is written or truncated. `is_told`: whether that
/// was called before for the same open file.
#[inline]
pub fn before_write(class: Option<Class>, path: &[u8], is_told: &mut bool) {
    if watch::is_server() {
        watch::server_writes(class, path);
    } else if !core::mem::replace(is_told, true) {
        write::tool_changes(path);
    }
}
