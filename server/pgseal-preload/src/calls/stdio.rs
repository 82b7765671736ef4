//! Standard I/O. The C library's own reads and writes behind a `FILE` cannot be hooked, so a stream
//! on a sealed file is made with our own functions (`fopencookie`), and `fileno` returns its
//! descriptor, on which `fstat` and `ftruncate` then work.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use libc::{FILE, off64_t, size_t, ssize_t};

use crate::calls::{descriptor, open, read, size, write};
use crate::file::fds;
use crate::file::plan;
use crate::os::log::{self, Shown};
use crate::os::real;
use crate::place::program;

/// The functions of a stream (glibc, `fopencookie(3)`).
#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut FILE;
}

/// The address and descriptor of each sealed stream of this process.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// The cookie is the descriptor itself.
fn cookie_of(fd: c_int) -> *mut c_void {
    fd as usize as *mut c_void
}

fn fd_of(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    unsafe { read::read(fd_of(cookie), buf.cast(), len) }
}

unsafe extern "C" fn cookie_write(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    let written = unsafe { write::write(fd_of(cookie), buf.cast(), len) };
    // glibc expects 0 for a failed write, never a negative number, and writes the rest after a
    // short one. musl expects a negative number, and takes fewer bytes, or 0, for success: the rest
    // would be lost, so they are a failure.
    if cfg!(target_env = "gnu") {
        written.max(0)
    } else if usize::try_from(written) == Ok(len) {
        written
    } else {
        if written >= 0 {
            real::set_errno(libc::ENOSPC);
        }
        -1
    }
}

unsafe extern "C" fn cookie_seek(cookie: *mut c_void, off: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the C library's variable.
    let wanted = unsafe { *off };
    // SAFETY: no pointers involved.
    let pos = unsafe { size::lseek(fd_of(cookie), wanted, whence) };
    if pos < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *off = pos };
    0
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = fd_of(cookie);
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, known)| *known != fd);
    // SAFETY: the stream owns the descriptor.
    unsafe { descriptor::close(fd) }
}

/// The flags of `open(2)` for a mode of `fopen(3)`; `None` if the mode is invalid.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    let plus = mode.contains(&b'+');
    let access = |alone: c_int| if plus { libc::O_RDWR } else { alone };
    let mut flags = match mode.first()? {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    if mode.contains(&b'x') {
        flags |= libc::O_EXCL;
    }
    if mode.contains(&b'e') {
        flags |= libc::O_CLOEXEC;
    }
    Some(flags)
}

/// # Safety
/// As for `fopen(3)`.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller passes C strings.
    let bytes = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let flags = flags_of(bytes).filter(|_| program::active());
    let Some(flags) = flags else {
        // SAFETY: the caller's arguments.
        return unsafe { real::fopen(path, mode) };
    };
    // SAFETY: the caller passes a C string.
    let fd = open::open_path(unsafe { CStr::from_ptr(path) }, flags, 0o666);
    if fd < 0 {
        return core::ptr::null_mut();
    }
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // As fopen does for "a" but not for "a+": `ftell` then returns the end of the file before
        // the first write.
        // SAFETY: no pointers involved.
        unsafe { size::lseek(fd, 0, libc::SEEK_END) };
    }
    let stream = if fds::get(fd).is_none() {
        // SAFETY: our own plain descriptor, which the stream takes over.
        unsafe { real::fdopen(fd, mode) }
    } else {
        // SAFETY: `mode` is a C string.
        unsafe { sealed_stream(fd, mode) }
    };
    if stream.is_null() {
        let errno = real::errno();
        // SAFETY: the stream was not made, so the descriptor is still ours.
        unsafe { descriptor::close(fd) };
        real::set_errno(errno);
    }
    stream
}

/// Makes a stream with our functions on a sealed descriptor, which the stream owns from here on. If
/// the result is null, with `errno` set, the caller still owns the descriptor.
///
/// # Safety
/// `mode` is a C string.
unsafe fn sealed_stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = CookieFunctions {
        read: Some(cookie_read),
        write: Some(cookie_write),
        seek: Some(cookie_seek),
        close: Some(cookie_close),
    };
    // Reserve the list entry first: a sealed stream without an entry would be taken for a plain
    // one.
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let stream = match streams.try_reserve(1) {
        // SAFETY: the functions match the cookie; `mode` is a C string.
        Ok(()) => unsafe { fopencookie(cookie_of(fd), mode, functions) },
        Err(_) => {
            real::set_errno(libc::ENOMEM);
            core::ptr::null_mut()
        }
    };
    if !stream.is_null() {
        streams.push((stream as usize, fd));
    }
    stream
}

/// The descriptor of a sealed stream.
fn sealed_descriptor(stream: *mut FILE) -> Option<c_int> {
    let streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.iter().find(|(known, _)| *known == stream as usize).map(|(_, fd)| *fd)
}

macro_rules! stream_family {
    ($($fopen:ident),*; $($freopen:ident),*; $($fileno:ident),*) => {
        $(
            /// `fopen(3)`.
            /// # Safety
            /// As for `fopen(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
                // SAFETY: the caller's arguments.
                unsafe { open_stream(path, mode) }
            }
        )*
        $(
            /// `freopen(3)`: PostgreSQL redirects its standard streams with it. With a sealed file
            /// on either side the stream would lose our functions, so that is refused.
            /// # Safety
            /// As for `freopen(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
                // SAFETY: the caller passes a C string or null.
                let name = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
                if program::active()
                    && (sealed_descriptor(stream).is_some() || plan::would_seal(name))
                {
                    log::line(format_args!(
                        "ERROR: \"{}\": a stream cannot be reopened on a sealed file; redirect it outside the data directory or into log/",
                        Shown(name.to_bytes())
                    ));
                    real::set_errno(libc::EACCES);
                    return core::ptr::null_mut();
                }
                if !stream.is_null() {
                    // SAFETY: the caller's stream. `freopen` closes its descriptor, so its number
                    // may now be reused.
                    fds::remove(unsafe { real::fileno(stream) });
                }
                // SAFETY: the caller's arguments.
                unsafe { real::freopen(path, mode, stream) }
            }
        )*
        $(
            /// `fileno(3)`.
            /// # Safety
            /// As for `fileno(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $fileno(stream: *mut FILE) -> c_int {
                match sealed_descriptor(stream) {
                    Some(fd) => fd,
                    // SAFETY: the caller's arguments.
                    None => unsafe { real::fileno(stream) },
                }
            }
        )*
    };
}

stream_family!(fopen, fopen64; freopen, freopen64; fileno, fileno_unlocked);

/// `fdopen(3)`: a stream on a sealed descriptor has our functions.
/// # Safety
/// As for `fdopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !fds::is_sealed(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fdopen(fd, mode) };
    }
    // SAFETY: the caller passes a C string.
    let wanted = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes());
    // SAFETY: no pointers involved.
    let flags = unsafe { descriptor::fcntl(fd, libc::F_GETFL, core::ptr::null_mut()) };
    // The mode must not ask for more access than the descriptor has (fdopen(3), EINVAL).
    let allowed = |wanted: c_int| {
        let had = flags & libc::O_ACCMODE;
        had == libc::O_RDWR || had == wanted & libc::O_ACCMODE
    };
    let Some(wanted) = wanted.filter(|wanted| flags >= 0 && allowed(*wanted)) else {
        real::set_errno(libc::EINVAL);
        return core::ptr::null_mut();
    };
    if wanted & libc::O_APPEND != 0 && flags & libc::O_APPEND == 0 {
        let appending = (flags | libc::O_APPEND) as usize as *mut c_void;
        // SAFETY: F_SETFL takes a number.
        if unsafe { descriptor::fcntl(fd, libc::F_SETFL, appending) } < 0 {
            return core::ptr::null_mut();
        }
    }
    // SAFETY: the caller passes a C string.
    unsafe { sealed_stream(fd, mode) }
}
