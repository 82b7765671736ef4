//! Children that share the memory or the descriptors of this process until they execute another
//! program: without care, the table would take their closes and moves for those of the parent.

use core::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use crate::calls::jump::jumps;
use crate::file::fds;
use crate::os::log;
use crate::os::real::{self, Symbol, fail};
use crate::place::program;

/// Turns `vfork` into `fork` in the programs of PostgreSQL: a child of `vfork` would run in the
/// memory of its parent.
extern "C" fn before_vfork() -> usize {
    real::address_of(if program::active() { Symbol::fork } else { Symbol::vfork })
}

macro_rules! before_exec {
    ($($before:ident = $name:ident;)*) => { $(
        /// A child that shares this memory may have changed its own descriptors before the exec:
        /// check all entries.
        extern "C" fn $before() -> usize {
            fds::doubt_all();
            real::address_of(Symbol::$name)
        }
    )* };
}

before_exec! {
    before_execl = execl;
    before_execle = execle;
    before_execlp = execlp;
    before_execv = execv;
    before_execve = execve;
    before_execvp = execvp;
    before_execvpe = execvpe;
    before_fexecve = fexecve;
}

jumps! {
    /// `vfork(2)`.
    fn vfork() -> pid_t = before_vfork;
    /// `execl(3)`.
    fn execl(path: *const c_char, arg: *const c_char) -> c_int = before_execl;
    /// `execle(3)`.
    fn execle(path: *const c_char, arg: *const c_char) -> c_int = before_execle;
    /// `execlp(3)`.
    fn execlp(file: *const c_char, arg: *const c_char) -> c_int = before_execlp;
    /// `execv(3)`.
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int = before_execv;
    /// `execve(2)`.
    fn execve(path: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int = before_execve;
    /// `execvp(3)`.
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int = before_execvp;
    /// `execvpe(3)`.
    fn execvpe(file: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int = before_execvpe;
    /// `fexecve(3)`.
    fn fexecve(fd: c_int, argv: *const *const c_char, env: *const *const c_char) -> c_int = before_fexecve;
}

/// Checks whether a new process or thread with these flags of `clone(2)` would keep the table
/// right: the new process or thread must share both memory and descriptors, as a thread does, or
/// neither, as a child of `fork`.
pub fn check_clone(flags: u64) -> Result<(), c_int> {
    let (memory, files) = (libc::CLONE_VM as u64, libc::CLONE_FILES as u64);
    if !program::active() || (flags & memory != 0) == (flags & files != 0) {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: a new process that shares memory and not descriptors, or descriptors and not memory, is refused (clone flags {flags:#x}): pgseal could not tell its descriptors from this process's; use fork or posix_spawn"
    ));
    Err(libc::EPERM)
}

/// `clone(2)`. The arguments after the fourth are optional; they are passed on unchanged.
/// # Safety
/// As for `clone(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    if let Err(errno) = check_clone(u64::from(flags.cast_unsigned())) {
        return fail(errno);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::clone_call(function, stack, flags, arg, parent_tid, tls, child_tid) }
}

/// Checks whether a thread may stop sharing its descriptors: only if it is the only thread, because
/// the process has one table.
pub fn check_unshare(flags: c_int) -> Result<(), c_int> {
    if !program::active() || flags & libc::CLONE_FILES == 0 || threads() == 1 {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: a thread asked for descriptors of its own (CLONE_FILES), which is refused: pgseal keeps one table for all threads"
    ));
    Err(libc::EPERM)
}

/// The number of threads of this process: the link count of `/proc/self/task` minus two, for the
/// directory itself and its parent.
fn threads() -> libc::nlink_t {
    let st = crate::os::sys::stat(c"/proc/self/task");
    st.map_or(libc::nlink_t::MAX, |st| st.st_nlink.saturating_sub(2))
}

/// `unshare(2)`.
/// # Safety
/// As for `unshare(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if let Err(errno) = check_unshare(flags) {
        return fail(errno);
    }
    // SAFETY: no pointers involved.
    unsafe { real::unshare(flags) }
}
