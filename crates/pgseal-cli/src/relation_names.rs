//! The names of the relations that files belong to, from the catalogs of a data directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgseal_core::{KeySet, OnDamage, Opened, PlainOff, Scratch, SealedFile};
use pgseal_pgdata::{PlainFiles, Relation, catalog_version, relation_of, segment_of};

use crate::manifest;
use crate::storage::ReadOnly;

/// The most relations that are looked up: each takes as long as reading `pg_class`.
const LIMIT: usize = 200;

/// Looks up names, and remembers them.
pub struct RelationNames<'a> {
    catalogs: Catalogs<'a>,
    /// `None`: `pg_control` cannot be read, so there are no names.
    catalog_version: Option<u32>,
    known: HashMap<String, Option<Relation>>,
}

impl<'a> RelationNames<'a> {
    /// Names of the data directory at `root`, whose files open with these keys.
    pub fn new(root: &'a Path, keys: &'a KeySet) -> RelationNames<'a> {
        let control = manifest::control(root).unwrap_or_default();
        RelationNames {
            catalogs: Catalogs { root, keys, open: None, scratch: Scratch::new() },
            catalog_version: catalog_version(&control),
            known: HashMap::new(),
        }
    }

    /// The relation of a file, given by its path in the data directory. `None`: no catalog on disk
    /// names one, or so many names were looked up already that it would take long.
    pub fn of(&mut self, rel: &str) -> Option<Relation> {
        let (first, _) = segment_of(rel.as_bytes());
        let first = String::from_utf8_lossy(first).into_owned();
        if let Some(known) = self.known.get(&first) {
            return *known;
        }
        if self.known.len() >= LIMIT {
            return None;
        }
        let found = relation_of(&mut self.catalogs, first.as_bytes(), self.catalog_version?);
        self.known.insert(first, found);
        found
    }
}

/// The catalogs of a data directory, of which one is open at a time.
struct Catalogs<'a> {
    root: &'a Path,
    keys: &'a KeySet,
    open: Option<Catalog>,
    scratch: Scratch,
}

struct Catalog {
    rel: Vec<u8>,
    /// `None`: it does not open.
    file: Option<(ReadOnly, Box<SealedFile>)>,
}

fn open(path: &Path, keys: &KeySet) -> Option<(ReadOnly, Box<SealedFile>)> {
    let file = ReadOnly::open(path, true).ok()?;
    match SealedFile::open(&file, keys) {
        Ok(Opened::Sealed(sealed)) => Some((file, sealed)),
        _ => None,
    }
}

impl PlainFiles for Catalogs<'_> {
    fn read(&mut self, rel: &[u8], plain_off: u64, buf: &mut [u8]) -> usize {
        if self.open.as_ref().is_none_or(|catalog| catalog.rel != rel) {
            let file = open(&self.root.join(OsStr::from_bytes(rel)), self.keys);
            self.open = Some(Catalog { rel: rel.to_vec(), file });
        }
        let Some(Catalog { file: Some((file, sealed)), .. }) = &mut self.open else { return 0 };
        let outcome =
            sealed.read_at(file, &mut self.scratch, buf, PlainOff(plain_off), OnDamage::ZeroPage);
        outcome.map_or(0, |outcome| outcome.len)
    }
}
