//! Directories: PostgreSQL's listings of a data directory leave out `pgseal/`, and a new data
//! directory gets its keyring.

use core::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use libc::{DIR, dirent, mode_t};

use crate::file::fds;
use crate::keys::copies;
use crate::os::real::{self, fail};
use crate::os::sys;
use crate::place::datadir;
use crate::place::program::{self, Role};

/// The open directories that hold a `pgseal/` to hide, by address.
static HIDING: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// `opendir(3)`.
/// # Safety
/// As for `opendir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    if !walks() {
        // SAFETY: the caller's arguments.
        return unsafe { real::opendir(path) };
    }
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    // SAFETY: the caller's arguments.
    hiding_below(name, || unsafe { real::opendir(path) })
}

/// `fdopendir(3)`.
/// # Safety
/// As for `fdopendir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    if !walks() {
        // SAFETY: no pointers involved.
        return unsafe { real::fdopendir(fd) };
    }
    // SAFETY: no pointers involved.
    hiding_below(&sys::descriptor_link(fd), || unsafe { real::fdopendir(fd) })
}

/// Whether this program lists and reads all files of a data directory.
pub fn walks() -> bool {
    matches!(program::role(), Role::Server | Role::Standalone | Role::Walker | Role::CombineBackup)
}

/// Opens the directory at `path`. If there is a keyring below it, its listing leaves out `pgseal`.
fn hiding_below(path: &[u8], open: impl FnOnce() -> *mut DIR) -> *mut DIR {
    if !has_keyring(path) {
        return open();
    }
    // Reserve the list entry first: a listing without an entry would show `pgseal`.
    let mut hiding = HIDING.lock().unwrap_or_else(PoisonError::into_inner);
    if hiding.try_reserve(1).is_err() {
        real::set_errno(libc::ENOMEM);
        return core::ptr::null_mut();
    }
    let dir = open();
    if !dir.is_null() {
        hiding.push(dir as usize);
    }
    dir
}

/// Whether there is a keyring below the directory at `path`.
pub fn has_keyring(path: &[u8]) -> bool {
    let keyring = datadir::join(path, datadir::KEYRING).into_c();
    keyring.is_ok_and(|keyring| sys::stat(&keyring).is_some())
}

/// Whether the listing leaves out this entry.
fn is_left_out(dir: *mut DIR, entry: &dirent) -> bool {
    // SAFETY: the name is a C string within the entry.
    let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
    let hiding = || HIDING.lock().unwrap_or_else(PoisonError::into_inner);
    name == c"pgseal" && hiding().contains(&(dir as usize))
}

macro_rules! readdir_r_family {
    ($($name:ident),*) => { $(
        /// `readdir_r(3)`.
        /// # Safety
        /// As for `readdir_r(3)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
            loop {
                // SAFETY: the caller's arguments.
                let failed = unsafe { real::readdir_r(dir, entry, result) };
                // SAFETY: the call has set `result`.
                let found = if failed == 0 { unsafe { (*result).as_ref() } } else { None };
                if !found.is_some_and(|found| is_left_out(dir, found)) {
                    return failed;
                }
            }
        }
    )* };
}

readdir_r_family!(readdir_r, readdir64_r);

macro_rules! readdir_family {
    ($($name:ident),*) => { $(
        /// `readdir(3)`: leaves out `pgseal/`, so that a base backup, pg_rewind or a verification
        /// never sees it.
        /// # Safety
        /// As for `readdir(3)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: *mut DIR) -> *mut dirent {
            loop {
                // SAFETY: the caller's arguments.
                let entry = unsafe { real::readdir(dir) };
                // SAFETY: an entry lives until the next call; null ends the listing.
                let Some(found) = (unsafe { entry.as_ref() }) else { return entry };
                if !is_left_out(dir, found) {
                    return entry;
                }
            }
        }
    )* };
}

readdir_family!(readdir, readdir64);

/// `closedir(3)`.
/// # Safety
/// As for `closedir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut DIR) -> c_int {
    HIDING.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != dir as usize);
    if !dir.is_null() {
        // SAFETY: the caller's directory, still open.
        fds::remove(unsafe { libc::dirfd(dir) });
    }
    // SAFETY: the caller's arguments.
    unsafe { real::closedir(dir) }
}

/// `mkdir(2)`: a directory is the first entry that `pg_basebackup` or `pg_combinebackup` creates in
/// its target, and the keyring must be made before it.
/// # Safety
/// As for `mkdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    if matches!(program::role(), Role::BaseBackup | Role::CombineBackup) {
        // SAFETY: the caller passes a C string.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Err(errno) = copies::before_creation(name, copies::Creation::Directory) {
            return fail(errno);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::mkdir(path, mode) }
}

/// `chdir(2)`: the server changes into its data directory.
/// # Safety
/// As for `chdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { real::chdir(path) };
    datadir::forget_cwd();
    done
}

/// `fchdir(2)`.
/// # Safety
/// As for `fchdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    // SAFETY: no pointers involved.
    let done = unsafe { real::fchdir(fd) };
    datadir::forget_cwd();
    done
}
