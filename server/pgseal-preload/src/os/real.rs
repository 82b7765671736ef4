//! The C library's own functions, behind our exported ones.
//!
//! The functions are looked up with `dlsym(RTLD_NEXT)` when the library starts, or on first use:
//! constructors of other libraries call `open` before ours has run. A function that cannot be found
//! ends the process: without it, the process could only write unsealed data.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    DIR, FILE, dirent, iovec, mmsghdr, mode_t, msghdr, off_t, size_t, ssize_t, stat, statx,
    timespec,
};

use crate::os::log;

/// The address of the C library's function of this name; 0 if it has none.
fn find(name: &CStr) -> usize {
    // SAFETY: `name` is a C string; RTLD_NEXT asks for the definition behind this library.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

fn missing(name: &CStr) {
    log::line(format_args!("FATAL: the C library has no {name:?}; pgseal cannot work here"));
    // SAFETY: ends the process; nothing to uphold.
    unsafe { libc::_exit(127) };
}

/// The address of a function of the C library, for code that calls it or jumps to it.
#[inline]
pub fn address_of(symbol: Symbol) -> usize {
    let known = CELLS[symbol as usize].load(Ordering::Relaxed);
    if known != 0 { known } else { resolve(symbol) }
}

#[cold]
fn resolve(symbol: Symbol) -> usize {
    let name = NAMES[symbol as usize];
    let found = find(name);
    if found == 0 {
        missing(name);
    }
    CELLS[symbol as usize].store(found, Ordering::Relaxed);
    found
}

/// Looks up all functions at program start. A look-up takes a lock of the linker: if another thread
/// held that lock during a `fork`, a look-up in the child would wait forever.
pub fn find_all() {
    for (cell, name) in CELLS.iter().zip(NAMES) {
        cell.store(find(name), Ordering::Relaxed);
    }
}

macro_rules! real {
    (
        $(jump $jump:ident = $jump_symbol:literal;)*
        $(fn $name:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(, ...$rest:ident: $rest_ty:ty)?) -> $ret:ty;)*
    ) => {
        /// A function of the C library, and the index of its address in the table.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        pub enum Symbol { $($jump,)* $($name,)* Count }
        static CELLS: [AtomicUsize; Symbol::Count as usize] =
            [const { AtomicUsize::new(0) }; Symbol::Count as usize];
        static NAMES: [&CStr; Symbol::Count as usize] = [$($jump_symbol,)* $($symbol),*];

        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// As for the C function.
            #[inline]
            pub unsafe fn $name($($arg: $ty,)* $($rest: $rest_ty)?) -> $ret {
                type Function = unsafe extern "C" fn($($ty,)* $($rest_ty)?) -> $ret;
                let address = address_of(Symbol::$name);
                // SAFETY: the address is that of the C function of this signature.
                let function = unsafe { core::mem::transmute::<usize, Function>(address) };
                // SAFETY: the caller upholds the C function's contract.
                unsafe { function($($arg,)* $($rest)?) }
            }
        )*
    };
}

real! {
    jump fork = c"fork";
    jump vfork = c"vfork";
    jump execl = c"execl";
    jump execle = c"execle";
    jump execlp = c"execlp";
    jump execv = c"execv";
    jump execve = c"execve";
    jump execvp = c"execvp";
    jump execvpe = c"execvpe";
    jump fexecve = c"fexecve";
    fn open = c"open" (path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn close = c"close" (fd: c_int) -> c_int;
    fn read = c"read" (fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    fn pread = c"pread" (fd: c_int, buf: *mut c_void, len: size_t, off: off_t) -> ssize_t;
    fn readv = c"readv" (fd: c_int, iov: *const iovec, n: c_int) -> ssize_t;
    fn preadv = c"preadv" (fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> ssize_t;
    fn preadv2 = c"preadv2" (fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> ssize_t;
    fn write = c"write" (fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    fn pwrite = c"pwrite" (fd: c_int, buf: *const c_void, len: size_t, off: off_t) -> ssize_t;
    fn writev = c"writev" (fd: c_int, iov: *const iovec, n: c_int) -> ssize_t;
    fn pwritev = c"pwritev" (fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> ssize_t;
    fn pwritev2 = c"pwritev2" (fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> ssize_t;
    fn lseek = c"lseek" (fd: c_int, off: off_t, whence: c_int) -> off_t;
    fn fstat = c"fstat" (fd: c_int, st: *mut stat) -> c_int;
    fn stat_path = c"stat" (path: *const c_char, st: *mut stat) -> c_int;
    fn fstatat = c"fstatat" (dir: c_int, path: *const c_char, st: *mut stat, flags: c_int) -> c_int;
    fn statx_call = c"statx" (dir: c_int, path: *const c_char, flags: c_int, mask: libc::c_uint, st: *mut statx) -> c_int;
    fn truncate = c"truncate" (path: *const c_char, len: off_t) -> c_int;
    fn ftruncate = c"ftruncate" (fd: c_int, len: off_t) -> c_int;
    fn fallocate = c"fallocate" (fd: c_int, mode: c_int, off: off_t, len: off_t) -> c_int;
    fn posix_fallocate = c"posix_fallocate" (fd: c_int, off: off_t, len: off_t) -> c_int;
    fn posix_fadvise = c"posix_fadvise" (fd: c_int, off: off_t, len: off_t, advice: c_int) -> c_int;
    fn sync_file_range = c"sync_file_range" (fd: c_int, off: off_t, len: off_t, flags: libc::c_uint) -> c_int;
    fn fsync = c"fsync" (fd: c_int) -> c_int;
    fn fdatasync = c"fdatasync" (fd: c_int) -> c_int;
    fn send = c"send" (fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn readahead = c"readahead" (fd: c_int, off: off_t, len: size_t) -> ssize_t;
    fn shm_open = c"shm_open" (name: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn mmap = c"mmap" (addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void;
    fn dup = c"dup" (fd: c_int) -> c_int;
    fn dup2 = c"dup2" (old: c_int, new: c_int) -> c_int;
    fn dup3 = c"dup3" (old: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl = c"fcntl" (fd: c_int, cmd: c_int, arg: *mut c_void) -> c_int;
    fn ioctl = c"ioctl" (fd: c_int, request: libc::c_ulong, arg: *mut c_void) -> c_int;
    fn sendfile = c"sendfile" (out: c_int, input: c_int, off: *mut off_t, len: size_t) -> ssize_t;
    fn copy_file_range = c"copy_file_range" (input: c_int, off_in: *mut off_t, out: c_int, off_out: *mut off_t, len: size_t, flags: libc::c_uint) -> ssize_t;
    fn splice = c"splice" (input: c_int, off_in: *mut off_t, out: c_int, off_out: *mut off_t, len: size_t, flags: libc::c_uint) -> ssize_t;
    fn fopen = c"fopen" (path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn freopen = c"freopen" (path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fdopen = c"fdopen" (fd: c_int, mode: *const c_char) -> *mut FILE;
    fn fileno = c"fileno" (stream: *mut FILE) -> c_int;
    fn opendir = c"opendir" (path: *const c_char) -> *mut DIR;
    fn fdopendir = c"fdopendir" (fd: c_int) -> *mut DIR;
    fn readdir = c"readdir" (dir: *mut DIR) -> *mut dirent;
    fn closedir = c"closedir" (dir: *mut DIR) -> c_int;
    fn dlopen = c"dlopen" (file: *const c_char, flags: c_int) -> *mut c_void;
    fn readdir_r = c"readdir_r" (dir: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int;
    fn ftw = c"ftw" (path: *const c_char, visit: *const c_void, depth: c_int) -> c_int;
    fn nftw = c"nftw" (path: *const c_char, visit: *const c_void, depth: c_int, flags: c_int) -> c_int;
    fn fts_read = c"fts_read" (fts: *mut c_void) -> *mut c_void;
    fn dlerror = c"dlerror" () -> *mut c_char;
    fn link = c"link" (from: *const c_char, to: *const c_char) -> c_int;
    fn rename = c"rename" (from: *const c_char, to: *const c_char) -> c_int;
    fn renameat = c"renameat" (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    fn renameat2 = c"renameat2" (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: libc::c_uint) -> c_int;
    fn unlink = c"unlink" (path: *const c_char) -> c_int;
    fn mkdir = c"mkdir" (path: *const c_char, mode: mode_t) -> c_int;
    fn chdir = c"chdir" (path: *const c_char) -> c_int;
    fn fchdir = c"fchdir" (fd: c_int) -> c_int;
    fn clone_call = c"clone" (function: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void, parent_tid: *mut c_void, tls: *mut c_void, child_tid: *mut c_void) -> c_int;
    fn unshare = c"unshare" (flags: c_int) -> c_int;
    fn recvmsg = c"recvmsg" (socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg = c"recvmmsg" (socket: c_int, messages: *mut mmsghdr, count: libc::c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn fclose = c"fclose" (stream: *mut FILE) -> c_int;
    fn syscall_numbers = c"syscall" (number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}

/// `syscall(2)` of the C library.
///
/// # Safety
/// As for the system call.
pub unsafe fn syscall(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    // SAFETY: the caller's contract.
    unsafe { syscall_numbers(number, a, b, c, d, e, f) }
}

/// An error number of the C library. If the error needs a line in the log, the line is already
/// written.
pub type Errno = c_int;

/// The value of `errno`.
pub fn errno() -> c_int {
    // SAFETY: returns a pointer to this thread's errno, always valid.
    let pointer = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *pointer }
}

/// Sets `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: returns a pointer to this thread's errno, always valid.
    let pointer = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *pointer = value };
}

/// Sets `errno` and returns `-1`.
pub fn fail<T: From<i8>>(errno: c_int) -> T {
    set_errno(errno);
    T::from(-1)
}

/// Turns a result into what a C function returns.
pub fn returned<T: From<i8>>(result: Result<T, Errno>) -> T {
    match result {
        Ok(value) => value,
        Err(errno) => fail(errno),
    }
}

/// The size of a page of memory, in bytes.
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: no pointers involved.
    let size: c_long = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
