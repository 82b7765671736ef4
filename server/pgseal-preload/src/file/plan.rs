//! Plans what a call does with the file at a path: gathers the facts, has [`decide`] give the
//! verdict, and loads the keys that the verdict needs.

use core::ffi::{CStr, c_int};

use pgseal_core::{FileKind, Form, Generation, Place};
use pgseal_pgdata::counters::ClassIndex;
use pgseal_pgdata::{Class, KeyScope, Policy};

use crate::file::decide::{Facts, Refusal, Verdict, decide};
use crate::file::guard;
use crate::file::sealing::Sealing;
use crate::keys::copies;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::place::datadir::{self, Location, Root};
use crate::place::head;
use crate::place::program;

/// A verdict, with everything that a call needs to carry it out.
pub enum Plan {
    /// The real call, unchanged. With the class of the file, if the file is in a data directory.
    Pass(Option<Class>),
    /// The file is opened as sealed if its first bytes say that it is sealed, else by the real
    /// call.
    AsFound(SealTarget),
    /// The lock file of a server, with its sealed data directory; `None`: the server is plain.
    Lock(Option<&'static Root>),
    /// The file is sealed, or will be sealed.
    Seal(SealTarget),
    /// The call fails with this error number; the reason is already logged.
    Refuse(Errno),
}

/// A file that is sealed or will be sealed.
#[derive(Clone, Copy)]
pub struct SealTarget {
    /// How the file is sealed if it is empty; `None`: an empty file stays plain.
    pub sealing: Option<Sealing>,
    /// An existing plain file is read as it is.
    pub reads_plain: bool,
    /// The data directory whose keys are tried first.
    pub root: Option<&'static Root>,
    /// The class of the file; `None`: the file lies outside every data directory.
    pub class: Option<Class>,
}

impl SealTarget {
    /// The class that the file's counters belong to.
    pub fn counted(&self) -> ClassIndex {
        self.class.map_or(ClassIndex::OUTSIDE, ClassIndex::of)
    }
}

/// The facts about a path, opened with these flags of `open(2)`.
fn facts(path: &[u8], flags: c_int, location: Option<&Location>) -> Facts {
    let creates = flags & libc::O_CREAT != 0;
    let class = location.map(|location| location.class);
    let copy = match class {
        Some(Class::Unknown) => copies::kind_of(path),
        // A copy is sealed with the keys of the data directory that this process works on.
        None if creates => {
            copies::kind_of_new(path, flags).filter(|_| datadir::primary_root().is_some())
        }
        _ => None,
    };
    Facts {
        role: program::role(),
        class,
        is_lock_file: datadir::base_name(path) == b"postmaster.pid",
        creates,
        truncates: flags & libc::O_TRUNC != 0,
        is_half_converted: location.is_some_and(|location| location.root.is_half_converted()),
        is_guarded: guard::is_met(),
        copy,
    }
}

/// The verdict on the file at a path, opened with these flags of `open(2)`.
fn verdict(path: &[u8], flags: c_int, location: Option<&Location>) -> Verdict {
    decide(&facts(path, flags, location))
}

/// Whether the file at a path in a data directory must be sealed: a plain file at this path is
/// refused.
pub fn must_be_sealed(path: &[u8], location: &Location) -> bool {
    matches!(verdict(path, 0, Some(location)), Verdict::Seal { reads_plain: false, .. })
}

/// What to do with the file at a path, opened with these flags of `open(2)`.
pub fn plan(path: &[u8], flags: c_int) -> Plan {
    follow(path, flags).unwrap_or_else(Plan::Refuse)
}

fn follow(path: &[u8], flags: c_int) -> Result<Plan, Errno> {
    let mut location = datadir::locate(path);
    if location.is_none() && flags & libc::O_CREAT != 0 {
        copies::before_creation(path, copies::Creation::File)?;
        // `before_creation` may have just made the keyring of the data directory.
        location = datadir::locate(path);
    }
    let verdict = verdict(path, flags, location.as_ref());
    let root = location.as_ref().map(|location| location.root);
    let class = location.as_ref().map(|location| location.class);
    match verdict {
        Verdict::Pass => Ok(Plan::Pass(class)),
        Verdict::PassWithKeys => {
            root.map(load::of).transpose()?;
            Ok(Plan::Pass(class))
        }
        Verdict::AsFound => {
            Ok(Plan::AsFound(SealTarget { sealing: None, reads_plain: true, root, class }))
        }
        Verdict::Lock => Ok(Plan::Lock(root)),
        Verdict::Seal { copy, reads_plain } => {
            let (sealing, root) = match (copy, location) {
                (None, Some(Location { root, class, place })) => {
                    (sealing_of(root, class, place)?, root)
                }
                (Some(kind), _) => {
                    let root = root.or_else(datadir::primary_root).ok_or(libc::EACCES)?;
                    (Some(sealing_of_copy(root, kind)?), root)
                }
                (None, None) => return Err(libc::EACCES),
            };
            Ok(Plan::Seal(SealTarget { sealing, reads_plain, root: Some(root), class }))
        }
        Verdict::Refuse(refusal) => Err(tell(refusal, path, root)),
    }
}

/// Logs why a call is refused, and returns its error number. A server that must not start ends.
fn tell(refusal: Refusal, path: &[u8], root: Option<&Root>) -> Errno {
    match refusal {
        Refusal::HalfConverted => {
            let errno = root.map_or(libc::EACCES, load::refuse_half_converted);
            program::end_server(errno);
            errno
        }
        Refusal::NoGuard => {
            guard::tell_missing();
            program::end_server(libc::EACCES);
            libc::EACCES
        }
        Refusal::OfClass(reason) => {
            log::line(format_args!("ERROR: \"{}\": {reason}", Shown(path)));
            libc::EACCES
        }
    }
}

/// How a file of this class and place below a root is sealed; `None` if its class is not sealed.
pub fn sealing_of(
    root: &'static Root,
    class: Class,
    place: Place,
) -> Result<Option<Sealing>, Errno> {
    let Policy::Seal { scope, .. } = class.policy() else { return Ok(None) };
    let keys = load::of(root)?;
    let Some(form) = class.form(place, keys.suite()) else { return Ok(None) };
    let is_ephemeral = scope == KeyScope::Ephemeral && keys.get(Generation::EPHEMERAL).is_some();
    Ok(Some(Sealing { keys, form, is_ephemeral, class: Some(class) }))
}

/// How a copy of a sealed file is sealed. The copy may have any name.
fn sealing_of_copy(root: &'static Root, kind: FileKind) -> Result<Sealing, Errno> {
    let keys = load::of(root)?;
    let (suite, layout) = keys.suite().for_kind(kind);
    let mut form = Form::anywhere(suite, layout);
    if kind == FileKind::Wal {
        form.place = pgseal_pgdata::WAL;
    }
    Ok(Sealing { keys, form, is_ephemeral: false, class: None })
}

/// Whether the real call must not work on the file at this path: the file is sealed, would be
/// sealed if it were created there, or is refused.
pub fn would_seal(path: &CStr) -> bool {
    if path.is_empty() {
        return false;
    }
    let bytes = path.to_bytes();
    match verdict(bytes, 0, datadir::locate(bytes).as_ref()) {
        Verdict::Seal { .. } | Verdict::Refuse(_) => true,
        Verdict::Pass | Verdict::PassWithKeys | Verdict::AsFound | Verdict::Lock => {
            head::looks_sealed(path)
        }
    }
}
