//! Which relation a file belongs to, as the catalogs on disk say.
//!
//! A message about a damaged file names a table or an index then, and not only `base/5/16384`. The
//! catalogs are read as files: `pg_filenode.map`, `pg_class`, `pg_namespace` and `pg_database`. A
//! relation that was made after the last checkpoint may be in the memory of the server only, and a
//! catalog may be damaged itself: then there is no name.

use core::fmt;

use crate::class::Class;
use crate::classify::classify;
use crate::listed::segment_of;
use crate::names::is_oid;

mod orphan;

pub use orphan::{WatchedFiles, is_orphan};

/// The length of a page in bytes (`BLCKSZ`).
const PAGE_LEN: usize = 8192;
/// The length of a name in a catalog, with its terminating zero byte (`NAMEDATALEN`).
const NAME_LEN: usize = 64;
/// The length of a relation map from 16 on; that of 15 has 512 bytes (`RelMapFile`,
/// `relmapper.c`).
const MAP_LEN: usize = 524;
/// The first bytes of a relation map (`RELMAPPER_FILEMAGIC`).
const MAP_MAGIC: u32 = 0x0059_2717;
/// The most entries that a relation map has (`MAX_MAPPINGS`).
const MAX_MAPPINGS: usize = 64;
/// The most pages of a segment of a relation (`RELSEG_SIZE`); further segments of a catalog are not
/// read.
const MAX_PAGES: u64 = 131_072;
/// The first catalog version of 18, whose `pg_class` has one more column before `relkind`.
const CATALOG_VERSION_18: u32 = 202_500_000;

const PG_CLASS: u32 = 1259;
const PG_DATABASE: u32 = 1262;
const PG_NAMESPACE: u32 = 2615;
/// `PG_CATALOG_NAMESPACE`.
const PG_CATALOG: u32 = 11;

/// Offsets in a row of `pg_class` (`catalog/pg_class.h`); those of oid and name are the same in
/// `pg_namespace` and `pg_database`.
const OID: usize = 0;
const NAME: usize = 4;
const NAMESPACE: usize = 68;
const FILE_NUMBER: usize = 88;
const KIND: usize = 115;

/// What a name is looked up in.
pub trait PlainFiles {
    /// Reads plain bytes of the file at a path relative to the root of the data directory. Returns
    /// the number of bytes: fewer than `buf` has at the end of the file, 0 behind it and if the
    /// file cannot be read. A damaged page reads as zeros.
    fn read(&mut self, rel: &[u8], plain_off: u64, buf: &mut [u8]) -> usize;
}

/// A name in a catalog: 1 to 63 bytes in the encoding of its database.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identifier {
    bytes: [u8; NAME_LEN],
    len: usize,
}

/// What a relation is (`relkind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// `i`: an index.
    Index,
    /// `m`: a materialised view.
    MaterialisedView,
    /// `S`: a sequence.
    Sequence,
    /// `r`, and whatever else has rows.
    Table,
    /// `t`: the long values of a table.
    Toast,
}

/// The relation that a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    kind: RelationKind,
    schema: Identifier,
    name: Identifier,
    /// `None`: the relation is shared by all databases, or `pg_database` cannot be read.
    database: Option<Identifier>,
}

/// One row of a catalog that is looked for.
struct Row {
    oid: u32,
    name: Identifier,
    namespace: u32,
    file_number: u32,
    kind: u8,
}

impl Relation {
    /// What the relation is.
    #[must_use]
    pub const fn kind(&self) -> RelationKind {
        self.kind
    }

    /// The name as it is written in SQL: schema and name, each quoted if need be. That of a TOAST
    /// table is the name of its table.
    #[must_use]
    pub fn sql_name(&self) -> impl fmt::Display + '_ {
        SqlName(self)
    }
}

struct SqlName<'a>(&'a Relation);

impl fmt::Display for SqlName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.schema, self.0.name)
    }
}

/// As in `table public.orders of database app`.
impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RelationKind::Index => "index",
            RelationKind::MaterialisedView => "materialized view",
            RelationKind::Sequence => "sequence",
            RelationKind::Table => "table",
            RelationKind::Toast => "TOAST of table",
        };
        write!(f, "{kind} {}", self.sql_name())?;
        match &self.database {
            Some(database) => write!(f, " of database {database}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Identifier {
    const fn literal(name: &[u8]) -> Identifier {
        let mut bytes = [0; NAME_LEN];
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name[at];
            at += 1;
        }
        Identifier { bytes, len: name.len() }
    }

    /// A name as it is in a row; `None` if it is empty.
    fn of(bytes: &[u8]) -> Option<Identifier> {
        let bytes: &[u8; NAME_LEN] = bytes.first_chunk()?;
        let len = bytes.iter().position(|byte| *byte == 0)?;
        (len > 0).then_some(Identifier { bytes: *bytes, len })
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether SQL takes the name as it is, if it is no keyword.
    fn is_simple(&self) -> bool {
        let is_letter = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
        self.as_bytes().first().is_some_and(is_letter)
            && self.as_bytes().iter().all(|byte| is_letter(byte) || byte.is_ascii_digit())
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;

        let is_simple = self.is_simple();
        if !is_simple {
            f.write_char('"')?;
        }
        for chunk in self.as_bytes().utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    // No line of the log may be forged with a name.
                    _ if letter.is_control() => f.write_char('?')?,
                    '"' => f.write_str("\"\"")?,
                    _ => f.write_char(letter)?,
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_char('?')?;
            }
        }
        if is_simple { Ok(()) } else { f.write_char('"') }
    }
}

/// Looks up the relation of the file at `rel`, a path relative to the root of a data directory.
/// `catalog_version`: that of the cluster ([`crate::catalog_version`]).
///
/// Reads the catalogs from their beginning, so it takes time that grows with the number of
/// relations.
pub fn relation_of(
    files: &mut impl PlainFiles,
    rel: &[u8],
    catalog_version: u32,
) -> Option<Relation> {
    let (directory, number) = place_of(rel)?;
    let mut catalogs = Catalogs { files, home: Path::new(), catalog_version, page: [0; PAGE_LEN] };
    let database = catalogs.enter(directory)?;

    let mapped = catalogs.oid_of_mapped(directory, number);
    let classes = catalogs.mapped_path(PG_CLASS)?;
    let wanted = |row: &Row| match mapped {
        Some(oid) => row.oid == oid,
        None => row.file_number == number && row.file_number != 0,
    };
    let mut row = catalogs.row(&classes, &wanted)?;
    let mut kind = match row.kind {
        b'i' => RelationKind::Index,
        b'm' => RelationKind::MaterialisedView,
        b'S' => RelationKind::Sequence,
        b't' => RelationKind::Toast,
        _ => RelationKind::Table,
    };
    if kind == RelationKind::Toast {
        // pg_toast_16384: the table has the OID 16384.
        let table = row.name.as_bytes().strip_prefix(b"pg_toast_").and_then(number_of);
        match table.and_then(|oid| catalogs.row(&classes, &|row: &Row| row.oid == oid)) {
            Some(table) => row = table,
            None => kind = RelationKind::Table,
        }
    }
    let schema = catalogs.schema(&classes, row.namespace)?;
    let database = database.and_then(|oid| catalogs.database(oid));
    Some(Relation { kind, schema, name: row.name, database })
}

/// Directory and file number of a file of a relation; `None` for every other file.
fn place_of(rel: &[u8]) -> Option<(&[u8], u32)> {
    let Class::Relation { temporary: false, .. } = classify(rel) else { return None };
    let (first, _) = segment_of(rel);
    let slash = first.iter().rposition(|byte| *byte == b'/')?;
    let name = first.get(slash + 1..)?;
    Some((first.get(..slash)?, number_of(name.split(|byte| *byte == b'_').next()?)?))
}

/// A path relative to the root of a data directory.
#[derive(Clone, Copy)]
struct Path {
    bytes: [u8; 96],
    len: usize,
}

impl Path {
    const fn new() -> Path {
        Path { bytes: [0; 96], len: 0 }
    }

    fn joined(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path::new();
        for part in parts {
            let end = path.len + part.len();
            path.bytes.get_mut(path.len..end)?.copy_from_slice(part);
            path.len = end;
        }
        Some(path)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The catalogs of one database.
struct Catalogs<'a, F> {
    files: &'a mut F,
    /// The directory of the database's own catalogs.
    home: Path,
    catalog_version: u32,
    page: [u8; PAGE_LEN],
}

impl<F: PlainFiles> Catalogs<'_, F> {
    /// Finds the catalogs that know the files of a directory. Returns the database; `None` for
    /// shared relations, which the catalogs of any database know, for example of `template1`.
    fn enter(&mut self, directory: &[u8]) -> Option<Option<u32>> {
        if directory == b"global" {
            self.home = Path::joined(&[b"base/1"])?;
            return Some(None);
        }
        let last = directory.rsplit(|byte| *byte == b'/').next()?;
        let database = number_of(last)?;
        // The tablespace of a relation need not be that of its database.
        for home in [Path::joined(&[directory])?, Path::joined(&[b"base/", last])?] {
            self.home = home;
            if self.mapped_path(PG_CLASS).is_some() {
                return Some(Some(database));
            }
        }
        None
    }

    /// Looks into the relation map of a directory.
    fn mapping<T>(&mut self, directory: &[u8], found: impl Fn(u32, u32) -> Option<T>) -> Option<T> {
        let path = Path::joined(&[directory, b"/pg_filenode.map"])?;
        let mut map = [0; MAP_LEN];
        let got = self.files.read(path.as_bytes(), 0, &mut map);
        let map = map.get(..got)?;
        if u32_at(map, 0)? != MAP_MAGIC {
            return None;
        }
        let count = usize::try_from(u32_at(map, 4)?).ok()?.min(MAX_MAPPINGS);
        (0..count).find_map(|at| found(u32_at(map, 8 + at * 8)?, u32_at(map, 12 + at * 8)?))
    }

    /// The OID of a mapped catalog, whose row in `pg_class` does not name its file.
    fn oid_of_mapped(&mut self, directory: &[u8], number: u32) -> Option<u32> {
        self.mapping(directory, |oid, file| (file == number).then_some(oid))
    }

    /// The file of a mapped catalog of the database.
    fn mapped_path(&mut self, catalog: u32) -> Option<Path> {
        let home = self.home;
        self.mapped_path_in(home, catalog)
    }

    fn mapped_path_in(&mut self, home: Path, catalog: u32) -> Option<Path> {
        let number = self.mapping(home.as_bytes(), |oid, file| (oid == catalog).then_some(file))?;
        path_in(&home, number)
    }

    fn schema(&mut self, classes: &Path, oid: u32) -> Option<Identifier> {
        if oid == PG_CATALOG {
            return Some(const { Identifier::literal(b"pg_catalog") });
        }
        let file = self.row(classes, &|row: &Row| row.oid == PG_NAMESPACE)?.file_number;
        let path = path_in(&self.home, file)?;
        self.row(&path, &|row: &Row| row.oid == oid).map(|row| row.name)
    }

    fn database(&mut self, oid: u32) -> Option<Identifier> {
        let path = self.mapped_path_in(Path::joined(&[b"global"])?, PG_DATABASE)?;
        self.row(&path, &|row: &Row| row.oid == oid).map(|row| row.name)
    }

    /// The newest version of a row, as far as the page says: one that no transaction has deleted,
    /// else the last one of those that may have been deleted.
    fn row(&mut self, path: &Path, is_wanted: &dyn Fn(&Row) -> bool) -> Option<Row> {
        let mut found = None;
        for page in 0..MAX_PAGES {
            let off = page * PAGE_LEN as u64;
            if self.files.read(path.as_bytes(), off, &mut self.page) < PAGE_LEN {
                break;
            }
            for tuple in Tuples::of(&self.page) {
                let row = Row::of(tuple.data, self.catalog_version);
                let Some(row) = row.filter(is_wanted) else { continue };
                if tuple.is_live {
                    return Some(row);
                }
                found = Some(row);
            }
        }
        found
    }
}

fn path_in(home: &Path, number: u32) -> Option<Path> {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = number;
    while rest > 0 {
        at -= 1;
        *digits.get_mut(at)? = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
    }
    Path::joined(&[home.as_bytes(), b"/", digits.get(at..)?])
}

fn number_of(digits: &[u8]) -> Option<u32> {
    if !is_oid(digits) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Row {
    /// A row of `pg_class`, or of a catalog that begins with OID and name as `pg_class` does.
    fn of(tuple: &[u8], catalog_version: u32) -> Option<Row> {
        let kind = if catalog_version < CATALOG_VERSION_18 { KIND } else { KIND + 4 };
        Some(Row {
            oid: u32_at(tuple, OID)?,
            name: Identifier::of(tuple.get(NAME..)?)?,
            namespace: u32_at(tuple, NAMESPACE).unwrap_or(0),
            file_number: u32_at(tuple, FILE_NUMBER).unwrap_or(0),
            kind: tuple.get(kind).copied().unwrap_or(0),
        })
    }
}

/// A tuple of a page that its page does not show to be aborted.
struct Tuple<'a> {
    /// Whether no transaction has deleted it.
    is_live: bool,
    /// The transaction that made it; `None` if the page shows that this one committed.
    made_by: Option<u32>,
    data: &'a [u8],
}

/// The tuples of a page of a table (`storage/bufpage.h`, `access/htup_details.h`).
struct Tuples<'a> {
    page: &'a [u8; PAGE_LEN],
    next: usize,
    end: usize,
}

impl<'a> Tuples<'a> {
    /// Where the line pointers begin (`SizeOfPageHeaderData`).
    const LINES: usize = 24;

    fn of(page: &'a [u8; PAGE_LEN]) -> Tuples<'a> {
        let lower = u16_at(page, 12).unwrap_or(0);
        Tuples { page, next: Self::LINES, end: usize::from(lower) }
    }

    /// The tuple of a line pointer: 15 bits of offset, 2 of flags (1: normal), 15 of length.
    fn tuple(&self, line: u32) -> Option<Tuple<'a>> {
        if line >> 15 & 3 != 1 {
            return None;
        }
        let off = usize::try_from(line & 0x7fff).ok()?;
        let len = usize::try_from(line >> 17).ok()?;
        let tuple = self.page.get(off..off.checked_add(len)?)?;
        let (mask, data) = (u16_at(tuple, 20)?, usize::from(*tuple.get(22)?));
        const XMIN: u16 = 0x0300;
        const XMIN_COMMITTED: u16 = 0x0100;
        const XMIN_INVALID: u16 = 0x0200;
        const XMAX_LOCK_ONLY: u16 = 0x0080;
        const XMAX_INVALID: u16 = 0x0800;
        if mask & XMIN == XMIN_INVALID {
            return None;
        }
        let is_live = mask & (XMAX_INVALID | XMAX_LOCK_ONLY) != 0 || u32_at(tuple, 4)? == 0;
        let made_by = if mask & XMIN_COMMITTED == 0 { Some(u32_at(tuple, 0)?) } else { None };
        Some(Tuple { is_live, made_by, data: tuple.get(data..)? })
    }
}

impl<'a> Iterator for Tuples<'a> {
    type Item = Tuple<'a>;

    fn next(&mut self) -> Option<Tuple<'a>> {
        while self.next + 4 <= self.end {
            let line = u32_at(self.page, self.next)?;
            self.next += 4;
            if let Some(tuple) = self.tuple(line) {
                return Some(tuple);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::string::{String, ToString as _};
    use std::vec::Vec;

    use super::*;

    pub(super) const LIVE: u16 = 0x0900;
    const DELETED: u16 = 0x0500;
    const ABORTED: u16 = 0x0A00;
    pub(super) const V15: u32 = 202_209_061;
    pub(super) const V18: u32 = 202_506_291;

    /// The files of a cluster.
    #[derive(Default)]
    pub(super) struct Files {
        pub(super) all: BTreeMap<String, Vec<u8>>,
        /// Whether a file was read that is not there.
        pub(super) failed: bool,
    }

    impl PlainFiles for Files {
        fn read(&mut self, rel: &[u8], plain_off: u64, buf: &mut [u8]) -> usize {
            let rel = str::from_utf8(rel).unwrap();
            let Some(bytes) = self.all.get(rel) else {
                self.failed = true;
                return 0;
            };
            let rest = bytes.get(plain_off as usize..).unwrap_or_default();
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            len
        }
    }

    impl Files {
        fn map(&mut self, directory: &str, mappings: &[(u32, u32)]) {
            let mut map = Vec::from(MAP_MAGIC.to_le_bytes());
            map.extend((mappings.len() as u32).to_le_bytes());
            for (oid, file) in mappings {
                map.extend(oid.to_le_bytes());
                map.extend(file.to_le_bytes());
            }
            map.resize(MAP_LEN, 0);
            self.all.insert(std::format!("{directory}/pg_filenode.map"), map);
        }

        fn name_of(&mut self, rel: &str, version: u32) -> Option<String> {
            relation_of(self, rel.as_bytes(), version).map(|relation| relation.to_string())
        }
    }

    pub(super) fn row(
        oid: u32,
        name: &str,
        schema: u32,
        file: u32,
        kind: u8,
        version: u32,
    ) -> Vec<u8> {
        let mut row = std::vec![0; 140];
        row[..4].copy_from_slice(&oid.to_le_bytes());
        row[4..4 + name.len()].copy_from_slice(name.as_bytes());
        row[68..72].copy_from_slice(&schema.to_le_bytes());
        row[88..92].copy_from_slice(&file.to_le_bytes());
        row[if version >= V18 { 119 } else { 115 }] = kind;
        row
    }

    /// A page with these rows; behind each are the bits of its header.
    pub(super) fn page(rows: &[(Vec<u8>, u16)]) -> Vec<u8> {
        let mut page = std::vec![0; PAGE_LEN];
        let (mut line, mut at) = (24, PAGE_LEN);
        for (row, mask) in rows {
            let len = 24 + row.len();
            at -= len;
            page[at] = 1;
            page[at + 4] = 1;
            page[at + 20..at + 22].copy_from_slice(&mask.to_le_bytes());
            page[at + 22] = 24;
            page[at + 24..at + len].copy_from_slice(row);
            let pointer = at as u32 | 1 << 15 | (len as u32) << 17;
            page[line..line + 4].copy_from_slice(&pointer.to_le_bytes());
            line += 4;
        }
        page[12..14].copy_from_slice(&(line as u16).to_le_bytes());
        page
    }

    pub(super) fn cluster(version: u32) -> Files {
        let mut files = Files::default();
        files.map("global", &[(1262, 1262), (1260, 1260)]);
        files.map("base/1", &[(1259, 1259)]);
        files.map("base/5", &[(1259, 900)]);
        let row = |oid, name, schema, file, kind| row(oid, name, schema, file, kind, version);
        let shared = page(&[(row(1260, "pg_authid", 11, 0, b'r'), LIVE)]);
        files.all.insert("base/1/1259".into(), shared);
        let first = page(&[
            (row(1259, "pg_class", 11, 0, b'r'), LIVE),
            (row(2615, "pg_namespace", 11, 901, b'r'), LIVE),
            (row(16384, "old_name", 2200, 16384, b'r'), DELETED),
            (row(16384, "never_committed", 2200, 16384, b'r'), ABORTED),
            (row(16390, "Order \"x\"", 2200, 16400, b'i'), LIVE),
        ]);
        let second = page(&[
            (row(16384, "orders", 2200, 16384, b'r'), LIVE),
            (row(16387, "pg_toast_16384", 99, 16387, b't'), LIVE),
            (row(16388, "dropped", 2200, 16388, b'r'), DELETED),
            (row(16389, "a\nline", 2200, 16389, b'S'), LIVE),
        ]);
        files.all.insert("base/5/900".into(), [first, second].concat());
        let schemas = page(&[(row(2200, "public", 0, 0, 0), LIVE)]);
        files.all.insert("base/5/901".into(), schemas);
        let databases = page(&[(row(5, "app", 0, 0, 0), LIVE)]);
        files.all.insert("global/1262".into(), databases);
        files
    }

    #[test]
    fn files_have_the_names_of_their_relations() {
        for version in [V15, V18] {
            let mut files = cluster(version);
            for (file, wanted) in [
                ("base/5/16384", "table public.orders of database app"),
                ("base/5/16384_vm.1", "table public.orders of database app"),
                ("base/5/16387.2", "TOAST of table public.orders of database app"),
                ("base/5/16400", "index public.\"Order \"\"x\"\"\" of database app"),
                ("base/5/900", "table pg_catalog.pg_class of database app"),
                ("base/5/16389", "sequence public.\"a?line\" of database app"),
                // No newer version of its row is on the disk.
                ("base/5/16388", "table public.dropped of database app"),
                ("global/1260", "table pg_catalog.pg_authid"),
                ("pg_tblspc/17000/PG_15_202209061/5/16384", "table public.orders of database app"),
            ] {
                assert_eq!(files.name_of(file, version).as_deref(), Some(wanted), "{file}");
            }
        }
    }

    #[test]
    fn what_no_catalog_knows_has_no_name() {
        let mut files = cluster(V15);
        for file in ["base/5/16999", "base/7/16384", "base/5/t3_16384", "pg_xact/0000", "base/5/0"]
        {
            assert_eq!(files.name_of(file, V15), None, "{file}");
        }
        files.all.remove("base/5/901");
        assert_eq!(files.name_of("base/5/16384", V15), None);
        assert!(files.name_of("base/5/900", V15).is_some());
        let mut files = cluster(V15);
        files.all.remove("global/1262");
        let name = files.name_of("base/5/16384", V15);
        assert_eq!(name.as_deref(), Some("table public.orders"));
    }
}
