//! Walks a data directory and reads the class and the header of every file. Needs no key.

use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgseal_convert::NEW_SUFFIX;
use pgseal_core::geometry::{HEAD_LEN, HEADER_LEN};
use pgseal_core::header::{self, Header, Kind, Stage};
use pgseal_core::{KeyringId, Place, Suite};
use pgseal_keys::{KEYRING_DIR, KeyError, Keyring};
use pgseal_pgdata::{Class, Policy};

use crate::storage::ReadOnly;

/// What the header of a file shows.
#[derive(Debug)]
pub enum Seen {
    /// A sealed file.
    Sealed(Header),
    /// An empty file: no bytes, or fewer than a header has.
    Empty,
    /// The header is zeros, and bytes follow it: the header was lost.
    HeaderLost {
        /// The number of bytes after the header.
        bytes_behind: u64,
    },
    /// A plain file.
    Plain,
    /// The file starts like a sealed one, but its header is invalid.
    BadHeader(String),
    /// Not a regular file: a socket, a pipe, a device.
    Special,
    /// A link that leads nowhere.
    Dangling(PathBuf),
    /// It could not be read.
    Unreadable(String),
    /// The file was removed during the scan.
    Gone,
}

/// One file.
#[derive(Debug)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// Its path inside the data directory.
    pub rel: PathBuf,
    /// Its class: which kind of file of PostgreSQL it is.
    pub class: Class,
    /// Bytes on disk.
    pub len: u64,
    /// What its header shows.
    pub seen: Seen,
}

impl Entry {
    /// Its path inside the data directory, for messages.
    pub fn name(&self) -> String {
        self.rel.display().to_string()
    }

    /// Which file of the cluster it is; any place, for a file unknown to PostgreSQL.
    pub fn place(&self) -> Place {
        match self.class {
            // In an archive, too.
            Class::Wal => pgseal_pgdata::WAL,
            Class::Unknown => Place::ANY,
            _ => pgseal_pgdata::place(self.rel.as_os_str().as_bytes()),
        }
    }

    /// The description of a file that an interrupted command of pgseal left: a harmless file that
    /// is not PostgreSQL's and shows no data. `None` for any other file.
    pub fn leftover(&self) -> Option<&'static str> {
        let name = self.rel.file_name()?;
        if self.rel.parent() == Some(Path::new(KEYRING_DIR)) {
            if pgseal_keys::is_unfinished(name) {
                return Some(
                    "a keyring in the making, left by a command that was interrupted: harmless; \
                     the next command that writes the keyring removes it",
                );
            }
            let record = name.as_bytes().strip_prefix(b"escrow.json.new.");
            if record.is_some_and(|pid| pid.iter().all(u8::is_ascii_digit)) {
                return Some(
                    "left by a \"pgseal key backup\" that was interrupted: harmless; remove it",
                );
            }
        }
        let target = self.rel.as_os_str().as_bytes().strip_suffix(NEW_SUFFIX.as_bytes())?;
        let shows_rows = matches!(self.seen, Seen::Plain)
            && matches!(pgseal_pgdata::classify(target).policy(), Policy::Seal { .. });
        (!shows_rows).then_some(
            "a file in the making, left by a command that was interrupted: harmless; remove it",
        )
    }

    /// Whether new files of its class are sealed.
    pub fn should_be_sealed(&self) -> bool {
        matches!(self.class.policy(), Policy::Seal { .. })
    }

    /// Whether a plain file is accepted in this place.
    pub fn may_be_plain(&self) -> bool {
        matches!(self.class.policy(), Policy::Plain(_) | Policy::Seal { reads_plain: true, .. })
    }
}

/// All files of a data directory.
#[derive(Debug, Default)]
pub struct Scan {
    /// The files, by path.
    pub entries: Vec<Entry>,
    /// The links that lead to directories outside of the data directory: the link's name, its
    /// target.
    pub outside: Vec<(PathBuf, PathBuf)>,
    /// Directories that could not be read, and why.
    pub closed: Vec<(PathBuf, String)>,
    /// The root, without links.
    root: PathBuf,
}

impl Scan {
    /// The headers of all sealed files.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.entries.iter().filter_map(|entry| match &entry.seen {
            Seen::Sealed(header) => Some(header),
            _ => None,
        })
    }

    /// The sealed files of a keyring that were made before the suite changed to this one. Temporary
    /// files are left out, which end with the server, and WAL, which may have either length of key.
    pub fn of_older_suite(
        &self,
        keyring: KeyringId,
        newest: Suite,
    ) -> impl Iterator<Item = (&Entry, &Header)> {
        self.entries.iter().filter_map(move |entry| match &entry.seen {
            Seen::Sealed(header)
                if header.keyring_id == keyring && !header.generation.is_ephemeral() =>
            {
                let form = entry.class.form(entry.place(), newest)?;
                let is_older = entry.class != Class::Wal
                    && !entry.place().is_any()
                    && (header.suite, header.layout) != (form.suite, form.layout);
                is_older.then_some((entry, header))
            }
            _ => None,
        })
    }

    /// The file whose key has sealed the most writes, with that number (`spec/sealed-file.md`,
    /// section 11.1); `None` if no write was counted yet.
    pub fn most_used_key(&self) -> Option<(&Entry, u64)> {
        let used = self.entries.iter().filter_map(|entry| match &entry.seen {
            Seen::Sealed(header) if header.samples > 0 => Some((entry, header.writes())),
            _ => None,
        });
        used.max_by_key(|(_, writes)| *writes)
    }

    /// The files that have two file keys.
    pub fn with_two_keys(&self) -> impl Iterator<Item = &Entry> {
        let has_two =
            |seen: &Seen| matches!(seen, Seen::Sealed(header) if header.stage != Stage::Settled);
        self.entries.iter().filter(move |entry| has_two(&entry.seen))
    }

    /// Refuses a keyring that no file names: it is that of another cluster. If only some files do
    /// not name it, those are foreign, and the check of each file finds them.
    ///
    /// # Errors
    /// [`KeyError::KeyringOfAnotherCluster`].
    pub fn expect_keyring(&self, keyring: &Keyring) -> Result<(), KeyError> {
        let mut first = None;
        for header in self.headers() {
            if header.keyring_id == keyring.id() {
                return Ok(());
            }
            first.get_or_insert(header.keyring_id);
        }
        first.map_or(Ok(()), |id| keyring.expect_id(id))
    }

    /// Bytes of all sealed files.
    pub fn sealed_bytes(&self) -> u64 {
        let sealed = |entry: &&Entry| matches!(entry.seen, Seen::Sealed(_));
        self.entries.iter().filter(sealed).map(|entry| entry.len).sum()
    }
}

/// What kind of directory is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A data directory.
    DataDir,
    /// A directory of archived WAL: its files are classified as those of `pg_wal`.
    Archive,
}

/// Reads the header of every file below `root`.
pub fn scan(root: &Path, kind: Root) -> Scan {
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut scan = Scan { root: real, ..Scan::default() };
    walk(root, Path::new(""), kind, 0, &mut scan);
    scan.entries.sort_by(|a, b| a.rel.cmp(&b.rel));
    scan
}

/// Whether there is a sealed file in the directory: if the keyring is missing, the directory is
/// then not plain.
pub fn any_sealed(root: &Path) -> bool {
    scan(root, Root::DataDir).headers().next().is_some()
}

/// Reads the header of one file, in any directory.
pub fn one_file(path: &Path) -> Scan {
    let rel = PathBuf::from(path.file_name().unwrap_or(path.as_os_str()));
    let class = Class::Unknown;
    let (len, seen) = look(path, class);
    let entry = Entry { path: path.to_owned(), rel, class, len, seen };
    Scan { entries: vec![entry], ..Scan::default() }
}

/// Reads the header of one file again.
pub fn look_again(entry: &mut Entry) {
    (entry.len, entry.seen) = look(&entry.path, entry.class);
}

/// Deeper than any directory of PostgreSQL; the limit ends loops.
const MAX_DEPTH: usize = 16;

fn walk(dir: &Path, rel: &Path, kind: Root, depth: usize, scan: &mut Scan) {
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => return,
        Err(error) => return scan.closed.push((rel.to_owned(), error.to_string())),
    };
    for item in listing {
        let item = match item {
            Ok(item) => item,
            Err(error) => return scan.closed.push((rel.to_owned(), error.to_string())),
        };
        let (path, rel) = (item.path(), rel.join(item.file_name()));
        match item.file_type() {
            Ok(file_type) if file_type.is_dir() && depth < MAX_DEPTH => {
                walk(&path, &rel, kind, depth + 1, scan);
            }
            Ok(file_type) if file_type.is_symlink() => link(path, rel, kind, depth, scan),
            Ok(file_type) => {
                let class = class_of(&rel, kind);
                let (len, seen) = match special(file_type) {
                    true => (0, Seen::Special),
                    false => look(&path, class),
                };
                scan.entries.push(Entry { path, rel, class, len, seen });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => scan.closed.push((rel, error.to_string())),
        }
    }
}

/// Links to directories are followed where PostgreSQL makes them (`pg_wal`, tablespaces) or an
/// administrator may (directories of the root).
fn link(path: PathBuf, rel: PathBuf, kind: Root, depth: usize, scan: &mut Scan) {
    let in_tablespaces = rel.parent() == Some(Path::new("pg_tblspc"));
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => {
            let target = path.canonicalize().unwrap_or_else(|_| path.clone());
            // Not a directory above the root, which would be a loop, and not a virtual file system.
            let leads_back = scan.root.starts_with(&target);
            let is_no_disk = ["/proc", "/sys", "/dev"].iter().any(|dir| target.starts_with(dir));
            scan.outside.push((rel.clone(), target));
            if leads_back || is_no_disk {
                scan.closed.push((rel, "a link to where no files of a cluster lie".to_owned()));
            } else if depth == 0 || in_tablespaces {
                walk(&path, &rel, kind, depth + 1, scan);
            }
        }
        Ok(_) => {
            let class = class_of(&rel, kind);
            let (len, seen) = look(&path, class);
            scan.entries.push(Entry { path, rel, class, len, seen });
        }
        Err(_) => {
            let target = fs::read_link(&path).unwrap_or_default();
            let class = class_of(&rel, kind);
            scan.entries.push(Entry { path, rel, class, len: 0, seen: Seen::Dangling(target) });
        }
    }
}

fn class_of(rel: &Path, kind: Root) -> Class {
    match kind {
        Root::DataDir => pgseal_pgdata::classify(rel.as_os_str().as_bytes()),
        Root::Archive => {
            let name = rel.file_name().unwrap_or(OsStr::new(""));
            pgseal_pgdata::classify(Path::new("pg_wal").join(name).as_os_str().as_bytes())
        }
    }
}

/// A socket, a pipe, a device, or a directory that is nested too deep.
fn special(file_type: FileType) -> bool {
    !file_type.is_file()
}

fn look(path: &Path, class: Class) -> (u64, Seen) {
    match try_look(path, class) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => (0, Seen::Gone),
        Err(error) => {
            (fs::metadata(path).map_or(0, |m| m.len()), Seen::Unreadable(error.to_string()))
        }
    }
}

fn try_look(path: &Path, class: Class) -> io::Result<(u64, Seen)> {
    use pgseal_core::storage::Storage;
    let file = ReadOnly::open(path, false)?;
    let mut start = vec![0; HEAD_LEN as usize];
    let got = file.raw(&mut start, 0)?;
    start.truncate(got);
    let len = file.len()?.0;
    let bytes_behind = len.saturating_sub(HEADER_LEN);
    let stays_plain = !matches!(class.policy(), Policy::Seal { .. });
    let seen = match header::classify(&start) {
        Ok(Kind::Sealed(header)) => Seen::Sealed(header),
        Ok(_) if len == 0 => Seen::Empty,
        // A file that is never sealed may start with zeros.
        Ok(_) if stays_plain => Seen::Plain,
        Ok(Kind::NoHeader) if bytes_behind > 0 => Seen::HeaderLost { bytes_behind },
        Ok(Kind::NoHeader) => Seen::Empty,
        Ok(Kind::Plain) => Seen::Plain,
        Err(error) => Seen::BadHeader(error.to_string()),
    };
    Ok((len, seen))
}
