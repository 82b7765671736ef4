//! Directory walks that the C library makes without our `readdir` and `stat`: `scandir`, `ftw`,
//! `nftw`, `fts`. Programs get plain sizes, and do not see `pgseal/`.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use libc::{DIR, dirent};

use crate::calls::{directory, open, stat};
use crate::os::real::{self, fail};
use crate::os::sys::{self, PathText};
use crate::place::datadir;
use crate::place::program;

type Filter = unsafe extern "C" fn(*const dirent) -> c_int;
type Compare = unsafe extern "C" fn(*const *const dirent, *const *const dirent) -> c_int;

/// `scandir` on an open directory. The C library's `scandir` would not use our `opendir` and
/// `readdir`.
///
/// # Safety
/// As for `scandir(3)`; `dir` is null or open.
unsafe fn scan(
    dir: *mut DIR,
    list: *mut *mut *mut dirent,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    if dir.is_null() {
        return -1;
    }
    let (mut entries, mut count, mut room): (*mut *mut dirent, usize, usize) =
        (ptr::null_mut(), 0, 0);
    let failed = loop {
        real::set_errno(0);
        // SAFETY: the directory is open.
        let entry = unsafe { directory::readdir64(dir) };
        if entry.is_null() {
            break real::errno();
        }
        // SAFETY: the entry lives until the next call.
        if filter.is_some_and(|filter| unsafe { filter(entry) } == 0) {
            continue;
        }
        if count == room {
            room = (room * 2).max(16);
            // SAFETY: null or an array that we allocated.
            let more = unsafe { libc::realloc(entries.cast(), room * size_of::<*mut dirent>()) };
            if more.is_null() {
                break libc::ENOMEM;
            }
            entries = more.cast();
        }
        // SAFETY: as above.
        let len = usize::from(unsafe { (*entry).d_reclen });
        // SAFETY: no pointers involved.
        let copy = unsafe { libc::malloc(len) };
        if copy.is_null() {
            break libc::ENOMEM;
        }
        // SAFETY: both are at least `len` bytes long.
        unsafe { ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), len) };
        // SAFETY: the array has room for one more.
        let place = unsafe { entries.add(count) };
        // SAFETY: as above.
        unsafe { place.write(copy.cast()) };
        count += 1;
    };
    // SAFETY: the directory is open, and ours.
    unsafe { directory::closedir(dir) };
    if failed != 0 {
        for index in 0..count {
            // SAFETY: within the array.
            let place = unsafe { entries.add(index) };
            // SAFETY: as above; an entry made above.
            let entry = unsafe { place.read() };
            // SAFETY: it was allocated.
            unsafe { libc::free(entry.cast()) };
        }
        // SAFETY: null or an array that we allocated.
        unsafe { libc::free(entries.cast()) };
        return fail(failed);
    }
    if let Some(compare) = compare.filter(|_| count > 1) {
        type Plain = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
        // SAFETY: the elements are pointers to entries, which is what the caller's function takes.
        let compare = unsafe { core::mem::transmute::<Compare, Plain>(compare) };
        // SAFETY: the array has that many elements.
        unsafe { libc::qsort(entries.cast(), count, size_of::<*mut dirent>(), Some(compare)) };
    }
    // SAFETY: the caller's variable. An empty list is one that can be freed, too.
    unsafe { *list = entries };
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

macro_rules! scandir_family {
    ($($name:ident),*; $($at:ident),*) => {
        $(
            /// `scandir(3)`.
            /// # Safety
            /// As for `scandir(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: *const c_char, list: *mut *mut *mut dirent, filter: Option<Filter>, compare: Option<Compare>) -> c_int {
                // SAFETY: the caller's arguments.
                let dir = unsafe { directory::opendir(path) };
                // SAFETY: the caller's arguments.
                unsafe { scan(dir, list, filter, compare) }
            }
        )*
        $(
            /// `scandirat(3)`.
            /// # Safety
            /// As for `scandirat(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $at(at: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Option<Filter>, compare: Option<Compare>) -> c_int {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
                // SAFETY: the caller's arguments.
                let fd = unsafe { open::openat(at, path, flags, 0) };
                if fd < 0 {
                    return -1;
                }
                // SAFETY: our own descriptor, which the listing takes over.
                let dir = unsafe { directory::fdopendir(fd) };
                if dir.is_null() {
                    let errno = real::errno();
                    // SAFETY: `fdopendir` failed, so the descriptor is still ours.
                    unsafe { real::close(fd) };
                    return fail(errno);
                }
                // SAFETY: the caller's arguments.
                unsafe { scan(dir, list, filter, compare) }
            }
        )*
    };
}

scandir_family!(scandir, scandir64; scandirat, scandirat64);

/// Whether a path on a walk is `pgseal` in a data directory, or below it, and must be hidden.
fn is_hidden(path: &[u8]) -> bool {
    if !directory::walks() {
        return false;
    }
    let mut from = 0;
    while let Some(at) = path.get(from..).and_then(|rest| find(rest, b"pgseal")) {
        let (start, end) = (from + at, from + at + b"pgseal".len());
        let begins = start == 0 || path[start - 1] == b'/';
        let ends = path.get(end).is_none_or(|byte| *byte == b'/');
        if begins && ends && directory::has_keyring(if start == 0 { b"." } else { &path[..start] })
        {
            return true;
        }
        from = end;
    }
    false
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut c_void) -> c_int;

#[derive(Clone, Copy)]
struct Walk {
    visit: Visit,
    changes_dir: bool,
    /// Whether the callback is told where the name begins (`struct FTW`).
    has_base: bool,
}

thread_local! {
    static WALK: Cell<Option<Walk>> = const { Cell::new(None) };
}

/// The callback that the C library's walk calls; it calls the caller's callback.
unsafe extern "C" fn visited(
    path: *const c_char,
    st: *const libc::stat,
    kind: c_int,
    base: *mut c_void,
) -> c_int {
    const FTW_F: c_int = 0;
    let Some(walk) = WALK.get() else { return 0 };
    if walk.changes_dir {
        datadir::forget_cwd();
    }
    // SAFETY: the walk's C string.
    let name = unsafe { CStr::from_ptr(path) };
    // With FTW_CHDIR the path is relative to the start of the walk, and the name is relative to the
    // current directory.
    let valid_here = if walk.changes_dir && walk.has_base {
        // SAFETY: `struct FTW` begins with the offset of the name.
        let off = unsafe { base.cast::<c_int>().read() };
        // SAFETY: within the path.
        unsafe { path.add(usize::try_from(off).unwrap_or(0)) }
    } else {
        path
    };
    // SAFETY: a C string within a C string.
    let here = unsafe { CStr::from_ptr(valid_here) };
    let hidden = if walk.changes_dir {
        let dir = sys::current_dir().unwrap_or_else(PathText::new);
        is_hidden(&datadir::join(&dir, here.to_bytes()))
    } else {
        is_hidden(name.to_bytes())
    };
    if hidden {
        return 0;
    }
    // SAFETY: for a file the walk passes a structure that it has filled.
    let Some(known) = (unsafe { st.as_ref() }).filter(|_| kind == FTW_F) else {
        // SAFETY: the caller's function with the walk's arguments.
        return unsafe { (walk.visit)(path, st, kind, base) };
    };
    let mut plain = *known;
    // SAFETY: a copy of the filled structure.
    unsafe { stat::correct_path(here, &raw mut plain, true) };
    // SAFETY: the caller's function with the walk's arguments; the structure lives during the call.
    unsafe { (walk.visit)(path, &raw const plain, kind, base) }
}

/// Runs a walk with our callback instead of the caller's.
fn with(walk: Walk, run: impl FnOnce() -> c_int) -> c_int {
    let before = WALK.replace(Some(walk));
    let done = run();
    WALK.set(before);
    if walk.changes_dir {
        let errno = real::errno();
        datadir::forget_cwd();
        real::set_errno(errno);
    }
    done
}

macro_rules! walk_family {
    ($($ftw:ident),*; $($nftw:ident),*) => {
        $(
            /// `ftw(3)`.
            /// # Safety
            /// As for `ftw(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $ftw(path: *const c_char, visit: Option<Visit>, depth: c_int) -> c_int {
                let Some(function) = visit.filter(|_| program::active()) else {
                    // SAFETY: the caller's arguments.
                    return unsafe { real::ftw(path, visit.map_or(ptr::null(), |visit| visit as *const c_void), depth) };
                };
                let walk = Walk { visit: function, changes_dir: false, has_base: false };
                // SAFETY: the caller's arguments; our callback does not use its fourth argument
                // here.
                with(walk, || unsafe { real::ftw(path, visited as *const c_void, depth) })
            }
        )*
        $(
            /// `nftw(3)`.
            /// # Safety
            /// As for `nftw(3)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $nftw(path: *const c_char, visit: Option<Visit>, depth: c_int, flags: c_int) -> c_int {
                const FTW_CHDIR: c_int = 4;
                let Some(function) = visit.filter(|_| program::active()) else {
                    // SAFETY: the caller's arguments.
                    return unsafe { real::nftw(path, visit.map_or(ptr::null(), |visit| visit as *const c_void), depth, flags) };
                };
                let walk = Walk { visit: function, changes_dir: flags & FTW_CHDIR != 0, has_base: true };
                // SAFETY: the caller's arguments.
                with(walk, || unsafe { real::nftw(path, visited as *const c_void, depth, flags) })
            }
        )*
    };
}

walk_family!(ftw, ftw64; nftw, nftw64);

/// `FTSENT` of glibc, the same for `fts` and `fts64` where `off_t` has 64 bits.
#[repr(C)]
pub struct FtsEntry {
    cycle: *mut FtsEntry,
    parent: *mut FtsEntry,
    link: *mut FtsEntry,
    number: libc::c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: u16,
    namelen: u16,
    ino: libc::ino_t,
    dev: libc::dev_t,
    nlink: libc::nlink_t,
    level: i16,
    info: u16,
    flags: u16,
    instr: u16,
    statp: *mut libc::stat,
}

macro_rules! fts_family {
    ($($name:ident),*) => { $(
        /// `fts_read(3)`.
        /// # Safety
        /// As for `fts_read(3)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fts: *mut c_void) -> *mut FtsEntry {
            const FTS_D: u16 = 1;
            const FTS_F: u16 = 8;
            const FTS_SKIP: u16 = 4;
            loop {
                // SAFETY: the caller's argument.
                let found = unsafe { real::fts_read(fts).cast::<FtsEntry>() };
                // SAFETY: null, or an entry that is valid until the next call.
                let Some(entry) = (unsafe { found.as_mut() }).filter(|_| program::active()) else {
                    return found;
                };
                let errno = real::errno();
                // The walk changes the working directory without our `chdir`.
                datadir::forget_cwd();
                // SAFETY: a C string of the entry, valid as the entry is.
                let accpath = unsafe { CStr::from_ptr(entry.accpath) };
                if is_hidden(accpath.to_bytes()) {
                    if entry.info == FTS_D {
                        entry.instr = FTS_SKIP;
                    }
                    real::set_errno(errno);
                    continue;
                }
                if entry.info == FTS_F && !entry.statp.is_null() {
                    // SAFETY: the entry of a file has a structure that is filled.
                    unsafe { stat::correct_path(accpath, entry.statp, true) };
                }
                real::set_errno(errno);
                return found;
            }
        }
    )* };
}

fts_family!(fts_read, fts64_read);
