//! `mkstemp` and its variants, and `openat2`: other ways to open a file. They go through our own
//! `open`, so that the class of the path decides.

use core::ffi::{CStr, c_char, c_int, c_void};

use libc::{mode_t, size_t};

use crate::calls::open;
use crate::file::plan;
use crate::os::log::{self, Shown};
use crate::os::real::{self, fail};
use crate::place::program;

/// The part of the template that is replaced by random letters.
const PLACEHOLDER: &[u8; 6] = b"XXXXXX";
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// The number of attempts, the same as in the C library.
const ATTEMPTS: u32 = 62 * 62 * 62;

/// # Safety
/// `template` is a C string that may be written to.
unsafe fn make(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let len = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let place = usize::try_from(suffix_len)
        .ok()
        .and_then(|suffix_len| len.checked_sub(suffix_len))
        .and_then(|end| end.checked_sub(PLACEHOLDER.len()));
    let Some(place) = place else { return fail(libc::EINVAL) };
    // SAFETY: within the string.
    let letters = unsafe { template.add(place) }.cast::<[u8; PLACEHOLDER.len()]>();
    // SAFETY: as above: as many bytes, which the caller lets us write to.
    if unsafe { letters.read() } != *PLACEHOLDER {
        return fail(libc::EINVAL);
    }
    let flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    for _ in 0..ATTEMPTS {
        let mut random = [0_u8; 8];
        // SAFETY: room for the bytes.
        let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        if got != 8 {
            return fail(libc::EIO);
        }
        let mut value = u64::from_le_bytes(random);
        let name = [(); PLACEHOLDER.len()].map(|()| {
            let letter = LETTERS[(value % 62) as usize];
            value /= 62;
            letter
        });
        // SAFETY: as above.
        unsafe { letters.write(name) };
        // SAFETY: the caller's contract.
        let fd = open::open_path(unsafe { CStr::from_ptr(template) }, flags, 0o600);
        if fd >= 0 || real::errno() != libc::EEXIST {
            return fd;
        }
    }
    fail(libc::EEXIST)
}

macro_rules! temporary_family {
    ($($plain:ident),*; $($suffixed:ident),*; $($flagged:ident),*; $($both:ident),*) => {
        $(
            /// `mkstemp(3)`.
            /// # Safety
            /// As for `mkstemp(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $plain(template: *mut c_char) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { make(template, 0, 0) }
            }
        )*
        $(
            /// `mkstemps(3)`.
            /// # Safety
            /// As for `mkstemps(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $suffixed(template: *mut c_char, suffix_len: c_int) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { make(template, suffix_len, 0) }
            }
        )*
        $(
            /// `mkostemp(3)`.
            /// # Safety
            /// As for `mkostemp(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $flagged(template: *mut c_char, flags: c_int) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { make(template, 0, flags) }
            }
        )*
        $(
            /// `mkostemps(3)`.
            /// # Safety
            /// As for `mkostemps(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $both(template: *mut c_char, suffix_len: c_int, flags: c_int) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { make(template, suffix_len, flags) }
            }
        )*
    };
}

temporary_family!(
    mkstemp, mkstemp64; mkstemps, mkstemps64; mkostemp, mkostemp64; mkostemps, mkostemps64
);

/// `struct open_how` of `openat2(2)`.
#[repr(C)]
#[derive(Clone, Copy)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `openat2(2)`, for C libraries that have it. Only the kernel can apply `resolve`, which restricts
/// path resolution; so a call that uses it on a file that would be sealed fails with `ENOSYS`,
/// after which programs fall back to `openat`.
/// # Safety
/// As for `openat2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat2(
    dir: c_int,
    path: *const c_char,
    how: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: the caller passes a C string or null.
    let name = if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } };
    if program::active() && !how.is_null() && len >= size_of::<OpenHow>() {
        // SAFETY: the caller's structure is at least that long.
        let how = unsafe { how.cast::<OpenHow>().read_unaligned() };
        let full = open::path_at(dir, name);
        let full = full.as_deref().unwrap_or(name);
        if how.resolve == 0 && len == size_of::<OpenHow>() {
            let flags = c_int::try_from(how.flags);
            let mode = mode_t::try_from(how.mode);
            let (Ok(flags), Ok(mode)) = (flags, mode) else { return fail(libc::EINVAL) };
            return open::open_path(full, flags, mode);
        }
        if plan::would_seal(full) {
            log::line(format_args!(
                "ERROR: \"{}\": openat2 with rules for the way does not work on sealed files; use openat",
                Shown(full.to_bytes())
            ));
            return fail(libc::ENOSYS);
        }
    }
    // SAFETY: the caller's arguments. The system call itself: the C library may not have the
    // function.
    let done = unsafe { libc::syscall(libc::SYS_openat2, dir, path, how, len) };
    c_int::try_from(done).unwrap_or(-1)
}
