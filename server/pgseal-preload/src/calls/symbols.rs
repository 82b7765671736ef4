//! The table of every function of the C library that touches files, with its treatment.
//!
//! The table is compared with the imports of the running program at start-up
//! ([`crate::calls::audit`]), and with those of all installed PostgreSQL programs by `make
//! hooks-audit`. `spec/hooks.md` is generated from it.

use std::sync::OnceLock;

/// What the library does with calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Exported by the library; each call ends in a verdict.
    Hooked,
    /// Left alone.
    Passed,
    /// A program that imports it does not start.
    Refused,
}

/// The functions of one family, with their common properties.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name of the family, for the documentation.
    pub name: &'static str,
    /// The treatment of the calls.
    pub treatment: Treatment,
    /// The reason, and the verdicts of a hooked call.
    pub why: &'static str,
    /// The tests: programs in `tests/apps`, or test files of this crate.
    pub tests: &'static [&'static str],
    /// The names of the functions, with all variants.
    pub symbols: &'static [&'static str],
}

use Treatment::{Hooked, Passed, Refused};

/// All families.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "open",
        treatment: Hooked,
        why: "The verdict on a file. Seal: classes that hold user data, and every sealed file met elsewhere; O_WRONLY becomes O_RDWR, O_APPEND and O_TRUNC are done here, O_DIRECT is dropped. A damaged file opens, and reading and writing it fail; of WAL and of files that are not PostgreSQL's the open fails. Pass: plain classes, other programs. Refuse: a missing key (EACCES), a mapped-memory segment, a server without the guard module.",
        tests: &[
            "open_write.c",
            "open_append.c",
            "open_trunc.c",
            "open_direct.c",
            "open_at.c",
            "open_found.c",
            "open_refused.c",
            "fortified.c",
            "no_header.c",
            "birth_race.c",
            "damaged.c",
        ],
        symbols: &[
            "open",
            "open64",
            "openat",
            "openat64",
            "__open_2",
            "__open64_2",
            "__openat_2",
            "__openat64_2",
            "creat",
            "creat64",
        ],
    },
    Family {
        name: "read",
        treatment: Hooked,
        why: "Seal: blocks are opened; a relation page that does not authenticate is handed on as an invalid page, any other block is EIO. Pass: descriptors that are no sealed files.",
        tests: &[
            "read_ahead.c",
            "read_all.c",
            "read_parts.c",
            "fortified.c",
            "fortified_overflow.c",
            "flags_refused.c",
            "handler.c",
        ],
        symbols: &[
            "read",
            "__read_chk",
            "readv",
            "pread",
            "pread64",
            "__pread_chk",
            "__pread64_chk",
            "preadv",
            "preadv64",
            "preadv2",
            "preadv64v2",
        ],
    },
    Family {
        name: "write",
        treatment: Hooked,
        why: "Seal: blocks are sealed with a fresh nonce before they are written. Pass: descriptors that are no sealed files.",
        tests: &["write_all.c", "append_race.c", "fork_writes.c", "flags_refused.c", "handler.c"],
        symbols: &[
            "write",
            "writev",
            "pwrite",
            "pwrite64",
            "pwritev",
            "pwritev64",
            "pwritev2",
            "pwritev64v2",
        ],
    },
    Family {
        name: "position and length",
        treatment: Hooked,
        why: "Seal: plain positions and lengths; truncation keeps the header and clears the tags behind the end. Refuse: fallocate modes that punch or shift (EOPNOTSUPP).",
        tests: &["seek.c", "truncate.c", "truncate_empty.c", "allocate.c", "allocate_refused.c"],
        symbols: &[
            "lseek",
            "lseek64",
            "truncate",
            "truncate64",
            "ftruncate",
            "ftruncate64",
            "fallocate",
            "fallocate64",
            "posix_fallocate",
            "posix_fallocate64",
        ],
    },
    Family {
        name: "stat",
        treatment: Hooked,
        why: "Seal: plain sizes, by descriptor and by path. Pass: everything that is not a sealed regular file.",
        tests: &["stat_sizes.c", "open_at.c"],
        symbols: &[
            "stat",
            "stat64",
            "lstat",
            "lstat64",
            "fstat",
            "fstat64",
            "fstatat",
            "fstatat64",
            "__xstat",
            "__xstat64",
            "__lxstat",
            "__lxstat64",
            "__fxstat",
            "__fxstat64",
            "__fxstatat",
            "__fxstatat64",
            "statx",
        ],
    },
    Family {
        name: "streams",
        treatment: Hooked,
        why: "Seal: a stream on a sealed file has our functions behind it (fopencookie), and fileno gives its descriptor. Refuse: freopen of a sealed file (EACCES).",
        tests: &[
            "fopen_modes.c",
            "fopen_long.c",
            "fopen_full.c",
            "fdopen.c",
            "stream_refused.c",
            "aborts.c",
        ],
        symbols: &[
            "fopen",
            "fopen64",
            "freopen",
            "freopen64",
            "fdopen",
            "fileno",
            "fileno_unlocked",
        ],
    },
    Family {
        name: "descriptors",
        treatment: Hooked,
        why: "Keeps the table of descriptors; copies made with dup and fcntl are sealed files too. Refuse: cloning a range of a sealed file (EOPNOTSUPP); descriptors for one thread of several (EPERM).",
        tests: &[
            "dup_shares.c",
            "close_reuse.c",
            "open_append.c",
            "clone.c",
            "behind.c",
            "inherited.c",
            "shares_refused.c",
        ],
        symbols: &[
            "close",
            "closefrom",
            "close_range",
            "dup",
            "dup2",
            "dup3",
            "fcntl",
            "fcntl64",
            "ioctl",
            "fclose",
        ],
    },
    Family {
        name: "descriptors from other processes",
        treatment: Hooked,
        why: "What arrives under a number is not known, and examined when it is first used: seal or pass by its head, its path and the policy.",
        tests: &["received.c"],
        symbols: &["recvmsg", "recvmmsg", "pidfd_getfd"],
    },
    Family {
        name: "processes that share",
        treatment: Hooked,
        why: "vfork becomes fork; after exec each entry of the table is held against the kernel. Refuse: clone that shares memory or descriptors and not both, unshare of descriptors in a thread (EPERM).",
        tests: &["vfork_child.c", "exec_while_loading.c", "shares_refused.c"],
        symbols: &[
            "vfork", "clone", "unshare", "execl", "execle", "execlp", "execv", "execve", "execvp",
            "execvpe", "fexecve",
        ],
    },
    Family {
        name: "system calls by number",
        treatment: Hooked,
        why: "A call that has a hook under its name gets the same verdict. Refuse: rings of requests (io_uring_setup, io_setup: ENOSYS), open_by_handle_at (EPERM). Pass: all others.",
        tests: &["raw_calls.c", "shares_refused.c"],
        symbols: &["syscall"],
    },
    Family {
        name: "directories",
        treatment: Hooked,
        why: "Hides pgseal/ from PostgreSQL's own walks; chdir tells which data directory relative paths mean; mkdir by pg_basebackup and pg_combinebackup makes the keyring first.",
        tests: &["listing.c", "combine.c"],
        symbols: &[
            "opendir",
            "fdopendir",
            "readdir",
            "readdir64",
            "closedir",
            "mkdir",
            "chdir",
            "fchdir",
        ],
    },
    Family {
        name: "advice",
        treatment: Hooked,
        why: "Plain ranges become sealed ones; the header goes to the disk before pages do.",
        tests: &["advice.c", "flush_order.c"],
        symbols: &["posix_fadvise", "posix_fadvise64", "sync_file_range", "readahead"],
    },
    Family {
        name: "maps",
        treatment: Hooked,
        why: "Seal: a map for reading, or a private one, is a copy of the plain content as it is at the call (in memory without a name; what others write later does not show; damage is EACCES, or an invalid page in a relation). A map that nobody may read (PROT_NONE), as mincore is asked about, stands for the pages on disk. Refuse: MAP_SHARED of a file that is open for writing, or to write (EACCES): SQLite in WAL mode, LMDB. Pass: anonymous memory and other files.",
        tests: &["map_read.c", "map_shared.c", "map_damaged.c"],
        symbols: &["mmap", "mmap64"],
    },
    Family {
        name: "copies inside the kernel",
        treatment: Hooked,
        why: "Sealed blocks must not move under another header. Seal: sendfile and copy_file_range read and write instead, the latter 1 MiB a call. Refuse: splice (EINVAL). Pass: other files.",
        tests: &["copies_refused.c", "copy_range.c", "send_file.c"],
        symbols: &["sendfile", "sendfile64", "copy_file_range", "splice"],
    },
    Family {
        name: "unique names",
        treatment: Hooked,
        why: "Our own: a random name, then our open with O_CREAT and O_EXCL, so that the class of the path decides.",
        tests: &["temporary.c"],
        symbols: &[
            "mkstemp",
            "mkstemp64",
            "mkstemps",
            "mkstemps64",
            "mkostemp",
            "mkostemp64",
            "mkostemps",
            "mkostemps64",
        ],
    },
    Family {
        name: "openat2",
        treatment: Hooked,
        why: "As open; with rules for the way to the file (resolve) ENOSYS for what would be sealed, on which programs go on with openat. C libraries before 2.43 do not have it.",
        tests: &["temporary.c"],
        symbols: &["openat2"],
    },
    Family {
        name: "walks through directories",
        treatment: Hooked,
        why: "They list names and sizes past our readdir and stat: scandir is our own, the others get plain sizes; pgseal/ is left out where readdir leaves it out.",
        tests: &["walks.c", "listing.c"],
        symbols: &[
            "scandir",
            "scandir64",
            "scandirat",
            "scandirat64",
            "ftw",
            "ftw64",
            "nftw",
            "nftw64",
            "fts_read",
            "fts64_read",
            "readdir_r",
            "readdir64_r",
        ],
    },
    Family {
        name: "the rest of fts",
        treatment: Passed,
        why: "They open and steer a walk of which fts_read says the names and sizes.",
        tests: &["walks.c"],
        symbols: &["fts_open", "fts64_open", "fts_set", "fts64_set", "fts_close", "fts64_close"],
    },
    Family {
        name: "streams without a file",
        treatment: Passed,
        why: "They are in memory, or have the program's own functions behind them, whose calls are hooked.",
        tests: &["hooks_table.rs"],
        symbols: &["fopencookie", "fmemopen", "open_memstream", "open_wmemstream"],
    },
    Family {
        name: "no files",
        treatment: Passed,
        why: "Their names only sound like file calls. What posix_spawn opens for a child is opened in the child, which sees what its own executable may see; process_vm_readv reads memory; fsopen and open_tree mount.",
        tests: &["hooks_table.rs"],
        symbols: &[
            "epoll_create",
            "timerfd_create",
            "pidfd_open",
            "posix_openpt",
            "posix_spawn_file_actions_addopen",
            "process_vm_readv",
            "process_vm_writev",
            "fsopen",
            "open_tree",
            "argz_create_sep",
            "argz_create",
            "hcreate",
            "hcreate_r",
            "initstate_r",
            "truncf32",
            "truncf32x",
            "truncf64",
            "truncf64x",
            "truncf128",
            "authdes_create",
            "authdes_pk_create",
            "authnone_create",
            "authunix_create",
            "authunix_create_default",
            "clnt_create",
            "clnt_pcreateerror",
            "clnt_spcreateerror",
            "clntraw_create",
            "clnttcp_create",
            "clntudp_bufcreate",
            "clntudp_create",
            "clntunix_create",
            "svcfd_create",
            "svcraw_create",
            "svctcp_create",
            "svcudp_bufcreate",
            "svcudp_create",
            "svcunix_create",
            "svcunixfd_create",
            "xdrmem_create",
            "xdrrec_create",
            "xdrstdio_create",
            "__rpc_thread_svc_max_pollfd",
            "__rpc_thread_svc_pollfd",
        ],
    },
    Family {
        name: "raw directory entries",
        treatment: Passed,
        why: "Names only, no contents or sizes; pgseal/ is among them.",
        tests: &["hooks_table.rs"],
        symbols: &["getdents64", "getdirentries", "getdirentries64"],
    },
    Family {
        name: "sync",
        treatment: Hooked,
        why: "Pass: the descriptor is the sealed file's own; what is synced is what was written. A server notes that its WAL is on the disk.",
        tests: &["write_all.c", "wal_position.c"],
        symbols: &["fsync", "fdatasync"],
    },
    Family {
        name: "sync of more than a file",
        treatment: Passed,
        why: "What is synced is what was written.",
        tests: &["write_all.c"],
        symbols: &["sync", "syncfs", "msync"],
    },
    Family {
        name: "sending",
        treatment: Hooked,
        why: "Pass. Before a server sends anything, and so before it acknowledges a commit, the position up to which its WAL is on the disk is published.",
        tests: &["wal_position.c"],
        symbols: &["send"],
    },
    Family {
        name: "removing",
        treatment: Hooked,
        why: "Identity is in the header: a sealed file may be removed as any other. Where the configuration is locked, the record follows when the server's recovery removes a signal file; no other recorded file is removed (EACCES).",
        tests: &["names.c", "configuration.c"],
        symbols: &["unlink"],
    },
    Family {
        name: "renaming",
        treatment: Hooked,
        why: "Identity is in the header: a sealed file may be renamed as any other. WAL that the server's recovery takes from an archive is first sealed anew if another cluster sealed it; what becomes a timeline history file is made plain. A file under a name that nobody knows becomes the file of its new place. Where the configuration is locked, the record follows ALTER SYSTEM; no other recorded file is renamed or replaced (EACCES). A segment of WAL whose keys sealed 2^31 writes does not become another segment (EKEYEXPIRED): PostgreSQL then makes a new file.",
        tests: &["names.c", "rename_unknown.c", "rename_recovered.c", "configuration.c"],
        symbols: &["rename", "renameat", "renameat2", "link"],
    },
    Family {
        name: "names and attributes",
        treatment: Passed,
        why: "Identity is in the header: a sealed file may be linked and removed as any other, and renamed.",
        tests: &["names.c"],
        symbols: &[
            "linkat",
            "symlink",
            "symlinkat",
            "unlinkat",
            "remove",
            "rmdir",
            "mkdirat",
            "readlink",
            "readlinkat",
            "__readlink_chk",
            "realpath",
            "__realpath_chk",
            "access",
            "faccessat",
            "euidaccess",
            "chmod",
            "fchmod",
            "fchmodat",
            "chown",
            "fchown",
            "lchown",
            "fchownat",
            "utime",
            "utimes",
            "futimes",
            "lutimes",
            "utimensat",
            "futimens",
            "umask",
            "mkfifo",
            "mknod",
            "mkdtemp",
            "tmpfile",
            "tmpfile64",
            "statfs",
            "fstatfs",
            "statvfs",
            "fstatvfs",
            "statfs64",
            "statvfs64",
            "fstatvfs64",
            "fstatfs64",
            "getxattr",
            "setxattr",
            "flock",
            "lockf",
            "name_to_handle_at",
        ],
    },
    Family {
        name: "bytes of an open stream",
        treatment: Passed,
        why: "They work on the stream's buffer; behind it are our functions if the stream is on a sealed file.",
        tests: &["fopen_modes.c", "fopen_long.c"],
        symbols: &[
            "fread",
            "fread_unlocked",
            "__fread_chk",
            "fwrite",
            "fwrite_unlocked",
            "fgets",
            "__fgets_chk",
            "fgets_unlocked",
            "fputs",
            "fputs_unlocked",
            "puts",
            "fgetc",
            "getc",
            "getchar",
            "fputc",
            "putc",
            "putchar",
            "ungetc",
            "fseek",
            "fseeko",
            "fseeko64",
            "ftell",
            "ftello",
            "ftello64",
            "rewind",
            "fgetpos",
            "fsetpos",
            "getline",
            "getdelim",
            "__getdelim",
            "_IO_getc",
            "_IO_putc",
            "fflush",
            "setbuf",
            "setvbuf",
            "ferror",
            "feof",
            "clearerr",
            "__freading",
            "__freadable",
            "__overflow",
            "__uflow",
        ],
    },
    Family {
        name: "directory positions",
        treatment: Passed,
        why: "They move within a listing that was opened through the hooked opendir or fdopendir.",
        tests: &["listing.c"],
        symbols: &["rewinddir", "seekdir", "telldir", "dirfd"],
    },
    Family {
        name: "other programs",
        treatment: Passed,
        why: "A child decides by its own executable what it sees; keys are in no variable and no descriptor that it inherits.",
        tests: &["fork_writes.c", "copy_by_reading.c"],
        symbols: &["popen", "pclose", "system", "posix_spawn", "posix_spawnp", "fork"],
    },
    Family {
        name: "sockets, pipes and events",
        treatment: Passed,
        why: "Never files of a data directory.",
        tests: &["close_reuse.c"],
        symbols: &[
            "socket",
            "pipe",
            "pipe2",
            "eventfd",
            "eventfd_read",
            "eventfd_write",
            "signalfd",
            "epoll_create1",
            "inotify_init",
            "sendto",
            "sendmsg",
            "recv",
            "recvfrom",
            "openpty",
            "openlog",
            "memfd_create",
        ],
    },
    Family {
        name: "opening of shared memory",
        treatment: Hooked,
        why: "Pass: the object is memory, so its descriptor is known as plain; the server would else examine it in each process.",
        tests: &["shared_memory.c"],
        symbols: &["shm_open"],
    },
    Family {
        name: "shared memory",
        treatment: Passed,
        why: "tmpfs, not the data directory; dynamic_shared_memory_type=mmap is refused.",
        tests: &["map_shared.c"],
        symbols: &[
            "shm_unlink",
            "shmget",
            "shmat",
            "sem_open",
            "munmap",
            "mremap",
            "madvise",
            "mprotect",
        ],
    },
    Family {
        name: "code",
        treatment: Hooked,
        why: "Pass: modules whose imports this table knows, and those of all libraries that they need and that are not loaded yet. Refuse: a module that imports a refused or unknown function or needs a library that does, before any code of it runs; dlerror says why. PGSEAL_ALLOW_MODULES names modules that may be loaded all the same.",
        tests: &["load.c"],
        symbols: &["dlopen", "dlerror"],
    },
    Family {
        name: "code in another name space",
        treatment: Refused,
        why: "Such a module has a C library of its own and none of our hooks; no program of PostgreSQL and no library that an extension of Debian needs makes one.",
        tests: &["hooks_table.rs"],
        symbols: &["dlmopen"],
    },
    Family {
        name: "system databases",
        treatment: Passed,
        why: "Read by the C library itself, outside every data directory.",
        tests: &["hooks_table.rs"],
        symbols: &["setpwent", "getpwent", "endpwent", "opensyslog", "catopen", "iconv_open"],
    },
    Family {
        name: "making of rings of requests",
        treatment: Hooked,
        why: "The kernel serves a ring past every hook. Refuse: a process that works with a sealed data directory gets none (-ENOSYS); the guard module names the setting (io_method) before that. Pass: all others.",
        tests: &["rings.c", "versions.rs"],
        symbols: &["io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem"],
    },
    Family {
        name: "rings of requests",
        treatment: Passed,
        why: "PostgreSQL 18 imports them; they need a ring, which is refused.",
        tests: &["hooks_table.rs"],
        symbols: &[
            "io_uring_queue_exit",
            "io_uring_submit",
            "io_uring_wait_cqes",
            "io_uring_register_buffers",
            "io_uring_get_probe",
            "io_uring_peek_batch_cqe",
            "io_uring_ring_dontfork",
            "io_uring_get_sqe",
        ],
    },
    Family {
        name: "asynchronous I/O of POSIX and Linux",
        treatment: Refused,
        why: "The C library's threads would read and write past the seal.",
        tests: &["unknown_import.c"],
        symbols: &[
            "aio_read",
            "aio_read64",
            "aio_write",
            "aio_write64",
            "aio_fsync",
            "aio_fsync64",
            "aio_error",
            "aio_error64",
            "aio_return",
            "aio_return64",
            "aio_suspend",
            "aio_suspend64",
            "aio_cancel",
            "aio_cancel64",
            "lio_listio",
            "lio_listio64",
            "io_submit",
            "vmsplice",
            "tee",
        ],
    },
    Family {
        name: "rare ways to open",
        treatment: Refused,
        why: "The C library opens a file by what is no path, maps it anew, or lists names with sizes of its own. No program of PostgreSQL and no library of Debian that an extension needs uses them (spec/libraries.md); whoever does must be looked at first.",
        tests: &["hooks_table.rs"],
        symbols: &[
            "open_by_handle_at",
            "remap_file_pages",
            "__openat64_cancel",
            "fts_children",
            "fts64_children",
        ],
    },
];

/// All functions, sorted for binary search: thousands of names are looked up when a module is
/// loaded.
fn index() -> &'static [(&'static str, Treatment)] {
    static INDEX: OnceLock<Vec<(&str, Treatment)>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let of = |family: &'static Family| {
            family.symbols.iter().map(|symbol| (*symbol, family.treatment))
        };
        let mut all: Vec<_> = FAMILIES.iter().flat_map(of).collect();
        all.sort_unstable_by_key(|(symbol, _)| *symbol);
        all
    })
}

/// The treatment of a function, if the table knows it.
#[must_use]
pub fn treatment_of(symbol: &str) -> Option<Treatment> {
    let all = index();
    let at = all.binary_search_by_key(&symbol, |(known, _)| known).ok()?;
    all.get(at).map(|(_, treatment)| *treatment)
}

/// Word stems in the names of C library functions that touch files.
const STEMS: [&str; 25] = [
    "open",
    "read",
    "write",
    "stat",
    "seek",
    "trunc",
    "fallocate",
    "fadvise",
    "sync_file",
    "mmap",
    "fcntl",
    "sendfile",
    "splice",
    "copy_file",
    "creat",
    "aio_",
    "lio_",
    "io_uring",
    "syscall",
    "readdir",
    "scandir",
    "ioctl",
    "getdents",
    "vmsplice",
    "fts_",
];

/// The pairs of letters that a stem begins with. Most names contain none of these pairs.
static PAIRS: [[bool; 256]; 256] = {
    let mut pairs = [[false; 256]; 256];
    let mut index = 0;
    while index < STEMS.len() {
        let stem = STEMS[index].as_bytes();
        pairs[stem[0] as usize][stem[1] as usize] = true;
        index += 1;
    }
    pairs
};

fn has_stem(symbol: &[u8]) -> bool {
    symbol.windows(2).enumerate().any(|(at, pair)| {
        PAIRS[usize::from(pair[0])][usize::from(pair[1])]
            && STEMS.iter().any(|stem| symbol[at..].starts_with(stem.as_bytes()))
    })
}

/// Whether a function of the C library may touch files, judged by its name alone. The audit
/// requires each such function to be in the table.
#[must_use]
pub fn may_touch_files(symbol: &str) -> bool {
    let foreign = ["pthread_", "__pthread", "__cxa_", "timer_create", "strncasecmp", "getopt"];
    // These are functions of libm; since PostgreSQL 18 the server imports `trunc`.
    if matches!(symbol, "trunc" | "truncf" | "truncl") {
        return false;
    }
    // "dup" only with a number: strdup and duplocale touch no file.
    let dup = symbol.strip_prefix("dup");
    let dup = dup.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    (dup || has_stem(symbol.as_bytes())) && !foreign.iter().any(|prefix| symbol.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_symbol_is_in_two_families() {
        let mut all: Vec<_> = FAMILIES.iter().flat_map(|family| family.symbols).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn stems_are_found_anywhere() {
        for stem in STEMS {
            for symbol in [stem.to_owned(), format!("x{stem}"), format!("__{stem}_x")] {
                assert!(has_stem(symbol.as_bytes()), "{symbol}");
            }
        }
        assert!(!has_stem(b"") && !has_stem(b"o") && !has_stem(b"memcpy") && !has_stem(b"strdup"));
    }

    #[test]
    fn unknown_io_is_noticed() {
        for name in ["preadv3", "__openat3", "copy_file_range2", "statx64", "aio_init"] {
            assert!(may_touch_files(name) && treatment_of(name).is_none(), "{name}");
        }
        for name in [
            "pthread_spin_init",
            "__cxa_thread_atexit_impl",
            "strlen",
            "malloc",
            "pthread_create",
            "trunc",
        ] {
            assert!(!may_touch_files(name), "{name}");
        }
    }
}
