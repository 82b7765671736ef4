//! `open` and its spellings: where the verdict on a file is made.

use core::ffi::{CStr, c_char, c_int};
use std::sync::Mutex;

use libc::mode_t;
use pgseal_core::{FileKind, Form, Generation, geometry};
use pgseal_pgdata::counters::{ClassIndex, Counter};
use pgseal_pgdata::{Class, KeyScope, Policy};

use crate::config;
use crate::copies;
use crate::counters;
use crate::damage::{self, Head, Reason};
use crate::datadir::{self, Place, Root};
use crate::fds;
use crate::file::{self, OpenFile, Want};
use crate::guard;
use crate::head;
use crate::holes;
use crate::keys;
use crate::log::{self, Shown};
use crate::memory;
use crate::program;
use crate::real::{self, Errno, fail};
use crate::server;
use crate::sys;

/// What may happen to the file at a path.
pub enum Verdict {
    /// Not ours: the real call, unchanged. With what it is in a data directory, if it is in one.
    Pass(Option<Class>),
    /// The lock file of a server, which is plain. Who has made it is alone in the data directory.
    Lock(&'static Root),
    /// A sealed file, or one that will be.
    Seal(Ours),
    /// Not under pgseal.
    Refuse(Errno),
}

/// A file that is sealed or will be.
#[derive(Clone, Copy)]
pub struct Ours {
    /// How it is sealed if it is empty; without it an empty file stays plain.
    want: Option<Want>,
    reads_plain: bool,
    root: Option<&'static Root>,
    /// What it is to PostgreSQL; without a class it lies outside every data directory.
    pub class: Option<Class>,
}

impl Ours {
    /// A sealed file outside every data directory.
    pub fn anywhere() -> Ours {
        Ours { want: None, reads_plain: true, root: None, class: None }
    }

    fn outside(want: Option<Want>, root: Option<&'static Root>) -> Verdict {
        Verdict::Seal(Ours { want, reads_plain: true, root, class: None })
    }

    /// Under which class it counts.
    fn counted(&self) -> ClassIndex {
        self.class.map_or(ClassIndex::OUTSIDE, ClassIndex::of)
    }
}

const ACCESS: c_int = libc::O_ACCMODE;

/// Opens a path relative to the working directory, with the verdict of its class.
pub fn open_path(path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    let raw = || {
        // SAFETY: `path` is a C string.
        unsafe { real::open(path.as_ptr(), flags, mode) }
    };
    if !program::active() {
        return raw();
    }
    let verdict = verdict(path.to_bytes(), flags);
    if let Verdict::Pass(class) | Verdict::Seal(Ours { class, .. }) = &verdict
        && let Some(decided) = config::opened(path, flags, *class)
    {
        return decided.inspect(|fd| fds::set_plain(*fd)).unwrap_or_else(fail);
    }
    match verdict {
        Verdict::Pass(_) => {
            let fd = raw();
            fds::set_plain(fd);
            fd
        }
        Verdict::Lock(root) => {
            let fd = raw();
            fds::set_plain(fd);
            if fd >= 0 {
                memory::with_reserve(|| holes::fill(root));
            }
            fd
        }
        Verdict::Refuse(errno) => fail(errno),
        Verdict::Seal(ours) => match open_sealed(path, flags, mode, ours) {
            Ok(fd) => fd,
            Err(errno) => fail(errno),
        },
    }
}

/// The verdict on a path, opened with these flags of `open(2)`.
pub fn verdict(path: &[u8], flags: c_int) -> Verdict {
    let place = datadir::place(path);
    let creates = flags & libc::O_CREAT != 0;
    let (Some(root), Some(class)) = (place.root, place.class) else {
        if creates
            && datadir::base_name(path) == b"postmaster.pid"
            && let Err(errno) = server::starts_plain()
        {
            return Verdict::Refuse(errno);
        }
        return outside(path, flags);
    };
    // What every program reads first: its own complaint would not say what to do.
    if matches!(class, Class::Version | Class::Control) && root.expect_whole().is_err() {
        return Verdict::Refuse(libc::EACCES);
    }
    if class == Class::Postmaster && creates && datadir::base_name(path) == b"postmaster.pid" {
        // A server takes its lock: the last moment before it forks, and before it writes.
        return match server::starts(root) {
            Ok(()) => Verdict::Lock(root),
            Err(errno) => Verdict::Refuse(errno),
        };
    }
    if class == Class::Control
        && program::role().needs_keys_first()
        && let Err(errno) = keys::of(root)
    {
        return Verdict::Refuse(errno);
    }
    match class.policy() {
        // Earlier versions sealed it.
        Policy::Plain(_) if class == Class::TimelineHistory && stays_sealed(path, flags) => {
            Verdict::Seal(Ours {
                want: None,
                reads_plain: true,
                root: Some(root),
                class: Some(class),
            })
        }
        Policy::Plain(_) => Verdict::Pass(Some(class)),
        Policy::Refuse(reason) => {
            if creates {
                log::line(format_args!("ERROR: \"{}\": {reason}", Shown(path)));
                return Verdict::Refuse(libc::EACCES);
            }
            Verdict::Pass(Some(class))
        }
        Policy::Seal { reads_plain, .. } => {
            if let Err(errno) = guard::check() {
                return Verdict::Refuse(errno);
            }
            match wanted(root, path, class, place.bound) {
                Ok(want) => {
                    let (root, class) = (Some(root), Some(class));
                    Verdict::Seal(Ours { want, reads_plain, root, class })
                }
                Err(errno) => Verdict::Refuse(errno),
            }
        }
    }
}

/// How the file at this path below a root is sealed; `None` if files of its class are not.
pub fn wanted(
    root: &'static Root,
    path: &[u8],
    class: Class,
    place: pgseal_core::Place,
) -> Result<Option<Want>, Errno> {
    let Policy::Seal { scope, .. } = class.policy() else { return Ok(None) };
    // Received WAL beside its own keyring is written as in pg_wal: in place, after syncs.
    if class == Class::Unknown
        && let Some(kind) = copies::kind_of(path)
    {
        return wanted_copy(root, kind).map(Some);
    }
    let keys = keys::of(root)?;
    let Some(form) = class.form(place, keys.suite) else { return Ok(None) };
    let ephemeral = scope == KeyScope::Ephemeral && keys.get(Generation::EPHEMERAL).is_some();
    let generation = if ephemeral { Generation::EPHEMERAL } else { keys.active };
    Ok(Some(Want { keys, form, generation, class: Some(class) }))
}

/// How a copy of what is sealed is, which may have any name.
fn wanted_copy(root: &'static Root, kind: FileKind) -> Result<Want, Errno> {
    let keys = keys::of(root)?;
    let (suite, layout) = keys.suite.for_kind(kind);
    let mut form = Form::anywhere(suite, layout);
    if kind == FileKind::InPlace {
        form.place = pgseal_pgdata::WAL;
    }
    Ok(Want { keys, form, generation: keys.active, class: None })
}

/// A path outside every sealed data directory: a sealed file is opened as one, a new file is
/// plain, unless it is a copy of what is sealed.
fn outside(path: &[u8], flags: c_int) -> Verdict {
    let creates = flags & libc::O_CREAT != 0;
    if creates {
        if let Err(errno) = copies::before_creation(path, copies::Made::File) {
            return Verdict::Refuse(errno);
        }
        // The data directory may have been born just now.
        let place = datadir::place(path);
        if place.root.is_some() {
            return verdict_inside(path, flags, &place);
        }
        if let Some(kind) = copies::kind_of_new(path, flags)
            && let Some(root) = datadir::primary_root()
        {
            return match wanted_copy(root, kind) {
                Ok(want) => Ours::outside(Some(want), Some(root)),
                Err(errno) => Verdict::Refuse(errno),
            };
        }
    }
    if stays_sealed(path, flags) { Ours::outside(None, None) } else { Verdict::Pass(None) }
}

/// Whether there is a sealed file, which these flags do not empty.
fn stays_sealed(path: &[u8], flags: c_int) -> bool {
    flags & libc::O_TRUNC == 0 && sys::c_path(path).is_ok_and(|path| head::looks_sealed(&path))
}

fn verdict_inside(path: &[u8], flags: c_int, place: &Place) -> Verdict {
    if place.class.is_some() { verdict(path, flags) } else { Verdict::Pass(None) }
}

/// Opens a file that is sealed or will be, and enters it into the table.
fn open_sealed(path: &CStr, flags: c_int, mode: mode_t, ours: Ours) -> Result<c_int, Errno> {
    let writes = flags & ACCESS != libc::O_RDONLY;
    let mut inner = flags & !(libc::O_TRUNC | libc::O_APPEND | libc::O_DIRECT);
    if flags & ACCESS == libc::O_WRONLY {
        // A part of a block can only be written by one who can read the rest of it.
        inner = (inner & !ACCESS) | libc::O_RDWR;
    }
    let fd = sys::open(path, inner, mode)?;
    let number = fd.0;
    let truncates = flags & libc::O_TRUNC != 0 && writes;
    let bytes = path.to_bytes();
    let examined = examine(number, bytes, flags, truncates, ours)
        .inspect_err(|_| counters::add(ours.counted(), Counter::FailedFiles, 1))?;
    let Some(mut open) = examined else {
        fds::set_plain(number);
        core::mem::forget(fd);
        return Ok(number);
    };
    open.set_class(ours.class);
    open.set_write_only(flags & ACCESS == libc::O_WRONLY);
    let shared = memory::shared(Mutex::new(open)).map_err(|_| libc::ENOMEM)?;
    if truncates {
        fds::lock(&shared).set_len(number, 0)?;
    }
    if fds::insert(number, shared).is_err() {
        log::line(format_args!(
            "ERROR: descriptor {number} is beyond pgseal's table; lower max_files_per_process"
        ));
        return Err(libc::EMFILE);
    }
    core::mem::forget(fd);
    Ok(number)
}

/// Looks at a file just opened. `None`: it is to be used as it is.
pub fn examine(
    fd: c_int,
    path: &[u8],
    flags: c_int,
    truncates: bool,
    ours: Ours,
) -> Result<Option<OpenFile>, Errno> {
    let Ours { want, reads_plain, root, .. } = ours;
    let writes = flags & ACCESS != libc::O_RDONLY;
    let append = flags & libc::O_APPEND != 0;
    let unborn =
        |want: Option<Want>| Ok(want.map(|want| OpenFile::unborn(want, path, append, writes)));
    let mut start = [0; geometry::HEAD_LEN as usize];
    let start = match sys::pread_full(fd, &mut start, 0) {
        Ok(got) => &start[..got],
        // A directory, a pipe, a device: not a file with contents of ours.
        Err(libc::EISDIR | libc::ESPIPE | libc::ENXIO | libc::EINVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    if start.is_empty() {
        return unborn(want.filter(|_| is_regular(fd)));
    }
    let head = damage::look(fd, start, want, root);
    let reason = match head.map_err(|error| file::describe(&error, path))? {
        Head::Sealed(file) => return Ok(Some(OpenFile::sealed(file, path, append, writes))),
        Head::Empty => return unborn(want),
        Head::Bad(Reason::Plain) if !truncates && reads_plain && (!writes || want.is_none()) => {
            return Ok(None);
        }
        Head::Bad(reason) => reason,
    };
    let verdict = want.map(|want| damage::judge(reason, ours.class, path, want, root, truncates));
    match verdict {
        Some(damage::Verdict::Unborn) => unborn(want),
        Some(damage::Verdict::Opens(damage)) => {
            Ok(Some(OpenFile::damaged(damage, path, append, writes)))
        }
        Some(damage::Verdict::Fails) | None => {
            damage::fails(reason, path);
            Err(reason.errno())
        }
    }
}

fn is_regular(fd: c_int) -> bool {
    sys::fstat(fd).is_some_and(|st| sys::is_regular(st.st_mode))
}

/// The path behind a directory descriptor and a relative name.
pub fn path_at(dir: c_int, path: &CStr) -> Option<sys::CPath> {
    if path.to_bytes().starts_with(b"/") || dir == libc::AT_FDCWD {
        return None;
    }
    let link = sys::descriptor_link(dir).into_c().ok()?;
    let base = sys::read_link(&link)?;
    datadir::join(&base, path.to_bytes()).into_c().ok()
}

/// # Safety
/// `path` is a C string.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) };
    match path_at(dir, path) {
        Some(full) => open_path(&full, flags, mode),
        None => open_path(path, flags, mode),
    }
}

macro_rules! open_family {
    ($($name:ident),*; $($at:ident),*; $($checked:ident),*; $($checked_at:ident),*; $($creat:ident),*) => {
        $(
            /// `open(2)`. The mode is fixed rather than variadic; on the supported machines it
            /// arrives in the same register.
            /// # Safety
            /// As for `open(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
            }
        )*
        $(
            /// `openat(2)`.
            /// # Safety
            /// As for `openat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(dir, path, flags, mode) }
            }
        )*
        $(
            /// The fortified `open` without a mode.
            /// # Safety
            /// As for `open(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
            }
        )*
        $(
            /// The fortified `openat` without a mode.
            /// # Safety
            /// As for `openat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
                // SAFETY: the caller passes a C string.
                unsafe { open_at(dir, path, flags, 0) }
            }
        )*
        $(
            /// `creat(2)`.
            /// # Safety
            /// As for `creat(2)`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $creat(path: *const c_char, mode: mode_t) -> c_int {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                // SAFETY: the caller passes a C string.
                unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
            }
        )*
    };
}

open_family!(open, open64; openat, openat64; __open_2, __open64_2; __openat_2, __openat64_2; creat, creat64);

/// Whether a file made at this path would be sealed, or the one that is there is.
pub fn would_seal(path: &CStr) -> bool {
    if path.is_empty() {
        return false;
    }
    let class = datadir::place(path.to_bytes()).class;
    let sealed = class.is_some_and(|class| matches!(class.policy(), Policy::Seal { .. }));
    sealed || head::looks_sealed(path)
}
