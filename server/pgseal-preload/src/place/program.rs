//! Which program this process runs, and what it may see.
//!
//! The executable decides, never a variable that a child could inherit: `archive_command`'s `cp`
//! sees sealed bytes although it carries the same `LD_PRELOAD`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::OnceLock;

use crate::os::log;
use crate::os::memory::with_reserve;
use crate::os::real;
use crate::os::sys;

/// PostgreSQL's programs that read or write files of a data directory. The last ones make and read
/// the dumps that `pg_upgrade` keeps in the new data directory; elsewhere the files that they write
/// are plain.
const ACTIVE: [&str; 21] = [
    "initdb",
    "pg_amcheck",
    "pg_archivecleanup",
    "pg_basebackup",
    "pg_checksums",
    "pg_combinebackup",
    "pg_controldata",
    "pg_createsubscriber",
    "pg_ctl",
    "pg_receivewal",
    "pg_resetwal",
    "pg_rewind",
    "pg_upgrade",
    "pg_verifybackup",
    "pg_waldump",
    "pg_walsummary",
    "postgres",
    "pg_dump",
    "pg_dumpall",
    "pg_restore",
    "psql",
];

/// The role of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Not one of PostgreSQL's programs: every call passes.
    Bystander = 1,
    /// A client-side program of PostgreSQL.
    Tool = 2,
    /// `initdb`: creates data directories.
    Initdb = 3,
    /// `pg_basebackup`: creates a data directory as a copy of a server's.
    BaseBackup = 4,
    /// `postgres` as postmaster or one of its children.
    Server = 5,
    /// `postgres --single`, `--boot`, `--check` and the like: one process, no children.
    Standalone = 6,
    /// `pg_rewind`, `pg_verifybackup`, `pg_checksums`: walk a data directory and must not see
    /// `pgseal/`.
    Walker = 7,
    /// `pg_resetwal`: deletes WAL that it could not write again without the keys.
    Resetwal = 8,
    /// `pg_combinebackup`: walks data directories and makes one out of them.
    CombineBackup = 9,
    /// `pg_upgrade`: has files copied, linked and moved from one data directory into another.
    Upgrade = 10,
    /// `pg_receivewal`: archives the WAL of a server.
    ReceiveWal = 11,
}

impl Role {
    /// Whether the program must have the keys of all its data directories before it begins, since
    /// it changes one before it has read all others: `pg_resetwal` removes the WAL before it writes
    /// new WAL; `pg_rewind` copies from the source into the target file by file.
    pub fn needs_keys_first(self) -> bool {
        matches!(self, Role::Resetwal | Role::Walker | Role::CombineBackup)
    }
}

static ROLE: AtomicU8 = AtomicU8::new(0);

/// The role of this process, determined on first use, which may be before our constructor.
#[inline]
pub fn role() -> Role {
    match ROLE.load(Ordering::Relaxed) {
        1 => Role::Bystander,
        2 => Role::Tool,
        3 => Role::Initdb,
        4 => Role::BaseBackup,
        5 => Role::Server,
        6 => Role::Standalone,
        7 => Role::Walker,
        8 => Role::Resetwal,
        9 => Role::CombineBackup,
        10 => Role::Upgrade,
        11 => Role::ReceiveWal,
        _ => find_out(),
    }
}

/// Whether this process sees plain content at all.
#[inline]
pub fn active() -> bool {
    role() != Role::Bystander
}

/// Ends a server that may not start; in other programs does nothing. The reason of the error must
/// be logged: it is the last line of the log then. Left alone, PostgreSQL would go on to report
/// what follows from the refusal, a lock file that cannot be created for example, after a hundred
/// tries. Where only memory or descriptors are short, PostgreSQL's own message is the right one.
pub fn end_server(errno: c_int) {
    let is_told = ![libc::ENOMEM, libc::EMFILE, libc::ENFILE].contains(&errno);
    if is_told && matches!(role(), Role::Server | Role::Standalone) {
        // PostgreSQL's own handler of exit removes its lock file, if there is one.
        std::process::exit(1);
    }
}

fn find_out() -> Role {
    let errno = real::errno();
    let role = with_reserve(|| role_of(&executable_name()));
    ROLE.store(role as u8, Ordering::Relaxed);
    real::set_errno(errno);
    role
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b"postgres" => {
            let first = arguments().into_iter().nth(1).unwrap_or_default();
            let alone = [&b"--single"[..], b"--boot", b"--check", b"--describe-config", b"-C"];
            if alone.contains(&first.as_slice()) { Role::Standalone } else { Role::Server }
        }
        b"initdb" => Role::Initdb,
        b"pg_basebackup" => Role::BaseBackup,
        b"pg_resetwal" => Role::Resetwal,
        b"pg_combinebackup" => Role::CombineBackup,
        b"pg_upgrade" => Role::Upgrade,
        b"pg_receivewal" => Role::ReceiveWal,
        b"pg_rewind" | b"pg_verifybackup" | b"pg_checksums" => Role::Walker,
        _ if ACTIVE.iter().any(|active| active.as_bytes() == name) => Role::Tool,
        _ => {
            let listed = sys::env(c"PGSEAL_PROGRAMS").unwrap_or_default();
            let listed = listed.split(|byte| *byte == b':').any(|entry| entry == name);
            if listed && !name.is_empty() { Role::Tool } else { Role::Bystander }
        }
    }
}

/// Whether this server only prints the value of a setting (`postgres -C NAME`) and ends: programs
/// read all that it prints.
pub fn only_prints() -> bool {
    arguments().iter().skip(1).any(|argument| argument.starts_with(b"-C"))
}

/// Whether this is a `postgres` that `initdb` runs on a new data directory.
pub fn makes_cluster() -> bool {
    let first = arguments().into_iter().nth(1).unwrap_or_default();
    role() == Role::Standalone && [&b"--boot"[..], b"--check"].contains(&first.as_slice())
}

fn executable_name() -> Vec<u8> {
    let Some(path) = sys::read_link(c"/proc/self/exe") else { return Vec::new() };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
}

/// The name of the executable, for messages.
pub fn name() -> Vec<u8> {
    executable_name()
}

/// Whether this is `pg_rewind`, which copies pages from one data directory into another.
pub fn rewinds() -> bool {
    static REWINDS: OnceLock<bool> = OnceLock::new();
    *REWINDS.get_or_init(|| with_reserve(|| executable_name() == b"pg_rewind"))
}

/// The arguments of this process, the program's name first.
pub fn arguments() -> Vec<Vec<u8>> {
    match sys::read_whole(c"/proc/self/cmdline", 1 << 20) {
        Ok(bytes) => {
            let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
            bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
        }
        Err(_) => {
            log::line(format_args!("/proc is not mounted; the command line cannot be read"));
            Vec::new()
        }
    }
}

/// The value of an option in this argument. `None`: the argument is another option; `Some(None)`:
/// the value is the next argument.
pub fn value_of(argument: &[u8], short: &[u8], long: &[u8]) -> Option<Option<Vec<u8>>> {
    if argument == short || argument == long {
        return Some(None);
    }
    if let Some(value) = argument.strip_prefix(long).and_then(|value| value.strip_prefix(b"=")) {
        return Some(Some(value.to_vec()));
    }
    let attached = argument.strip_prefix(short).filter(|_| !argument.starts_with(b"--"));
    attached.map(|value| Some(value.to_vec()))
}

/// The target of `pg_basebackup` and `pg_receivewal`: `-D`, a directory or `-`.
pub fn copy_target() -> Option<Vec<u8>> {
    target_of(&arguments())
}

/// Whether `pg_basebackup` was asked for help only, or for a backup that the server keeps
/// (`--target`).
pub fn writes_no_copy_here() -> bool {
    no_copy_here(&arguments())
}

fn no_copy_here(arguments: &[Vec<u8>]) -> bool {
    arguments.iter().skip(1).any(|argument| {
        [&b"--help"[..], b"-?", b"--version", b"-V", b"--target"].contains(&argument.as_slice())
            || argument.starts_with(b"--target=")
            || argument.starts_with(b"-t")
    })
}

fn target_of(arguments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut target = None;
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let found = value_of(argument, b"-D", b"--pgdata")
            .or_else(|| value_of(argument, b"-D", b"--directory"));
        if let Some(value) = found {
            target = value.or_else(|| rest.next().cloned());
        }
    }
    target
}

/// The arguments of `pg_combinebackup`: `-o`, and everything that may be the name of a backup,
/// oldest first.
pub fn combine_backup_target() -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
    combine_target(&arguments())
}

fn combine_target(arguments: &[Vec<u8>]) -> (Option<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut target, mut backups) = (None, Vec::new());
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        if let Some(value) = value_of(argument, b"-o", b"--output") {
            target = value.or_else(|| rest.next().cloned());
        } else if !argument.starts_with(b"-") {
            backups.push(argument.clone());
        }
    }
    (target, backups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_executable_decides() {
        assert_eq!(role_of(b"cp"), Role::Bystander);
        assert_eq!(role_of(b"vacuumdb"), Role::Bystander);
        assert_eq!(role_of(b"pg_waldump"), Role::Tool);
        assert_eq!(role_of(b"pg_rewind"), Role::Walker);
        assert_eq!(role_of(b"pg_receivewal"), Role::ReceiveWal);
        assert_eq!(role_of(b"initdb"), Role::Initdb);
        assert_eq!(role_of(b""), Role::Bystander);
    }

    #[test]
    fn the_target_of_a_copy_is_found() {
        for (line, wanted) in [
            ("pg_basebackup -D out -X stream", Some("out")),
            ("pg_basebackup -Ft -Dout", Some("out")),
            ("pg_basebackup --pgdata=out", Some("out")),
            ("pg_basebackup -Ft -D -", Some("-")),
            ("pg_receivewal --directory out", Some("out")),
            ("pg_basebackup --target=blackhole -X none", None),
        ] {
            let arguments: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let target = target_of(&arguments);
            assert_eq!(target.as_deref(), wanted.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn what_writes_no_copy_is_known() {
        for (line, wanted) in [
            ("pg_basebackup --help", true),
            ("pg_basebackup --target=blackhole -X none", true),
            ("pg_basebackup -t server:/x", true),
            ("pg_basebackup -Ft -PD -", false),
            ("pg_basebackup -PDdir", false),
            ("pg_basebackup --tablespace-mapping=/a=/b --pgd=-", false),
        ] {
            let arguments: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(no_copy_here(&arguments), wanted, "{line}");
        }
    }

    #[test]
    fn the_output_of_pg_combinebackup_is_told_from_its_inputs() {
        let of = |line: &str| {
            let arguments: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let (target, backups) = combine_target(&arguments);
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            (target.map(text), backups.into_iter().map(text).collect::<Vec<_>>().join(" "))
        };
        let wanted = (Some("out".to_owned()), "a b".to_owned());
        for line in [
            "pg_combinebackup -o out a b",
            "pg_combinebackup a b -oout",
            "pg_combinebackup -N --output=out --copy a b",
            "pg_combinebackup a --output out b",
        ] {
            assert_eq!(of(line), wanted, "{line}");
        }
        assert_eq!(of("pg_combinebackup a"), (None, "a".to_owned()));
    }
}
