//! Small safe wrappers around system calls, for the library's own needs. They never pass through
//! our hooks.

use core::ffi::{CStr, c_int};
use core::fmt::Write;
use core::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use crate::os::memory::with_reserve;
pub use crate::os::paths::{CPath, PathText, c_path};
use crate::os::real;

/// A descriptor of our own, closed on drop.
pub struct Fd(pub c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { real::close(self.0) };
    }
}

/// The `errno` of an I/O error.
pub fn errno_of(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The link in `/proc` to the file of a descriptor.
pub fn descriptor_link(fd: c_int) -> PathText {
    let mut link = PathText::new();
    // Writing to a `PathText` cannot fail.
    let _ = write!(link, "/proc/self/fd/{fd}");
    link
}

/// The names in a directory that do not begin with a dot; `None` if the directory cannot be read.
pub fn names_in(path: &CStr) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a C string.
    let dir = unsafe { real::opendir(path.as_ptr()) };
    if dir.is_null() {
        return None;
    }
    let mut names = Vec::new();
    loop {
        // SAFETY: open, and ours.
        let entry = unsafe { real::readdir(dir) };
        // SAFETY: an entry lives until the next call; null ends the listing.
        let Some(entry) = (unsafe { entry.as_ref() }) else { break };
        // SAFETY: the name is a C string within the entry.
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) }.to_bytes();
        if !name.starts_with(b".") {
            names.push(name.to_vec());
        }
    }
    // SAFETY: open, and ours.
    unsafe { real::closedir(dir) };
    Some(names)
}

/// Opens a file read-only.
pub fn open_read(path: &CStr) -> Result<Fd, c_int> {
    open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK, 0)
}

/// Opens a file.
pub fn open(path: &CStr, flags: c_int, mode: libc::mode_t) -> Result<Fd, c_int> {
    // SAFETY: `path` is a C string.
    let fd = unsafe { real::open(path.as_ptr(), flags, mode) };
    if fd < 0 { Err(real::errno()) } else { Ok(Fd(fd)) }
}

/// A new file in memory alone, which can be sealed against changes (`memfd_create(2)`).
pub fn memory_file(name: &CStr, closes_on_exec: bool) -> Result<Fd, c_int> {
    let cloexec = if closes_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: `name` is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), cloexec | libc::MFD_ALLOW_SEALING) };
    if fd < 0 { Err(real::errno()) } else { Ok(Fd(fd)) }
}

/// Seals a file in memory against these changes for good (`F_SEAL_GROW` and others).
pub fn seal_memory_file(fd: &Fd, seals: c_int) -> Result<(), c_int> {
    let seals = core::ptr::without_provenance_mut((seals | libc::F_SEAL_SEAL) as usize);
    // SAFETY: the command takes a number.
    let done = unsafe { real::fcntl(fd.0, libc::F_ADD_SEALS, seals) };
    if done == 0 { Ok(()) } else { Err(real::errno()) }
}

/// Reads from a descriptor at an offset until `buf` is full or the file ends.
pub fn pread_full(fd: c_int, buf: &mut [u8], off: u64) -> Result<usize, c_int> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        let at = i64::try_from(off + done as u64).map_err(|_| libc::EFBIG)?;
        // SAFETY: `rest` is valid for writes of its length.
        let got = unsafe { real::pread(fd, rest.as_mut_ptr().cast(), rest.len(), at) };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(real::errno()),
        }
    }
    Ok(done)
}

/// Writes bytes at an offset, all of them.
pub fn pwrite_all(fd: c_int, bytes: &[u8], off: u64) -> Result<(), c_int> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let at = i64::try_from(off + done as u64).map_err(|_| libc::EFBIG)?;
        // SAFETY: `rest` is valid for reads of its length.
        let put = unsafe { real::pwrite(fd, rest.as_ptr().cast(), rest.len(), at) };
        match usize::try_from(put) {
            Ok(0) => return Err(libc::ENOSPC),
            Ok(put) => done += put,
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(real::errno()),
        }
    }
    Ok(())
}

/// Bytes of the map for small pieces of shared memory.
const SMALL_ROOM: usize = 1 << 18;
/// A piece of at most so many bytes is a small one.
const MOST_SMALL: usize = 1 << 17;
/// A piece begins on a cache line of its own.
const PIECE_ALIGN: usize = 64;

/// The rest of the map for small pieces.
struct Rest {
    start: *mut u8,
    len: usize,
}

// SAFETY: the map is memory of the process, not of a thread, and each piece is handed out once.
unsafe impl Send for Rest {}

/// New memory of zeros that this process shares with all children that it forks from now on,
/// aligned to 64 bytes. It is never unmapped.
///
/// Small pieces lie in one map: each map costs every fork and every exit of a child about a
/// microsecond, and each page that a child touches costs it a page fault.
pub fn shared_memory(len: usize) -> Result<*mut u8, c_int> {
    static REST: Mutex<Rest> = Mutex::new(Rest { start: core::ptr::null_mut(), len: 0 });
    if len > MOST_SMALL {
        return shared_map(len);
    }
    let len = len.next_multiple_of(PIECE_ALIGN);
    let mut rest = REST.lock().unwrap_or_else(PoisonError::into_inner);
    if len > rest.len {
        *rest = Rest { start: shared_map(SMALL_ROOM)?, len: SMALL_ROOM };
    }
    let piece = rest.start;
    // SAFETY: within the map, of which `rest.len` bytes are left.
    *rest = Rest { start: unsafe { piece.add(len) }, len: rest.len - len };
    Ok(piece)
}

fn shared_map(len: usize) -> Result<*mut u8, c_int> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new map at an address of the kernel's choice.
    let map = unsafe { real::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if map == libc::MAP_FAILED { Err(real::errno()) } else { Ok(map.cast()) }
}

/// What lies before the elements of a [`shared_table`]: a number, on a cache line of its own.
const HEAD_BYTES: usize = 64;

/// A number and so many elements in [`shared_memory`], all zeros.
///
/// # Safety
/// `T` consists of atomic integers, is valid as zeros, and is aligned to at most 64 bytes.
pub unsafe fn shared_table<T>(count: usize) -> Result<(&'static AtomicU32, &'static [T]), c_int> {
    let map = shared_memory(HEAD_BYTES + count * size_of::<T>())?;
    // SAFETY: the map is longer than this, is never unmapped, has zeros, and its start is aligned
    // to 64 bytes; all access is atomic.
    let number: &'static AtomicU32 = unsafe { &*map.cast() };
    // SAFETY: within the map.
    let first = unsafe { map.add(HEAD_BYTES) }.cast::<T>();
    // SAFETY: as above, and the caller's contract.
    Ok((number, unsafe { core::slice::from_raw_parts(first, count) }))
}

/// Removes a name of a file.
pub fn unlink(path: &CStr) -> Result<(), c_int> {
    // SAFETY: a C string.
    if unsafe { real::unlink(path.as_ptr()) } == 0 { Ok(()) } else { Err(real::errno()) }
}

/// Renames a file, over another one if there is one.
pub fn rename(from: &CStr, to: &CStr) -> Result<(), c_int> {
    // SAFETY: two C strings.
    if unsafe { real::rename(from.as_ptr(), to.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(real::errno())
    }
}

/// Syncs a file or directory to the disk.
pub fn sync(fd: c_int) -> Result<(), c_int> {
    // SAFETY: no pointers involved.
    if unsafe { real::fsync(fd) } == 0 { Ok(()) } else { Err(real::errno()) }
}

/// Syncs the bytes of a file to the disk.
pub fn sync_data(fd: c_int) -> Result<(), c_int> {
    // SAFETY: no pointers involved.
    if unsafe { real::fdatasync(fd) } == 0 { Ok(()) } else { Err(real::errno()) }
}

/// Waits for an exclusive lock on an open directory. The lock is released when the descriptor is
/// closed.
pub fn lock(directory: &Fd) -> Result<(), c_int> {
    loop {
        // SAFETY: no pointers involved.
        match unsafe { libc::flock(directory.0, libc::LOCK_EX) } {
            0 => return Ok(()),
            _ if real::errno() == libc::EINTR => {}
            _ => return Err(real::errno()),
        }
    }
}

/// Locks a file as `flock(2)` does, unless another process has locked it.
pub fn try_lock(file: &Fd) -> bool {
    // SAFETY: no pointers involved.
    unsafe { libc::flock(file.0, libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// A path with its symbolic links resolved; `None` if the path does not exist.
pub fn real_path(path: &CStr) -> Option<PathText> {
    let mut buf = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: `path` is a C string, and the buffer as long as the function wants it.
    let found = unsafe { libc::realpath(path.as_ptr(), buf.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    Some(PathText::of(CStr::from_bytes_until_nul(&buf).ok()?.to_bytes()))
}

/// Reads a small file whole; an error if it is longer than `limit`.
pub fn read_whole(path: &CStr, limit: usize) -> Result<Vec<u8>, c_int> {
    let fd = open_read(path)?;
    read_to_end(fd.0, limit)
}

/// Reads a pipe or file to its end; an error if there is more than `limit`.
pub fn read_to_end(fd: c_int, limit: usize) -> Result<Vec<u8>, c_int> {
    with_reserve(|| gather(fd, limit))
}

fn gather(fd: c_int, limit: usize) -> Result<Vec<u8>, c_int> {
    // One allocation of the full size: no key bytes are left behind by a growing vector.
    let mut bytes = Vec::with_capacity(limit.min(1 << 16));
    loop {
        let mut chunk = [0_u8; 4096];
        // SAFETY: `chunk` is valid for writes of its length.
        let got = unsafe { real::read(fd, chunk.as_mut_ptr().cast(), chunk.len()) };
        match usize::try_from(got) {
            Ok(0) => return Ok(bytes),
            Ok(got) if bytes.len() + got > limit => return Err(libc::EFBIG),
            Ok(got) => bytes.extend_from_slice(&chunk[..got]),
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(real::errno()),
        }
        zeroize::Zeroize::zeroize(&mut chunk);
    }
}

/// The target of a symbolic link.
pub fn read_link(path: &CStr) -> Option<PathText> {
    let mut buf = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: `path` is a C string, `buf` valid for writes of its length.
    let got = unsafe { libc::readlink(path.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
    Some(PathText::of(&buf[..usize::try_from(got).ok()?]))
}

/// `stat()` of a path.
pub fn stat(path: &CStr) -> Option<libc::stat> {
    let mut st = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` is a C string, `st` valid for a write of its type.
    let ok = unsafe { real::stat_path(path.as_ptr(), st.as_mut_ptr()) };
    // SAFETY: `stat` succeeded and filled the structure.
    (ok == 0).then(|| unsafe { st.assume_init() })
}

/// `lstat()` of a path: does not follow a symbolic link.
pub fn lstat(path: &CStr) -> Option<libc::stat> {
    let mut st = core::mem::MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: `path` is a C string, `st` valid for a write of its type.
    let ok = unsafe { real::fstatat(libc::AT_FDCWD, path.as_ptr(), st.as_mut_ptr(), flags) };
    // SAFETY: `fstatat` succeeded and filled the structure.
    (ok == 0).then(|| unsafe { st.assume_init() })
}

/// `fstat()` of a descriptor.
pub fn fstat(fd: c_int) -> Option<libc::stat> {
    let mut st = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `st` is valid for a write of its type.
    let ok = unsafe { real::fstat(fd, st.as_mut_ptr()) };
    // SAFETY: `fstat` succeeded and filled the structure.
    (ok == 0).then(|| unsafe { st.assume_init() })
}

/// Whether a mode is that of a regular file.
pub fn is_regular(mode: libc::mode_t) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG
}

/// The value of an environment variable, if it is set and not empty.
pub fn env(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: `name` is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns a C string; we copy it at once.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
    (!bytes.is_empty()).then(|| bytes.to_vec())
}

/// Whether an environment variable has this value.
pub fn env_is(name: &CStr, value: &[u8]) -> bool {
    // SAFETY: `name` is a C string.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: `getenv` returns a C string; we look at it at once.
    !found.is_null() && unsafe { CStr::from_ptr(found) }.to_bytes() == value
}

/// Removes an environment variable and overwrites its value, also in the memory where the kernel
/// placed the environment: PostgreSQL copies its environment elsewhere, and `/proc/PID/environ`
/// shows the original.
pub fn wipe_env(name: &CStr) {
    // SAFETY: `name` is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if !value.is_null() {
        // SAFETY: `getenv` returns a C string.
        let len = unsafe { libc::strlen(value) };
        // SAFETY: the environment's strings are writable memory of this process; we write only
        // over the bytes of the value.
        unsafe { core::ptr::write_bytes(value, 0, len) };
        // SAFETY: `name` is a C string.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
    if let Some((start, end)) = initial_environment() {
        // SAFETY: the kernel says that this range holds the initial environment, on the stack of
        // this process, which stays mapped and writable; nobody else looks at it now.
        let bytes = unsafe { core::slice::from_raw_parts_mut(start as *mut u8, end - start) };
        wipe_in(bytes, name.to_bytes());
    }
}

/// Sets an environment variable for child programs. Only for programs with a single thread: another
/// thread might read the environment at the same time.
pub fn set_env(name: &CStr, value: &CStr) {
    // SAFETY: both are C strings, which are copied; the caller says that no other thread is there.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Zeroes the values of all entries `NAME=value` in a block of NUL-terminated strings.
fn wipe_in(block: &mut [u8], name: &[u8]) {
    for entry in block.split_mut(|byte| *byte == 0) {
        if entry.len() > name.len() && entry.starts_with(name) && entry[name.len()] == b'=' {
            entry[name.len() + 1..].fill(0);
        }
    }
}

/// Where the kernel put the environment: `env_start` and `env_end` of `/proc/self/stat`
/// (proc(5), fields 50 and 51).
fn initial_environment() -> Option<(usize, usize)> {
    let stat = read_whole(c"/proc/self/stat", 1 << 14).ok()?;
    // Field 3 follows the name of the program, which may contain any bytes.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let text = core::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(50 - 3);
    let start: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (start != 0 && start < end && end - start < 1 << 24).then_some((start, end))
}

/// The current working directory.
pub fn current_dir() -> Option<PathText> {
    let mut buf = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: `buf` is valid for writes of its length.
    let got = unsafe { libc::getcwd(buf.as_mut_ptr().cast(), buf.len()) };
    if got.is_null() {
        return None;
    }
    let len = buf.iter().position(|byte| *byte == 0)?;
    Some(PathText::of(&buf[..len]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU8, Ordering};

    #[test]
    fn a_descriptor_has_a_link() {
        assert_eq!(&descriptor_link(7)[..], b"/proc/self/fd/7");
    }

    #[test]
    fn pieces_of_shared_memory_are_apart_and_shared_with_a_child() {
        let lens = [1, 65, SMALL_ROOM / 3, MOST_SMALL, MOST_SMALL, MOST_SMALL + 1];
        let pieces = lens.map(|len| {
            let start = shared_memory(len).unwrap();
            assert!((start as usize).is_multiple_of(PIECE_ALIGN));
            // SAFETY: shared memory of this length, which is never unmapped; access is atomic.
            unsafe { core::slice::from_raw_parts(start.cast::<AtomicU8>(), len) }
        });
        let is_all = |piece: &[AtomicU8], number| {
            piece.iter().all(|byte| byte.load(Ordering::Relaxed) == number)
        };
        assert!(pieces.iter().all(|piece| is_all(piece, 0)));
        // SAFETY: the child stores into memory and ends, which is safe after fork in a threaded
        // program.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for (piece, number) in pieces.iter().zip(1..) {
                piece.iter().for_each(|byte| byte.store(number, Ordering::Relaxed));
            }
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) }, child);
        for (piece, number) in pieces.iter().zip(1..) {
            assert!(is_all(piece, number), "piece {number}");
        }
    }

    #[test]
    fn only_the_named_value_is_wiped() {
        let mut block = *b"A=1\0KEY=secret\0KEY2=kept\0";
        wipe_in(&mut block, b"KEY");
        assert_eq!(&block, b"A=1\0KEY=\0\0\0\0\0\0\0KEY2=kept\0");
    }

    #[test]
    fn the_kernel_says_where_the_environment_is() {
        let (start, end) = initial_environment().unwrap();
        let environ = read_whole(c"/proc/self/environ", 1 << 24).unwrap();
        assert_eq!(end - start, environ.len());
    }
}
