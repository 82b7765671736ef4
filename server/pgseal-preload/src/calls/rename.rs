//! `rename(2)` and its variants. Three kinds of files are rewritten before the rename: WAL that
//! recovery takes from the archive of another cluster is sealed with this cluster's keys; timeline
//! history becomes plain; a file that was written under a name unknown to this library is bound to
//! its final place. Every other file keeps its header under every name. A segment of WAL whose keys
//! were used too often does not become another segment.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt::Write;

use pgseal_core::broken::{self, Order};
use pgseal_core::geometry;
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::memory;
use pgseal_pgdata::Class;

use crate::calls::{descriptor, open, read, write};
use crate::file::config;
use crate::file::lengths;
use crate::file::manifest;
use crate::file::usage;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::os::real::{self, fail};
use crate::os::sys::{self, PathText};
use crate::place::datadir::{self, Location};
use crate::place::program::{self, Role};

/// How many bytes are copied at once.
const CHUNK: usize = 1 << 20;

/// `rename(2)`.
/// # Safety
/// As for `rename(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::rename(from, to) };
    // SAFETY: the caller's arguments.
    unsafe { rename_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), call) }
}

/// `link(2)`: PostgreSQL 15 gives a segment of WAL that it uses again its new name so, and then
/// removes the old one.
/// # Safety
/// As for `link(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    if program::active() && !from.is_null() && !to.is_null() {
        // SAFETY: the caller's arguments.
        let old = unsafe { CStr::from_ptr(from) };
        // SAFETY: as above.
        let new = unsafe { CStr::from_ptr(to) };
        if usage::is_worn_out(old, new) {
            return fail(libc::EKEYEXPIRED);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::link(from, to) }
}

/// `renameat(2)`.
/// # Safety
/// As for `renameat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::renameat(from_dir, from, to_dir, to) };
    // SAFETY: the caller's arguments.
    unsafe { rename_at((from_dir, from), (to_dir, to), call) }
}

/// `renameat2(2)`. An exchange of two files rewrites neither of them.
/// # Safety
/// As for `renameat2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::renameat2(from_dir, from, to_dir, to, flags) };
    if flags & libc::RENAME_EXCHANGE != 0 {
        return call();
    }
    // SAFETY: the caller's arguments.
    unsafe { rename_at((from_dir, from), (to_dir, to), call) }
}

/// Rewrites the file if its new name needs that, then renames it.
///
/// # Safety
/// Both names are C strings or null.
unsafe fn rename_at(
    (from_dir, from): (c_int, *const c_char),
    (to_dir, to): (c_int, *const c_char),
    call: impl FnOnce() -> c_int,
) -> c_int {
    // Programs pass null to test whether the kernel has the call: the kernel answers EFAULT.
    if !program::active() || from.is_null() || to.is_null() {
        return call();
    }
    // SAFETY: the caller's contract.
    let old = unsafe { CStr::from_ptr(from) };
    // SAFETY: as above.
    let new = unsafe { CStr::from_ptr(to) };
    let (full_old, full_new) = (open::path_at(from_dir, old), open::path_at(to_dir, new));
    let old = full_old.as_deref().unwrap_or(old);
    let new = full_new.as_deref().unwrap_or(new);
    manifest::before_rename(old.to_bytes(), new.to_bytes());
    lengths::forget(old.to_bytes());
    lengths::forget(new.to_bytes());
    if broken::is(Order::PlaceAfterRename) {
        let done = call();
        let _ = before_rename(new, new);
        return done;
    }
    let prepared = match program::role() {
        Role::Server | Role::Standalone => {
            before_rename(old, new).and_then(|()| config::before_rename(old, new))
        }
        _ => bind_to_place(old, new).map(|()| None),
    };
    let change = match prepared {
        Ok(change) => change,
        Err(errno) => return fail(errno),
    };
    let done = call();
    if let Some(change) = change {
        change.finish(done == 0);
    }
    done
}

fn before_rename(from: &CStr, to: &CStr) -> Result<(), Errno> {
    let name = datadir::base_name(to.to_bytes());
    // The name under which `restore_command` stores the file that it fetched (`xlogarchive.c`).
    if datadir::base_name(from.to_bytes()) == b"RECOVERYXLOG" {
        seal_with_own_keys(from)
    } else if name.ends_with(b".history") {
        make_history_plain(from, to)
    } else if usage::is_worn_out(from, to) {
        Err(libc::EKEYEXPIRED)
    } else {
        bind_to_place(from, to)
    }
}

/// The temporary name of the copy that gets the name `to` later: mostly of the same class and place
/// as `to`.
fn in_the_making(to: &CStr) -> PathText {
    let mut name = PathText::of(to.to_bytes());
    name.push(b".tmp");
    name
}

/// Binds a file to the place that it is renamed to, if it is bound to no place. PostgreSQL wrote
/// such a file under a name that this library does not know, and the file would not open under its
/// final name. Two examples: a minor release may begin to write `NAME.new` where it wrote `NAME`; a
/// copying program that `PGSEAL_PROGRAMS` names may write `.NAME.Xy12Za` first, as rsync does.
fn bind_to_place(from: &CStr, to: &CStr) -> Result<(), Errno> {
    let is_unknown = |location: &Location| location.class == Class::Unknown;
    if datadir::locate(from.to_bytes()).filter(is_unknown).is_none() {
        return Ok(());
    }
    let copy = in_the_making(to);
    let (Some(wanted), Some(made)) = (datadir::locate(to.to_bytes()), datadir::locate(&copy))
    else {
        return Ok(());
    };
    let is_same = made.class == wanted.class && made.place == wanted.place;
    if wanted.class == Class::Unknown || !is_same {
        return Ok(());
    }
    // A link is renamed as a link.
    if !sys::lstat(from).is_some_and(|st| sys::is_regular(st.st_mode)) {
        return Ok(());
    }
    // A file that is bound to a place is refused at every other one, and must not be bound again.
    if header_of(from)?.is_none_or(|header| !header.place.is_any()) {
        return Ok(());
    }
    replace(from, &copy.into_c()?)
}

/// Replaces a file that is sealed with the keys of another data directory by a copy that is sealed
/// with the keys of this one: recovery may reuse the segment later, and then writes to it under its
/// old header.
fn seal_with_own_keys(path: &CStr) -> Result<(), Errno> {
    let Some(Location { root, .. }) = datadir::locate(path.to_bytes()) else { return Ok(()) };
    let own = load::of(root)?.keyring_id;
    if header_of(path)?.is_none_or(|header| header.keyring_id == own) {
        return Ok(());
    }
    // A name of the class WAL, which the server removes when it starts again after a crash.
    let mut copy = datadir::join(datadir::parent(path.to_bytes()), b"xlogtemp.");
    // Writing to a `PathText` cannot fail.
    let _ = write!(copy, "{}", std::process::id());
    let copy = copy.into_c()?;
    replace(path, &copy)
}

/// Replaces a file that is about to become a timeline history file by a plain copy. The server
/// wrote the file under a temporary name of the class WAL (`writeTimeLineHistory`, `timeline.c`),
/// or fetched it from an archive.
fn make_history_plain(path: &CStr, to: &CStr) -> Result<(), Errno> {
    let is_history = datadir::locate(to.to_bytes())
        .is_some_and(|location| location.class == Class::TimelineHistory);
    if !is_history || header_of(path)?.is_none() {
        return Ok(());
    }
    // pg_receivewal, too, writes timeline history under this temporary name.
    replace(path, &in_the_making(to).into_c()?)
}

/// Replaces a file by a copy, which is sealed according to the name of the copy.
fn replace(path: &CStr, copy: &CStr) -> Result<(), Errno> {
    copy_anew(path, copy).inspect_err(|errno| {
        // SAFETY: a C string. There may be no such file.
        unsafe { libc::unlink(copy.as_ptr()) };
        log::line(format_args!(
            "ERROR: \"{}\" could not be written anew, with the keys of this data directory or plain (errno {errno})",
            Shown(path.to_bytes())
        ));
    })?;
    // SAFETY: two C strings.
    if unsafe { real::rename(copy.as_ptr(), path.as_ptr()) } != 0 {
        let errno = real::errno();
        // SAFETY: a C string.
        unsafe { libc::unlink(copy.as_ptr()) };
        return Err(errno);
    }
    Ok(())
}

/// The header of a file, not authenticated; `None` if the file is not sealed.
fn header_of(path: &CStr) -> Result<Option<Header>, Errno> {
    let fd = sys::open_read(path)?;
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = sys::pread_full(fd.0, &mut start, 0)?;
    match header::classify(&start[..got]) {
        Ok(Kind::Sealed(header)) => Ok(Some(header)),
        // The call that opens the file logs what is wrong with it.
        _ => Ok(None),
    }
}

/// A descriptor that was opened by our own `open`; closes it on drop.
struct Opened(c_int);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: our own descriptor, and open.
        unsafe { descriptor::close(self.0) };
    }
}

fn opened(path: &CStr, flags: c_int) -> Result<Opened, Errno> {
    let fd = open::open_path(path, flags | libc::O_CLOEXEC, 0o600);
    if fd < 0 { Err(real::errno()) } else { Ok(Opened(fd)) }
}

/// Copies one file to the other and syncs the copy; each is read or written by its own header. The
/// copy gets the permissions of the original, so that a group may read it in a cluster made with
/// `initdb --allow-group-access`.
fn copy_anew(from: &CStr, to: &CStr) -> Result<(), Errno> {
    let from = opened(from, libc::O_RDONLY)?;
    let to = opened(to, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC)?;
    let mode = sys::fstat(from.0).ok_or_else(real::errno)?.st_mode & 0o777;
    // SAFETY: no pointers involved.
    if unsafe { libc::fchmod(to.0, mode) } != 0 {
        return Err(real::errno());
    }
    let mut buffer = memory::zeros(CHUNK).map_err(|_| libc::ENOMEM)?;
    loop {
        // SAFETY: the buffer has that much room.
        let got = unsafe { read::read(from.0, buffer.as_mut_ptr().cast::<c_void>(), CHUNK) };
        let got = usize::try_from(got).map_err(|_| real::errno())?;
        if got == 0 {
            break;
        }
        let mut done = 0;
        while done < got {
            // SAFETY: `done` is less than what was read into the buffer.
            let rest = unsafe { buffer.as_ptr().add(done) };
            // SAFETY: that many bytes are left in it.
            let wrote = unsafe { write::write(to.0, rest.cast::<c_void>(), got - done) };
            done += usize::try_from(wrote).map_err(|_| real::errno())?;
        }
    }
    sys::sync(to.0)
}
