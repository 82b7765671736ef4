//! The verdict on a file: whether it is sealed, passed or refused.

use core::ffi::{CStr, c_int};

use pgseal_core::{FileKind, Form, Generation, Place, geometry};
use pgseal_pgdata::counters::ClassIndex;
use pgseal_pgdata::{Class, KeyScope, Policy};

use crate::file::damage::{self, Head, Reason};
use crate::file::guard;
use crate::file::open_file::{self, OpenFile};
use crate::file::want::Want;
use crate::keys::copies;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Location, Root};
use crate::place::head;
use crate::place::program::{self, Role};

/// What may happen to the file at a path.
pub enum Verdict {
    /// Not ours: the real call, unchanged. With what it is in a data directory, if it is in one.
    Pass(Option<Class>),
    /// The lock file of a server, which is plain. Where it cannot start, the file is not made.
    Lock(Option<&'static Root>),
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
    pub fn counted(&self) -> ClassIndex {
        self.class.map_or(ClassIndex::OUTSIDE, ClassIndex::of)
    }
}

/// The verdict on a path, opened with these flags of `open(2)`.
pub fn verdict(path: &[u8], flags: c_int) -> Verdict {
    let creates = flags & libc::O_CREAT != 0;
    let Some(Location { root, class, place }) = datadir::locate(path) else {
        let is_server = matches!(program::role(), Role::Server | Role::Standalone);
        if creates && is_server && datadir::base_name(path) == b"postmaster.pid" {
            return Verdict::Lock(None);
        }
        return outside(path, flags);
    };
    // What every program reads first: its own complaint would not say what to do.
    if matches!(class, Class::Version | Class::Control) && root.expect_whole().is_err() {
        return Verdict::Refuse(libc::EACCES);
    }
    if class == Class::Postmaster && creates && datadir::base_name(path) == b"postmaster.pid" {
        return Verdict::Lock(Some(root));
    }
    if class == Class::Control
        && program::role().needs_keys_first()
        && let Err(errno) = load::of(root)
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
            match wanted(root, path, class, place) {
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
    place: Place,
) -> Result<Option<Want>, Errno> {
    let Policy::Seal { scope, .. } = class.policy() else { return Ok(None) };
    // Received WAL beside its own keyring is written as in pg_wal: in place, after syncs.
    if class == Class::Unknown
        && let Some(kind) = copies::kind_of(path)
    {
        return wanted_copy(root, kind).map(Some);
    }
    let keys = load::of(root)?;
    let Some(form) = class.form(place, keys.suite) else { return Ok(None) };
    let ephemeral = scope == KeyScope::Ephemeral && keys.get(Generation::EPHEMERAL).is_some();
    let generation = if ephemeral { Generation::EPHEMERAL } else { keys.active };
    Ok(Some(Want { keys, form, generation, class: Some(class) }))
}

/// How a copy of what is sealed is, which may have any name.
fn wanted_copy(root: &'static Root, kind: FileKind) -> Result<Want, Errno> {
    let keys = load::of(root)?;
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
        if datadir::locate(path).is_some() {
            return verdict(path, flags);
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

/// Looks at a file just opened. `None`: it is to be used as it is.
pub fn examine(
    fd: c_int,
    path: &[u8],
    flags: c_int,
    truncates: bool,
    ours: Ours,
) -> Result<Option<OpenFile>, Errno> {
    let Ours { want, reads_plain, root, .. } = ours;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
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
    let reason = match head.map_err(|error| open_file::describe(&error, path))? {
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

/// Whether a file made at this path would be sealed, or the one that is there is.
pub fn would_seal(path: &CStr) -> bool {
    if path.is_empty() {
        return false;
    }
    let class = datadir::locate(path.to_bytes()).map(|location| location.class);
    let sealed = class.is_some_and(|class| matches!(class.policy(), Policy::Seal { .. }));
    sealed || head::looks_sealed(path)
}
