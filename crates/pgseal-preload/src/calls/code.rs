//! `dlopen`: a module that is loaded later is held against the table as the program was at its start.
//!
//! The C library's `dlopen` looks at its caller (search paths, name space). So ours calls nothing:
//! it has the module looked at and then jumps on, with all registers and the return address as
//! they came.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::audit;
use crate::log::{self, Shown};
use crate::memory::with_reserve;
use crate::program;
use crate::real;

/// Where `dlopen` jumps to: the C library's, or [`refused`].
///
/// # Safety
/// `file` is null or a C string.
unsafe extern "C" fn before_load(file: *const c_char) -> usize {
    if !file.is_null() && program::active() {
        let errno = real::errno();
        // SAFETY: the caller's contract.
        let path = unsafe { CStr::from_ptr(file) };
        // A name without a slash is a library of the system, found along the search path.
        let bad = if path.to_bytes().contains(&b'/') {
            with_reserve(|| audit::bad_imports(path))
        } else {
            Vec::new()
        };
        real::set_errno(errno);
        if !bad.is_empty() {
            log::line(format_args!(
                "ERROR: \"{}\" uses {} which pgseal does not handle; it is not loaded, because data could be written unsealed. Do without this module, or report it",
                Shown(path.to_bytes()),
                with_reserve(|| bad.join(", "))
            ));
            return refused as unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void as usize;
        }
    }
    real::dlopen_address()
}

/// A `dlopen` that fails, with a text for `dlerror`: that of a file that cannot be there.
unsafe extern "C" fn refused(_file: *const c_char, flags: c_int) -> *mut c_void {
    let text = c"pgseal: module refused, see the server log/";
    // SAFETY: a C string; the file does not exist.
    unsafe { real::dlopen(text.as_ptr(), flags) }
}

/// `dlopen(3)`.
/// # Safety
/// As for `dlopen(3)`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_load,
    )
}

/// `dlopen(3)`.
/// # Safety
/// As for `dlopen(3)`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {before}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        before = sym before_load,
    )
}
