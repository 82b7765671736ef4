//! `dlopen`: a module that is loaded later is held against the table as the program was at its start,
//! with all libraries that it brings along. `dlerror`: says why one was refused.
//!
//! The C library's `dlopen` looks at its caller (search paths, name space). So ours calls nothing:
//! it has the module looked at and then jumps on.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_int, c_void};

use crate::calls::audit;
use crate::calls::jump::jumps;
use crate::os::log;
use crate::os::real::{self, Symbol};
use crate::place::program;

/// The longest text that `dlerror` gives; what is longer is in the log.
const MAX_TEXT: usize = 1024;

thread_local! {
    /// Whether the last `dlopen` of this thread was refused and nobody has asked why.
    static PENDING: Cell<bool> = const { Cell::new(false) };
    /// The text, which is the caller's until the next `dlerror`.
    static TEXT: UnsafeCell<[u8; MAX_TEXT]> = const { UnsafeCell::new([0; MAX_TEXT]) };
}

/// Where `dlopen` jumps to: the C library's, or [`refused`].
///
/// # Safety
/// `file` is null or a C string.
unsafe extern "C" fn before_load(file: *const c_char, caller: usize) -> usize {
    if !file.is_null() && program::active() {
        PENDING.set(false);
        let errno = real::errno();
        // SAFETY: the caller's contract.
        let path = unsafe { CStr::from_ptr(file) };
        let judged = audit::check_load(path, caller);
        real::set_errno(errno);
        if let Err(why) = judged {
            log::line(format_args!("ERROR: {why}"));
            keep(&why);
            return refused as unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void as usize;
        }
    }
    real::address_of(Symbol::dlopen)
}

/// Keeps the reason for `dlerror`.
fn keep(why: &str) {
    const PREFIX: &[u8] = b"pgseal: ";
    TEXT.with(|text| {
        // SAFETY: this thread's own, and nobody holds a reference to it: `dlerror` gives a pointer,
        // which is the caller's only until the next call of it.
        let text = unsafe { &mut *text.get() };
        let len = why.len().min(MAX_TEXT - PREFIX.len() - 1);
        text.fill(0);
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        text[PREFIX.len()..PREFIX.len() + len].copy_from_slice(&why.as_bytes()[..len]);
    });
    PENDING.set(true);
}

/// A `dlopen` that fails, for the C library, too: the file cannot be there.
unsafe extern "C" fn refused(_file: *const c_char, flags: c_int) -> *mut c_void {
    let text = c"pgseal: module refused/";
    // SAFETY: a C string; the file does not exist.
    unsafe { real::dlopen(text.as_ptr(), flags) }
}

/// `dlerror(3)`: of a module that was refused the reason, as the server tells it its client.
/// # Safety
/// As for `dlerror(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    // SAFETY: no pointers involved. Asked in any case: it forgets what it has said.
    let of_linker = unsafe { real::dlerror() };
    if PENDING.replace(false) { TEXT.with(|text| text.get().cast()) } else { of_linker }
}

jumps! {
    /// `dlopen(3)`.
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void = before_load;
}
