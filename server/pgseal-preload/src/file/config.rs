//! The configuration of a locked data directory: the server reads each file only if it is as
//! recorded in `pgseal/config` (`spec/config-lock.md`).
//!
//! The server reads exactly the bytes that were compared: a file is read whole, compared, and given
//! to the server in anonymous memory. [`change`] records the changes that the server makes itself.

mod change;
mod record;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_keys::config_record::{ConfigRecord, Version};
use pgseal_pgdata::Class;

pub use self::change::{before_rename, before_unlink};

use crate::keys::renewal;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::real;
use crate::os::real::Errno;
use crate::os::sys::{self, PathText};
use crate::place::datadir::{self, Location, Root};
use crate::place::program::{self, Role};
use crate::place::symbol::{Symbol, is_under_postmaster, is_walsender};

const MAIN: &[u8] = b"postgresql.conf";
const AUTO: &[u8] = b"postgresql.auto.conf";
/// `PG_AUTOCONF_FILENAME` with `.tmp` appended: the new file before its rename
/// (`AlterSystemSetConfigFile`, `guc.c`).
const AUTO_NEW: &[u8] = b"postgresql.auto.conf.tmp";
/// `RECOVERY_SIGNAL_FILE` and `STANDBY_SIGNAL_FILE` (`access/xlog.h`).
const SIGNALS: [&[u8]; 2] = [b"recovery.signal", b"standby.signal"];

/// The content that the server reads in place of a refused file. Every parser of PostgreSQL rejects
/// a single word: a setting without a value, an entry of `pg_hba.conf` of unknown type, an entry of
/// `pg_ident.conf` without a user, a certificate without its first line.
const NOTHING_USEFUL: &[u8] = b"pgseal_refuses_this_file\n";

/// The longest file that is compared, in bytes.
const MAX_LEN: usize = 64 << 20;

/// Whether the record that was read last locks its data directory.
static LOCKED: AtomicBool = AtomicBool::new(false);
/// The file names in the record that was read last.
static NAMES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<Vec<u8>>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(record: Option<&ConfigRecord>) {
    LOCKED.store(record.is_some(), Ordering::Relaxed);
    let all = record.map(|record| record.entries.iter().map(|entry| entry.name.clone()).collect());
    *names() = all.unwrap_or_default();
}

/// Whether this process is a server and reads the configuration.
fn is_server() -> bool {
    match program::role() {
        Role::Server => true,
        Role::Standalone => !program::makes_cluster(),
        _ => false,
    }
}

/// A path in a data directory.
struct Located {
    root: &'static Root,
    name: PathText,
    class: Class,
}

/// The data directory of a path, its name below that directory, and its class. The data directory
/// is looked up by its real path: a server names it differently before and after it changes into
/// it.
fn locate(path: &[u8]) -> Option<Located> {
    let Location { root, class, .. } = datadir::locate(path)?;
    let full = datadir::absolute(path);
    let name = full.strip_prefix(root.path())?.strip_prefix(b"/")?;
    let name = PathText::of(name);
    Some(Located { root: root.real(), name, class })
}

/// Whether a file of this class may be read by the server as configuration.
fn may_be_recorded(class: Option<Class>) -> bool {
    matches!(class, Some(Class::Config | Class::TlsFile | Class::Unknown))
}

/// The descriptor for a path that is about to be opened, if the record decides about this file;
/// `None`: the file is opened like any other.
#[inline]
pub fn opened(path: &CStr, flags: c_int, class: Option<Class>) -> Option<Result<c_int, Errno>> {
    let is_config = class == Some(Class::Config);
    let concerns = may_be_recorded(class) && (is_config || LOCKED.load(Ordering::Relaxed));
    if concerns && is_server() { opened_by_server(path, flags, is_config) } else { None }
}

// Each path takes pages of the stack, so what seldom runs has a frame of its own.
#[cold]
#[inline(never)]
fn opened_by_server(path: &CStr, flags: c_int, is_config: bool) -> Option<Result<c_int, Errno>> {
    if is_config
        && datadir::base_name(path.to_bytes()) == AUTO
        && !is_under_postmaster()
        && let Some(location) = datadir::locate(path.to_bytes())
    {
        // The postmaster opens this file each time that it reads its configuration.
        with_reserve(|| renewal::configuration_is_read(location.root));
    }
    with_reserve(|| decide(path, flags))
}

fn decide(path: &CStr, flags: c_int) -> Option<Result<c_int, Errno>> {
    let file = locate(path.to_bytes())?;
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return (*file.name == *AUTO_NEW).then(|| change::staged(&file, path, flags)).flatten();
    }
    let is_known = || names().iter().any(|name| *name == *file.name);
    if is_for_base_backup(path.to_bytes()) || (file.class != Class::Config && !is_known()) {
        return None;
    }
    let judged = with_newest(file.root, |record| judge(&file, path, record));
    match judged {
        Ok(Judged::Unknown) => None,
        Ok(Judged::Gone) => Some(Err(libc::ENOENT)),
        Ok(Judged::Is(bytes)) => Some(in_memory(&bytes, flags)),
        Err(errno) if *file.name == *MAIN => {
            if !STARTED.load(Ordering::Relaxed) {
                program::end_server(errno);
            }
            Some(Err(libc::EACCES))
        }
        Err(_) => Some(in_memory(NOTHING_USEFUL, flags)),
    }
}

/// What the record says about a file.
#[derive(Default)]
enum Judged {
    /// The record does not apply to the file.
    #[default]
    Unknown,
    /// The file does not exist, as recorded.
    Gone,
    /// The file has this content, as recorded.
    Is(Vec<u8>),
}

/// A file that differs from the record.
struct Differs {
    name: Vec<u8>,
    what: &'static str,
}

fn differs(name: &[u8], what: &'static str) -> Differs {
    Differs { name: name.to_vec(), what }
}

/// Compares files with the record. The server may change a file and the record between the two
/// reads, so a difference is checked again if the record has become newer.
fn with_newest<T: Default>(
    root: &Root,
    look: impl Fn(&ConfigRecord) -> Result<T, Differs>,
) -> Result<T, Errno> {
    let Some(mut record) = record::current(root)? else { return Ok(T::default()) };
    loop {
        let found = match look(&record) {
            Ok(found) => return Ok(found),
            Err(found) => found,
        };
        let Some(newer) = record::current(root)? else { return Ok(T::default()) };
        if newer.sequence == record.sequence {
            // All processes of a server read the configuration on a reload. Those without a client
            // do not log the difference, since the postmaster has logged it.
            if !is_under_postmaster() || has_client() {
                say_it_differs(root, &found.name, found.what);
            }
            return Err(libc::EACCES);
        }
        record = newer;
    }
}

fn judge(file: &Located, path: &CStr, record: &ConfigRecord) -> Result<Judged, Differs> {
    if [MAIN, AUTO].contains(&&file.name[..]) {
        expect_same(file.root, record)?;
    }
    let Some(entry) = record.get(&file.name) else {
        let is_read = is_listed(record, &file.name) || !is_under_postmaster();
        return match is_read && sys::stat(path).is_some() {
            true => Err(differs(&file.name, "is not in the record")),
            false => Ok(Judged::Unknown),
        };
    };
    let found = read(path).map_err(|_| differs(&file.name, "is no file that can be read"))?;
    if !entry.allows(found.as_deref()) {
        return Err(differs(&file.name, "is not as it was recorded"));
    }
    Ok(found.map_or(Judged::Gone, Judged::Is))
}

/// Whether a name ends in `.conf` and lies in a recorded directory, of which the server reads all
/// `.conf` files.
fn is_listed(record: &ConfigRecord, name: &[u8]) -> bool {
    let is_conf = name.ends_with(b".conf");
    is_conf && record.get(datadir::parent(name)).is_some_and(|dir| dir.is_directory())
}

/// Compares every entry of the record with the data directory.
fn expect_same(root: &Root, record: &ConfigRecord) -> Result<(), Differs> {
    for entry in &record.entries {
        let differs = |what| differs(&entry.name, what);
        let path = datadir::join(root.path(), &entry.name).into_c();
        let path = path.map_err(|_| differs("has too long a name"))?;
        if entry.is_directory() {
            let listing = sys::names_in(&path);
            let listing = listing.ok_or_else(|| differs("is no directory that can be read"))?;
            // As `include_dir` takes them (`GetConfFilesInDir`, `conffiles.c`).
            for name in listing.into_iter().filter(|name| name.ends_with(b".conf")) {
                let name = datadir::join(&entry.name, &name);
                if record.get(&name).is_none() {
                    return Err(self::differs(&name, "is not in the record"));
                }
            }
            continue;
        }
        let found = read(&path).map_err(|_| differs("is no file that can be read"))?;
        if !entry.allows(found.as_deref()) {
            let what = match (&found, entry.versions.contains(&Version::Absent)) {
                (None, _) => "is gone",
                (Some(_), true) => "was not there when the configuration was recorded",
                (Some(_), false) => "is not as it was recorded",
            };
            return Err(differs(what));
        }
    }
    Ok(())
}

/// Logs that a file differs from the record.
fn say_it_differs(root: &Root, name: &[u8], what: &str) {
    let dir = Shown(root.path());
    log::line(format_args!(
        "ERROR: \"{dir}/{}\" {what}; the configuration of this data directory is locked, and nothing of it is read now: see \"pgseal config status {dir}\", then put the file back, or \"pgseal config accept {dir}\" if the change is wanted",
        Shown(name)
    ));
}

/// Called when a server takes its lock file: checks the whole recorded configuration before the
/// server forks, and `PGSEAL_CONFIG`.
pub fn server_starts(root: &'static Root) -> Result<(), Errno> {
    if !is_server() {
        return Ok(());
    }
    with_reserve(|| with_newest(root, |record| expect_same(root, record)))?;
    STARTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether this server has taken its lock file. It then goes on with the settings that it has if
/// the configuration cannot be read.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Called when the server has checked whether the file at this path exists. Recovery depends on the
/// existence of a signal file alone; nobody reads its content.
pub fn looked_at(path: &[u8], is_there: bool) {
    if !path.ends_with(b".signal") || !is_server() || is_for_base_backup(path) {
        return;
    }
    // The caller wants to know why `stat` failed.
    let errno = real::errno();
    with_reserve(|| {
        let Some(file) = locate(path).filter(|file| SIGNALS.contains(&&file.name[..])) else {
            return;
        };
        let fits = match record::current(file.root) {
            Ok(None) => true,
            Ok(Some(record)) => record.get(&file.name).is_some_and(|entry| {
                entry.versions.iter().any(|version| (*version == Version::Absent) != is_there)
            }),
            Err(_) => false,
        };
        if !fits {
            let there = if is_there { "there" } else { "not there" };
            log::line(format_args!(
                "FATAL: \"{}/{}\" is {there}, and the record of the locked configuration has it otherwise; see \"pgseal config status\"",
                Shown(file.root.path()),
                Shown(&file.name)
            ));
            // SAFETY: ends the process, as the server's own FATAL does.
            unsafe { libc::_exit(1) };
        }
    });
    real::set_errno(errno);
}

/// The content of a regular file; `None` if the file does not exist.
fn read(path: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    let fd = match sys::open_read(path) {
        Ok(fd) => fd,
        Err(libc::ENOENT | libc::ENOTDIR) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    if !sys::fstat(fd.0).is_some_and(|st| sys::is_regular(st.st_mode)) {
        return Err(libc::EACCES);
    }
    sys::read_to_end(fd.0, MAX_LEN).map(Some)
}

/// Returns a descriptor of anonymous memory with this content, at position 0.
fn in_memory(bytes: &[u8], flags: c_int) -> Result<c_int, Errno> {
    let fd = sys::memory_file(c"pgseal-configuration", flags & libc::O_CLOEXEC != 0)?;
    sys::pwrite_all(fd.0, bytes, 0)?;
    let number = fd.0;
    core::mem::forget(fd);
    Ok(number)
}

/// Whether this process serves a client (`MyProcPort`, `utils/init/globals.c`).
fn has_client() -> bool {
    static PORT: Symbol = Symbol::new(c"MyProcPort");
    PORT.is_pointing()
}

/// Whether a path is opened by a base backup, which sends the files of the data directory as they
/// are: the name begins with `./` (`sendDir`, `backup/basebackup.c`), and the process serves
/// replication (`am_walsender`). The server opens configuration by absolute names.
fn is_for_base_backup(path: &[u8]) -> bool {
    path.starts_with(b"./") && is_walsender()
}
