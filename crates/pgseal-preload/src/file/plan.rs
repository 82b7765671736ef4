//! What a call does with the file at a path: the facts are gathered here, [`decide`] has the
//! verdict, and the keys that it takes are fetched.

use core::ffi::{CStr, c_int};

use pgseal_core::{FileKind, Form, Generation, Place};
use pgseal_pgdata::counters::ClassIndex;
use pgseal_pgdata::{Class, KeyScope, Policy};

use crate::file::decide::{Facts, Refusal, Verdict, decide};
use crate::file::guard;
use crate::file::want::Want;
use crate::keys::copies;
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::real::Errno;
use crate::place::datadir::{self, Location, Root};
use crate::place::head;
use crate::place::program;

/// A verdict with what a call needs to follow it.
pub enum Plan {
    /// The real call, unchanged. With what the file is in a data directory, if it is in one.
    Pass(Option<Class>),
    /// The file is opened as sealed if its first bytes say that it is, else by the real call.
    AsFound(Ours),
    /// The lock file of a server, and its data directory; without one, of a plain server.
    Lock(Option<&'static Root>),
    /// A sealed file, or one that will be.
    Seal(Ours),
    /// The call fails; the line in the log is written.
    Refuse(Errno),
}

/// A file that is sealed or will be.
#[derive(Clone, Copy)]
pub struct Ours {
    /// How it is sealed if it is empty; without it an empty file stays plain.
    pub want: Option<Want>,
    /// A plain file that is there is read as it is.
    pub reads_plain: bool,
    /// The data directory whose keys are asked first.
    pub root: Option<&'static Root>,
    /// What it is to PostgreSQL; without a class it lies outside every data directory.
    pub class: Option<Class>,
}

impl Ours {
    /// Under which class it counts.
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

/// What to do with the file at a path, opened with these flags of `open(2)`.
pub fn plan(path: &[u8], flags: c_int) -> Plan {
    follow(path, flags).unwrap_or_else(Plan::Refuse)
}

fn follow(path: &[u8], flags: c_int) -> Result<Plan, Errno> {
    let mut location = datadir::locate(path);
    if location.is_none() && flags & libc::O_CREAT != 0 {
        copies::before_creation(path, copies::Made::File)?;
        // The data directory may have been made just now.
        location = datadir::locate(path);
    }
    let verdict = decide(&facts(path, flags, location.as_ref()));
    let root = location.as_ref().map(|location| location.root);
    let class = location.as_ref().map(|location| location.class);
    match verdict {
        Verdict::Pass => Ok(Plan::Pass(class)),
        Verdict::PassWithKeys => {
            root.map(load::of).transpose()?;
            Ok(Plan::Pass(class))
        }
        Verdict::AsFound => Ok(Plan::AsFound(Ours { want: None, reads_plain: true, root, class })),
        Verdict::Lock => Ok(Plan::Lock(root)),
        Verdict::Seal { copy, reads_plain } => {
            let (want, root) = match (copy, location) {
                (None, Some(Location { root, class, place })) => {
                    (wanted(root, class, place)?, root)
                }
                (Some(kind), _) => {
                    let root = root.or_else(datadir::primary_root).ok_or(libc::EACCES)?;
                    (Some(wanted_copy(root, kind)?), root)
                }
                (None, None) => return Err(libc::EACCES),
            };
            Ok(Plan::Seal(Ours { want, reads_plain, root: Some(root), class }))
        }
        Verdict::Refuse(refusal) => Err(tell(refusal, path, root)),
    }
}

/// Writes why a call is refused, and gives the error number for it.
fn tell(refusal: Refusal, path: &[u8], root: Option<&Root>) -> Errno {
    match refusal {
        Refusal::HalfConverted => {
            root.and_then(|root| root.expect_whole().err()).unwrap_or(libc::EACCES)
        }
        Refusal::NoGuard => guard::tell_missing(),
        Refusal::OfClass(reason) => {
            log::line(format_args!("ERROR: \"{}\": {reason}", Shown(path)));
            libc::EACCES
        }
    }
}

/// How the file of this class and place below a root is sealed; `None` if files of its class are
/// not.
pub fn wanted(root: &'static Root, class: Class, place: Place) -> Result<Option<Want>, Errno> {
    let Policy::Seal { scope, .. } = class.policy() else { return Ok(None) };
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

/// Whether the real call must not work on the file at this path: it is sealed, would be if it were
/// made there, or is refused.
pub fn would_seal(path: &CStr) -> bool {
    if path.is_empty() {
        return false;
    }
    let bytes = path.to_bytes();
    match decide(&facts(bytes, 0, datadir::locate(bytes).as_ref())) {
        Verdict::Seal { .. } | Verdict::Refuse(_) => true,
        Verdict::Pass | Verdict::PassWithKeys | Verdict::AsFound | Verdict::Lock => {
            head::looks_sealed(path)
        }
    }
}
