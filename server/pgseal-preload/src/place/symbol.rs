//! Functions and variables of the server's program, found by name.

use core::ffi::{CStr, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function or variable of the server's program, looked up once.
pub struct Symbol {
    name: &'static CStr,
    /// 0: not looked up; 1: there is none.
    address: AtomicUsize,
}

impl Symbol {
    /// A symbol of this name.
    pub const fn new(name: &'static CStr) -> Symbol {
        Symbol { name, address: AtomicUsize::new(0) }
    }

    /// Looks the symbol up. A look-up takes a lock of the linker, so it is better made before the
    /// server forks.
    pub fn find(&self) -> usize {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) }.addr();
        self.address.store(found.max(1), Ordering::Relaxed);
        found.max(1)
    }

    fn address(&self) -> Option<*const c_void> {
        let address = match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            known => known,
        };
        (address > 1).then(|| ptr::with_exposed_provenance(address))
    }

    /// The function, if the program has it.
    ///
    /// # Safety
    /// `F` is a function pointer of the signature that the function has in all versions of
    /// PostgreSQL.
    pub unsafe fn function<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        let address = self.address()?;
        // SAFETY: the caller's contract; both are one pointer long.
        Some(unsafe { mem::transmute_copy(&address) })
    }

    /// Whether a variable that is a pointer points to something.
    pub fn is_pointing(&self) -> bool {
        let Some(address) = self.address() else { return false };
        // SAFETY: a pointer of the server's program, which lives as long as it.
        !unsafe { address.cast::<*const u8>().read_volatile() }.is_null()
    }

    /// The value of a `uint32` variable.
    pub fn number(&self) -> Option<u32> {
        let address = self.address()?;
        // SAFETY: a `uint32` of the server's program, which lives as long as it.
        Some(unsafe { address.cast::<u32>().read_volatile() })
    }

    /// The value of a `bool` variable.
    pub fn flag(&self) -> Option<bool> {
        let address = self.address()?;
        // SAFETY: a `bool` of the server's program, one byte, which lives as long as it.
        Some(unsafe { address.cast::<u8>().read_volatile() } != 0)
    }
}

/// Whether this process serves replication or base backups (`am_walsender`,
/// `replication/walsender.c`).
pub fn is_walsender() -> bool {
    static WALSENDER: Symbol = Symbol::new(c"am_walsender");
    WALSENDER.flag() == Some(true)
}

/// Whether this is a child of the postmaster (`IsUnderPostmaster`, `utils/init/globals.c`).
pub fn is_under_postmaster() -> bool {
    static UNDER_POSTMASTER: Symbol = Symbol::new(c"IsUnderPostmaster");
    UNDER_POSTMASTER.flag() == Some(true)
}
