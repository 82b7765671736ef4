//! Functions that jump to the C library's function of the same name. Some of these depend on their
//! caller (`dlopen`), return twice (`vfork`) or have a variable number of arguments (`execl`): all
//! registers, the stack and the return address must arrive unchanged.

/// Defines functions that pass their arguments unchanged. `$before` returns the address to jump to.
/// It gets the first argument, and the return address, which identifies the caller.
macro_rules! jumps {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $before:ident;)*) => { $(
        $(#[$doc])*
        /// # Safety
        /// As for the C library's function.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            core::arch::naked_asm!(
                "endbr64",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                // `al` counts the vector registers of a variadic call; and the push aligns the
                // stack to 16 bytes.
                "push rax",
                "mov rsi, [rsp + 56]",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }

        $(#[$doc])*
        /// # Safety
        /// As for the C library's function.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            core::arch::naked_asm!(
                "hint #34",
                "stp x29, x30, [sp, #-80]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "mov x29, sp",
                "mov x1, x30",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                "br x16",
                before = sym $before,
            )
        }
    )* };
}

pub(super) use jumps;
