//! The name of a file in a message: its path, and the table or index that it belongs to.
//!
//! The name of the relation is read from the catalogs on disk (`pgseal_pgdata::relation_of`), which
//! are opened here without the hooked calls. So it can be had in every process of the server, at
//! any time, and without one of PostgreSQL's own locks. It is a hint: the catalogs are not compared
//! with their places and with the manifest.

use core::fmt;
use std::sync::Mutex;

use libc::{O_CLOEXEC, O_RDONLY};
use pgseal_core::{OnDamage, Opened, PlainOff, Scratch, SealedFile, memory};
use pgseal_pgdata::{PlainFiles, Relation, RelationKind, WatchedFiles};

use crate::file::storage::FdStorage;
use crate::keys::renewal;
use crate::os::log::Shown;
use crate::os::sys::{self, Fd};
use crate::place::datadir::{self, Root};

/// A file, as messages show it: `"base/5/16384" (table public.orders of database app)`.
pub struct Named<'a> {
    path: &'a [u8],
    relation: Option<Relation>,
}

/// A look-up and what it found.
struct LookUp {
    path: Box<[u8]>,
    relation: Option<Relation>,
}

/// The last look-up: many pages of one file may be damaged.
static LAST: Mutex<Option<LookUp>> = Mutex::new(None);

impl<'a> Named<'a> {
    /// Looks up the relation of a file.
    pub fn of(path: &'a [u8]) -> Named<'a> {
        Named { path, relation: relation(path) }
    }

    /// Whether the file belongs to a relation that the catalogs know.
    pub fn is_relation(&self) -> bool {
        self.relation.is_some()
    }

    /// What brings a damaged relation back.
    pub fn remedy(&self) -> impl fmt::Display + '_ {
        Remedy(self.relation.as_ref())
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Shown(self.path))?;
        match &self.relation {
            Some(relation) => write!(f, " ({relation})"),
            None => Ok(()),
        }
    }
}

struct Remedy<'a>(Option<&'a Relation>);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(index) if index.kind() == RelationKind::Index => {
                write!(f, "make it anew with: REINDEX INDEX {}", index.sql_name())
            }
            _ => f.write_str("restore it from a backup or a standby, or drop it"),
        }
    }
}

fn relation(path: &[u8]) -> Option<Relation> {
    // Whoever holds the lock is in a signal handler or another thread; the name is then left out.
    let mut last = LAST.try_lock().ok()?;
    if let Some(known) = last.as_ref().filter(|known| *known.path == *path) {
        return known.relation;
    }
    let relation = look_up(path);
    *last = memory::copied(path).ok().map(|path| LookUp { path, relation });
    relation
}

fn look_up(path: &[u8]) -> Option<Relation> {
    in_catalogs(path, |catalogs, rel, control| {
        pgseal_pgdata::relation_of(catalogs, rel, pgseal_pgdata::catalog_version(control)?)
    })?
}

/// Whether the file belongs to no relation that a committed transaction made
/// ([`pgseal_pgdata::is_orphan`]).
pub fn is_orphan(path: &[u8]) -> bool {
    in_catalogs(path, pgseal_pgdata::is_orphan).unwrap_or(false)
}

/// Looks something up in the catalogs: with the path below the data directory, and the content of
/// `pg_control`.
fn in_catalogs<T>(path: &[u8], look: impl FnOnce(&mut Catalogs, &[u8], &[u8]) -> T) -> Option<T> {
    let root = datadir::locate(path)?.root;
    root.loaded_keys()?;
    let control = datadir::control_file(root)?;
    let mut scratch = Scratch::new();
    scratch.reserve().ok()?;
    let mut catalogs = Catalogs { root, open: None, scratch, failed: false };
    datadir::within(root, path, |rel| look(&mut catalogs, rel, &control))
}

/// The catalogs of a data directory, of which one is open at a time.
struct Catalogs {
    root: &'static Root,
    open: Option<Catalog>,
    scratch: Scratch,
    /// Whether a read failed, or met a damaged page.
    failed: bool,
}

struct Catalog {
    rel: Box<[u8]>,
    fd: Fd,
    file: Box<SealedFile>,
}

impl Catalogs {
    fn open(&mut self, rel: &[u8]) -> Option<(&mut Catalog, &mut Scratch)> {
        if self.open.as_ref().is_none_or(|open| *open.rel != *rel) {
            self.open = None;
            self.open = Some(Catalog::open(self.root, rel)?);
        }
        Some((self.open.as_mut()?, &mut self.scratch))
    }
}

impl Catalog {
    fn open(root: &'static Root, rel: &[u8]) -> Option<Catalog> {
        let keys = root.loaded_keys()?;
        renewal::catch_up(keys);
        let path = datadir::join(root.path(), rel);
        let fd = sys::open(&sys::c_path(&path).ok()?, O_RDONLY | O_CLOEXEC, 0).ok()?;
        let Ok(Opened::Sealed(file)) = SealedFile::open(&FdStorage::new(fd.0), keys) else {
            return None;
        };
        Some(Catalog { rel: memory::copied(rel).ok()?, fd, file })
    }
}

impl PlainFiles for Catalogs {
    fn read(&mut self, rel: &[u8], plain_off: u64, buf: &mut [u8]) -> usize {
        let Some((catalog, scratch)) = self.open(rel) else {
            self.failed = true;
            return 0;
        };
        let storage = FdStorage::new(catalog.fd.0);
        let outcome =
            catalog.file.read_at(&storage, scratch, buf, PlainOff(plain_off), OnDamage::ZeroPage);
        self.failed |= outcome.as_ref().map_or(true, |outcome| outcome.first_damaged.is_some());
        outcome.map_or(0, |outcome| outcome.len)
    }
}

impl WatchedFiles for Catalogs {
    fn has_failed(&mut self) -> bool {
        core::mem::take(&mut self.failed)
    }
}
