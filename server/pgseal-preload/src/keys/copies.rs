//! Copies of a cluster that PostgreSQL's programs make outside the data directory: base backups,
//! received and archived WAL. They are sealed or refused, unless PGSEAL_UNSEALED_COPY asks for an
//! unsealed copy.

use core::ffi::c_int;

use pgseal_core::FileKind;

use crate::keys::load;
use crate::keys::make;
use crate::keys::upgrade;
use crate::os::log;
use crate::os::memory::with_reserve;
use crate::os::sys;
use crate::place::datadir::{self, absolute, base_name, parent, sealed_root};
use crate::place::program::{self, Role};

/// Ends a pg_basebackup that would write its copy to standard output, where it cannot be sealed
/// because no hook sees standard output being opened. A command line that does not say where the
/// copy goes counts as standard output.
pub fn check_purpose() {
    let copies = matches!(program::role(), Role::BaseBackup) && !program::writes_no_copy_here();
    if copies && program::copy_target().is_none_or(|to| to == b"-") && !unsealed_copy_allowed() {
        log::line(format_args!(
            "ERROR: this pg_basebackup would write an unsealed copy to standard output, or does not say where to in a way that is understood; give -D DIR as an option of its own, or set PGSEAL_UNSEALED_COPY=yes if an unsealed copy is what you want"
        ));
        // SAFETY: ends the process before it has done anything.
        unsafe { libc::_exit(1) };
    }
}

/// The kind of entry that is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// Called when a program creates a file or directory outside every sealed data directory. If it is
/// the first entry of a new data directory or backup that is to be sealed, this makes the keyring
/// there first.
pub fn before_creation(path: &[u8], creation: Creation) -> Result<(), c_int> {
    with_reserve(|| prepare_creation(path, creation))
}

fn prepare_creation(path: &[u8], creation: Creation) -> Result<(), c_int> {
    let asked_for = make::creation_asked_for();
    let mut newest = None;
    let dir = match program::role() {
        Role::Initdb if asked_for && base_name(path) == b"PG_VERSION" => {
            parent(&absolute(path)).to_vec()
        }
        Role::BaseBackup => {
            if !asked_for {
                return if unsealed_copy_allowed() {
                    Ok(())
                } else {
                    Err(refused("pg_basebackup"))
                };
            }
            target(path)?
        }
        Role::ReceiveWal if kind_of(path).is_some() => {
            if !asked_for {
                let has_keys = datadir::primary_root().is_some();
                return if has_keys { Ok(()) } else { Err(refused("pg_receivewal")) };
            }
            target(path)?
        }
        Role::CombineBackup => {
            let (target, backups) = program::combine_backup_target();
            // The last backup is the newest. The combined backup is this backup made complete.
            newest = backups.iter().rev().find_map(|backup| sealed_root(&absolute(backup)));
            if !asked_for && unsealed_copy_allowed() {
                return Ok(());
            }
            match target {
                // Plain backups are combined into a plain backup.
                _ if !asked_for && newest.is_none() => return Ok(()),
                Some(target) => absolute(&target).to_vec(),
                None => return Err(target_unknown("-o DIR")),
            }
        }
        Role::Upgrade => return upgrade::check_creation(path),
        _ => return Ok(()),
    };
    // The program creates the directory first; the keyring goes into it before the first entry.
    if absolute(path)[..] == dir[..] {
        return Ok(());
    }
    if !is_directory(&dir) {
        // The program may create parent directories first. If it creates a file before the
        // directory, the copy lies elsewhere.
        return if creation == Creation::Directory {
            Ok(())
        } else {
            Err(target_unknown("the directory of the copy, once,"))
        };
    }
    datadir::expect_not_system(&dir)?;
    // pg_basebackup has two processes, and either may get here first.
    let directory = sys::open_read(&sys::c_path(&dir)?)?;
    sys::lock(&directory)?;
    if sealed_root(&dir).is_none() {
        make::create_keyring(&dir, newest.filter(|_| !asked_for))?;
        // Loads the keys before the program starts children, each of which would ask the helper
        // again.
        load::of(datadir::register(&dir))?;
    }
    Ok(())
}

/// The directory that gets the keyring of a copy. If the command line does not name it, the call
/// fails, since the copy would be plain.
fn target(path: &[u8]) -> Result<Vec<u8>, c_int> {
    match program::copy_target() {
        Some(target) if target == b"-" => Ok(absolute(path).to_vec()),
        Some(target) => Ok(absolute(&target).to_vec()),
        None => Err(target_unknown("-D DIR")),
    }
}

fn target_unknown(option: &str) -> c_int {
    log::line(format_args!(
        "ERROR: the directory that gets the sealed copy cannot be told from the command line; give {option} as an option of its own"
    ));
    libc::EACCES
}

fn refused(program: &str) -> c_int {
    log::line(format_args!(
        "ERROR: this {program} would write an unsealed copy; set PGSEAL_PROVIDER or PGSEAL_KEYRING_FROM for a sealed one, or set PGSEAL_UNSEALED_COPY=yes if that is what you want"
    ));
    libc::EACCES
}

/// How a file that a program creates outside its data directory is sealed, if the file is a copy of
/// sealed files: WAL of the server's `basic_archive` module (`archtemp.*`) and of `pg_receivewal`,
/// and the tar files of a base backup into a directory of the server. `None` if it is no such copy,
/// or if an unsealed copy was asked for.
///
/// A server also writes files for its users, under any name: `COPY ... TO`, `lo_export`. These
/// overwrite an existing file; PostgreSQL's own copies are always created with `O_EXCL`
/// (`bbsink_server_begin_archive` of `basebackup_server.c`, `copy_file` of `copydir.c`).
pub fn kind_of_new(path: &[u8], flags: c_int) -> Option<FileKind> {
    if program::role() == Role::Server && flags & libc::O_EXCL == 0 {
        return None;
    }
    kind_of(path)
}

/// Like [`kind_of_new`], by the name alone, for a file in a directory with its own keyring.
pub fn kind_of(path: &[u8]) -> Option<FileKind> {
    with_reserve(|| find_kind_of(path))
}

fn find_kind_of(path: &[u8]) -> Option<FileKind> {
    let role = program::role();
    // If a program makes a directory with its own keyring, PGSEAL_UNSEALED_COPY does not apply.
    let has_key = matches!(role, Role::BaseBackup | Role::ReceiveWal) && make::creation_asked_for();
    if unsealed_copy_allowed() && !has_key {
        return None;
    }
    let name = base_name(path);
    let wal = is_wal(name.strip_prefix(b"archtemp.").unwrap_or(name));
    if wal && matches!(role, Role::Server | Role::Tool | Role::ReceiveWal | Role::BaseBackup) {
        return Some(FileKind::Wal);
    }
    (role == Role::Server && is_backup_tar(name)).then_some(FileKind::Stream)
}

/// 24 hexadecimal digits as in `IsXLogFileName`, alone or followed by a dot and a suffix
/// (`.partial`, `.gz`, `.00000028.backup`). A file named by a longer hash does not match.
fn is_wal(name: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
    name.len() >= 24 && name[..24].iter().all(digit) && name.get(24).is_none_or(|at| *at == b'.')
}

/// `base.tar`, or the number of a tablespace in place of `base`, compressed or not
/// (`basebackup_target.c`, `bbsink_server_begin_archive`).
fn is_backup_tar(name: &[u8]) -> bool {
    let Some(at) = name.windows(4).position(|part| part == b".tar") else { return false };
    let (stem, suffix) = (&name[..at], &name[at + 4..]);
    let known = stem == b"base" || (!stem.is_empty() && stem.iter().all(u8::is_ascii_digit));
    known && [&b""[..], b".gz", b".lz4", b".zst"].contains(&suffix)
}

/// Whether PGSEAL_UNSEALED_COPY allows plain copies of sealed data directories.
fn unsealed_copy_allowed() -> bool {
    sys::env_is(c"PGSEAL_UNSEALED_COPY", b"yes")
}

fn is_directory(path: &[u8]) -> bool {
    let st = sys::c_path(path).ok().and_then(|path| sys::stat(&path));
    st.is_some_and(|st| st.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wal_are_known() {
        let segment = "00000001000000000000000A";
        for suffix in ["", ".partial", ".gz", ".gz.partial", ".00000028.backup"] {
            assert!(is_wal(format!("{segment}{suffix}").as_bytes()), "{suffix}");
        }
        for name in [
            "d41d8cd98f00b204e9800998ecf8427e.csv",
            "00000001000000000000000a",
            "00000001000000000000000A0.csv",
            "00000002.history",
            "",
        ] {
            assert!(!is_wal(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_tar_files_of_a_base_backup_are_known() {
        for name in ["base.tar", "16384.tar", "base.tar.gz", "16384.tar.lz4", "base.tar.zst"] {
            assert!(is_backup_tar(name.as_bytes()), "{name}");
        }
        for name in ["my.tar", "base.tar.bz2", ".tar", "base", "base.tarred", "backup_manifest"] {
            assert!(!is_backup_tar(name.as_bytes()), "{name}");
        }
    }
}
