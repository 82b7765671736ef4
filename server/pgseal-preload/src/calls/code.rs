//! `dlopen`: a module and all libraries that it brings along are checked against the table, as the
//! program was at its start. `dlerror`: tells why a module was refused.
//!
//! The C library's `dlopen` depends on its caller (search paths, name space). So our `dlopen` does
//! not call it, but checks the module and then jumps to it.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_int, c_void};

use crate::calls::audit;
use crate::calls::jump::jumps;
use crate::os::log;
use crate::os::real::{self, Symbol};
use crate::place::program;

/// The longest text that `dlerror` returns; the log has the full text.
const MAX_TEXT: usize = 1024;

thread_local! {
    /// Whether the last `dlopen` of this thread was refused and `dlerror` was not called since.
    static PENDING: Cell<bool> = const { Cell::new(false) };
    /// The text that `dlerror` returns, valid until the next `dlerror`.
    static TEXT: UnsafeCell<[u8; MAX_TEXT]> = const { UnsafeCell::new([0; MAX_TEXT]) };
}

/// Returns the address that `dlopen` jumps to: the C library's `dlopen`, or [`refused`].
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
        // SAFETY: the text belongs to this thread, and nobody holds a reference to it: `dlerror`
        // returns a pointer that is only valid until its next call.
        let text = unsafe { &mut *text.get() };
        let len = why.len().min(MAX_TEXT - PREFIX.len() - 1);
        text.fill(0);
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        text[PREFIX.len()..PREFIX.len() + len].copy_from_slice(&why.as_bytes()[..len]);
    });
    PENDING.set(true);
}

/// Makes the C library's `dlopen` fail as well: a file of this name cannot exist.
unsafe extern "C" fn refused(_file: *const c_char, flags: c_int) -> *mut c_void {
    let text = c"pgseal: module refused/";
    // SAFETY: a C string; the file does not exist.
    unsafe { real::dlopen(text.as_ptr(), flags) }
}

/// `dlerror(3)`: returns the reason for a refused module; the server passes it on to its client.
/// # Safety
/// As for `dlerror(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    // SAFETY: no pointers involved. Called in any case, because it clears the error of the C
    // library.
    let of_linker = unsafe { real::dlerror() };
    if PENDING.replace(false) { TEXT.with(|text| text.get().cast()) } else { of_linker }
}

jumps! {
    /// `dlopen(3)`.
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void = before_load;
}
