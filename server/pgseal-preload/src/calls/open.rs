//! `open` and its variants, which carry out the verdict on a file.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

use libc::mode_t;
use pgseal_pgdata::Class;
use pgseal_pgdata::counters::Counter;

use crate::calls::server;
use crate::file::config;
use crate::file::counters;
use crate::file::examine;
use crate::file::fds;
use crate::file::lengths;
use crate::file::lost_sectors;
use crate::file::manifest::ControlFile;
use crate::file::named::Named;
use crate::file::plan::{self, Plan, SealTarget};
use crate::os::log;
use crate::os::memory;
use crate::os::real::{self, Errno, fail};
use crate::os::sys;
use crate::place::datadir;
use crate::place::head;
use crate::place::program;

/// Opens a path relative to the working directory, as the verdict on the file says.
pub fn open_path(path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    let raw = || {
        // SAFETY: `path` is a C string.
        unsafe { real::open(path.as_ptr(), flags, mode) }
    };
    if !program::active() {
        return raw();
    }
    let plan = plan::plan(path.to_bytes(), flags);
    if let Plan::Pass(class) | Plan::Seal(SealTarget { class, .. }) = &plan
        && let Some(decided) = config::opened(path, flags, *class)
    {
        return decided.inspect(|fd| fds::set_plain(*fd)).unwrap_or_else(fail);
    }
    let plain = || {
        let fd = raw();
        fds::set_plain(fd);
        fd
    };
    match plan {
        Plan::Pass(class) => {
            let fd = plain();
            if class == Some(Class::Control) && fd >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
            {
                remember_control(fd, path);
            }
            fd
        }
        // The head cannot be read through a descriptor with these flags, so the path is read
        // instead.
        Plan::AsFound(target) if !is_readable(flags) => match head::looks_sealed(path) {
            true => open_sealed(path, flags, mode, target).unwrap_or_else(fail),
            false => plain(),
        },
        Plan::AsFound(target) => open_found(path, flags, mode, target).unwrap_or_else(fail),
        Plan::Lock(root) => create_lock_file(root, plain),
        Plan::Seal(target) => open_sealed(path, flags, mode, target).unwrap_or_else(fail),
        Plan::Refuse(errno) => fail(errno),
    }
}

/// Starts a server, whose lock file `create` creates.
#[cold]
#[inline(never)]
fn create_lock_file(root: Option<&'static datadir::Root>, create: impl FnOnce() -> c_int) -> c_int {
    // The server neither forks nor writes before it has created this file.
    if let Err(errno) = root.map_or_else(server::starts_plain, server::starts) {
        program::end_server(errno);
        return fail(errno);
    }
    let fd = create();
    // The process that created the lock file is alone in the data directory.
    if let Some(root) = root.filter(|_| fd >= 0) {
        memory::with_reserve(|| lost_sectors::fill(root));
    }
    fd
}

/// The write to this file that says "shut down" has the manifest written first.
#[cold]
#[inline(never)]
fn remember_control(fd: c_int, path: &CStr) {
    if let Some(location) = datadir::locate(path.to_bytes()) {
        ControlFile::opened(fd, location.root);
    }
}

/// Whether a descriptor with these flags can be read at any offset and into any buffer.
fn is_readable(flags: c_int) -> bool {
    let access = flags & libc::O_ACCMODE;
    let reads = access == libc::O_RDONLY || access == libc::O_RDWR;
    reads && flags & (libc::O_PATH | libc::O_DIRECT) == 0
}

/// Opens a file whose first bytes say whether it is sealed. The file is opened once and examined
/// through the descriptor, so nobody can replace it between the examination and its use.
fn open_found(path: &CStr, flags: c_int, mode: mode_t, target: SealTarget) -> Result<c_int, Errno> {
    let fd = sys::open(path, flags, mode)?;
    if !head::is_sealed(fd.0) {
        return Ok(pass(fd));
    }
    if flags & libc::O_APPEND != 0 {
        // With O_APPEND the kernel ignores the offset of `pwrite(2)`.
        let inner = flags & !libc::O_APPEND;
        // SAFETY: no pointers involved.
        if unsafe { real::fcntl(fd.0, libc::F_SETFL, inner as usize as *mut c_void) } < 0 {
            return Err(real::errno());
        }
    }
    enter(fd, path, flags, target, false)
}

/// Opens a file that is sealed or will be sealed, and enters it into the table.
fn open_sealed(
    path: &CStr,
    flags: c_int,
    mode: mode_t,
    target: SealTarget,
) -> Result<c_int, Errno> {
    let mut inner = flags & !(libc::O_TRUNC | libc::O_APPEND | libc::O_DIRECT);
    if flags & libc::O_ACCMODE == libc::O_WRONLY {
        // Writing a part of a block needs the rest of the block, which must be read.
        inner = (inner & !libc::O_ACCMODE) | libc::O_RDWR;
    }
    let fd = match sys::open(path, inner, mode) {
        Ok(fd) => fd,
        Err(libc::ENOENT) if lengths::is_lost_segment(path.to_bytes()) => {
            return lost_segment(path, flags, target);
        }
        Err(errno) => return Err(errno),
    };
    if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
        lengths::forget(path.to_bytes());
    }
    enter(fd, path, flags, target, false)
}

/// Opens a segment of a relation that somebody removed while the server runs. With an error
/// PostgreSQL would take the segment before for the last one (`mdnblocks`, `storage/smgr/md.c`),
/// and miss rows. So an empty file in memory stands in for the segment: its length is the one that
/// the segment must have, each page is an invalid page, and no write or sync succeeds. The process
/// that replays WAL has to make the segment anew, so that one finds no file.
#[cold]
#[inline(never)]
fn lost_segment(path: &CStr, flags: c_int, target: SealTarget) -> Result<c_int, Errno> {
    let named = Named::of(path.to_bytes());
    log::line(format_args!(
        "ERROR: {named}: this segment of the relation was removed while the server runs; {}",
        named.remedy()
    ));
    if datadir::replays_here() == Some(true) {
        return Err(libc::ENOENT);
    }
    let fd = sys::memory_file(c"pgseal-lost-segment", flags & libc::O_CLOEXEC != 0)?;
    sys::seal_memory_file(&fd, libc::F_SEAL_GROW | libc::F_SEAL_WRITE)?;
    enter(fd, path, flags, target, true)
}

/// Examines the file of a descriptor and enters it into the table. `flags` are those that the
/// program passed to `open`. `stands_in`: the file stands in for one that was removed.
fn enter(
    fd: sys::Fd,
    path: &CStr,
    flags: c_int,
    target: SealTarget,
    stands_in: bool,
) -> Result<c_int, Errno> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let number = fd.0;
    let truncates = flags & libc::O_TRUNC != 0 && writes;
    let bytes = path.to_bytes();
    let examined = examine::examine(number, bytes, flags, truncates, target)
        .inspect_err(|_| counters::add(target.counted(), Counter::FailedFiles, 1))?;
    let Some(mut open) = examined else { return Ok(pass(fd)) };
    open.set_class(target.class, bytes);
    open.set_write_only(flags & libc::O_ACCMODE == libc::O_WRONLY);
    open.set_stands_in(stands_in);
    // O_SYNC contains the bit of O_DSYNC.
    open.set_syncs(flags & libc::O_DSYNC != 0);
    let shared = memory::shared(Mutex::new(open)).map_err(|_| libc::ENOMEM)?;
    if truncates {
        fds::lock(&shared).set_len(number, 0)?;
    }
    if fds::insert(number, shared).is_err() {
        log::line(format_args!(
            "ERROR: descriptor {number} is beyond pgseal's table; lower max_files_per_process"
        ));
        return Err(libc::EMFILE);
    }
    core::mem::forget(fd);
    Ok(number)
}

/// Returns a plain descriptor to the program.
fn pass(fd: sys::Fd) -> c_int {
    let number = fd.0;
    fds::set_plain(number);
    core::mem::forget(fd);
    number
}

/// Whether a path is one by itself, and not relative to the directory.
fn stands_alone(dir: c_int, path: &CStr) -> bool {
    dir == libc::AT_FDCWD || path.to_bytes().starts_with(b"/")
}

/// The path for a directory descriptor and a name relative to it.
#[inline]
pub fn path_at(dir: c_int, path: &CStr) -> Option<sys::CPath> {
    if stands_alone(dir, path) { None } else { path_below(dir, path) }
}

// Each path takes pages of the stack, so what seldom runs has a frame of its own.
#[cold]
#[inline(never)]
fn path_below(dir: c_int, path: &CStr) -> Option<sys::CPath> {
    let link = sys::descriptor_link(dir).into_c().ok()?;
    let base = sys::read_link(&link)?;
    datadir::join(&base, path.to_bytes()).into_c().ok()
}

#[cold]
#[inline(never)]
fn open_below(dir: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    match path_below(dir, path) {
        Some(full) => open_path(&full, flags, mode),
        None => open_path(path, flags, mode),
    }
}

/// # Safety
/// `path` is a C string.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) };
    match stands_alone(dir, path) {
        true => open_path(path, flags, mode),
        false => open_below(dir, path, flags, mode),
    }
}

macro_rules! open_family {
    ($($name:ident),*; $($at:ident),*; $($checked:ident),*; $($checked_at:ident),*; $($creat:ident),*) => {
        $(
            /// `open(2)`. The mode is fixed rather than variadic; on the supported machines it
            /// arrives in the same register.
            /// # Safety
            /// As for `open(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
            }
        )*
        $(
            /// `openat(2)`.
            /// # Safety
            /// As for `openat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(dir, path, flags, mode) }
            }
        )*
        $(
            /// The fortified `open` without a mode.
            /// # Safety
            /// As for `open(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
            }
        )*
        $(
            /// The fortified `openat` without a mode.
            /// # Safety
            /// As for `openat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(dir, path, flags, 0) }
            }
        )*
        $(
            /// `creat(2)`.
            /// # Safety
            /// As for `creat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $creat(path: *const c_char, mode: mode_t) -> c_int {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
            }
        )*
    };
}

open_family!(open, open64; openat, openat64; __open_2, __open64_2; __openat_2, __openat64_2; creat, creat64);
