//! The files of a data directory, its WAL directory and its tablespaces.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgseal_core::Place;
use pgseal_pgdata::{Class, Policy, classify};

use crate::NEW_SUFFIX;
use crate::journal::OWN_DIR;

/// The deepest directory that is read. PostgreSQL's own files lie less deep; this only ends loops.
const MAX_DEPTH: usize = 16;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The path by which the file is opened.
    pub path: PathBuf,
    /// The path of the file inside the data directory.
    pub rel: PathBuf,
    /// The class of the file.
    pub class: Class,
    /// Bytes on disk.
    pub len: u64,
    /// The number of the file system that holds the file.
    pub dev: u64,
    /// Number of names (hard links) of the file.
    pub links: u64,
}

impl Item {
    /// The path of the file inside the data directory, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.rel.display().to_string()
    }

    /// The place of the file; [`Place::ANY`] if PostgreSQL does not know the file.
    #[must_use]
    pub fn place(&self) -> Place {
        pgseal_pgdata::place(self.rel.as_os_str().as_bytes())
    }
}

/// Something that prevents a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path inside the data directory.
    pub rel: PathBuf,
    /// What is wrong, and what to do.
    pub what: String,
}

/// All files of a data directory.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The files, sorted by path.
    pub items: Vec<Item>,
    /// All directories.
    pub dirs: Vec<PathBuf>,
    /// Links to directories: the path inside of the data directory, and the target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Unfinished new files that a stopped run left.
    pub leftovers: Vec<PathBuf>,
    /// Files and directories that cannot be read or followed.
    pub problems: Vec<Problem>,
}

/// Lists every file below `root`. In a tablespace, only the version directory of this cluster
/// (`PG_15_202209061`) is read: another cluster may have its own directory beside it.
#[must_use]
pub fn walk(root: &Path, version_dir: &str) -> Tree {
    let mut walker = Walker { tree: Tree::default(), version_dir: version_dir.as_ref() };
    walker.directory(root, Path::new(""), 0);
    if !holds_wal(&root.join("pg_wal")) {
        walker.problem(
            Path::new("pg_wal"),
            "it holds no WAL; mount its file system, or mend the link",
        );
    }
    walker.tree.items.sort_by(|a, b| a.rel.cmp(&b.rel));
    walker.tree.dirs.sort();
    walker.tree
}

/// Whether a directory holds WAL. If it does not, it may be the mount point of a file system that
/// is not mounted.
#[must_use]
pub fn holds_wal(dir: &Path) -> bool {
    let is_segment =
        |name: &OsStr| name.len() == 24 && name.as_bytes().iter().all(u8::is_ascii_hexdigit);
    holds(dir, |name| name == "archive_status" || is_segment(name))
}

/// Whether a tablespace has a directory whose name begins with `prefix`. If it has none, it may be
/// the mount point of a file system that is not mounted.
#[must_use]
pub fn holds_version(dir: &Path, prefix: &str) -> bool {
    holds(dir, |name| name.as_bytes().starts_with(prefix.as_bytes()) && dir.join(name).is_dir())
}

fn holds(dir: &Path, is_it: impl Fn(&OsStr) -> bool) -> bool {
    fs::read_dir(dir).is_ok_and(|list| list.flatten().any(|item| is_it(&item.file_name())))
}

struct Walker<'a> {
    tree: Tree,
    version_dir: &'a OsStr,
}

impl Walker<'_> {
    fn problem(&mut self, rel: &Path, what: impl Into<String>) {
        self.tree.problems.push(Problem { rel: rel.to_owned(), what: what.into() });
    }

    fn directory(&mut self, dir: &Path, rel: &Path, depth: usize) {
        let listing = match fs::read_dir(dir) {
            Ok(listing) => listing,
            // The data directory is a mount point, and this directory belongs to the file system.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && rel.file_name() == Some(OsStr::new("lost+found")) =>
            {
                return;
            }
            Err(error) => return self.problem(rel, format!("cannot be read: {error}")),
        };
        self.tree.dirs.push(dir.to_owned());
        let is_tablespace = rel.parent() == Some(Path::new("pg_tblspc"));
        if is_tablespace && !dir.join(self.version_dir).is_dir() {
            let version = self.version_dir.display();
            let what = format!(
                "a tablespace without its directory {version}; mount its file system, or remove it \
                 from pg_tblspc if there is no such tablespace"
            );
            self.problem(rel, what);
        }
        for item in listing {
            let item = match item {
                Ok(item) => item,
                Err(error) => return self.problem(rel, format!("cannot be read: {error}")),
            };
            let (path, rel) = (item.path(), rel.join(item.file_name()));
            if rel == Path::new(OWN_DIR) || self.is_foreign_tablespace(&rel) {
                continue;
            }
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() && depth < MAX_DEPTH => {
                    self.directory(&path, &rel, depth + 1);
                }
                Ok(meta) if meta.is_dir() => self.problem(&rel, "nested too deep"),
                Ok(meta) if meta.is_symlink() => self.link(&path, &rel, depth),
                Ok(meta) if meta.is_file() => self.file(path, rel, &meta),
                // Sockets and pipes have no content.
                Ok(_) => {}
                Err(error) => self.problem(&rel, format!("cannot be looked at: {error}")),
            }
        }
    }

    /// Whether the path is `pg_tblspc/OID/X` and X is not the version directory of this cluster.
    fn is_foreign_tablespace(&self, rel: &Path) -> bool {
        let mut parts = rel.iter();
        let in_tablespaces = parts.next() == Some(OsStr::new("pg_tblspc"));
        let version = parts.nth(1);
        in_tablespaces && version.is_some_and(|version| version != self.version_dir)
    }

    /// Follows links to directories where PostgreSQL makes such links (`pg_wal`, tablespaces) or an
    /// administrator may make them (directories in the root).
    fn link(&mut self, path: &Path, rel: &Path, depth: usize) {
        let in_tablespaces = rel.parent() == Some(Path::new("pg_tblspc"));
        let stays_plain = matches!(class_of(rel).policy(), Policy::Plain(_));
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() && (depth == 0 || in_tablespaces) => {
                let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                self.tree.links.push((rel.to_owned(), target));
                self.directory(path, rel, depth + 1);
            }
            Ok(meta) if meta.is_dir() => {
                self.problem(
                    rel,
                    "a link to a directory where PostgreSQL has none; replace it by the directory",
                );
            }
            Ok(_) if stays_plain => {}
            Ok(_) => self.problem(rel, "a link to a file; put the file itself in its place"),
            Err(_) if stays_plain && !in_tablespaces => {}
            Err(error) => {
                self.problem(rel, format!("a link that leads nowhere ({error}); mend or remove it"))
            }
        }
    }

    fn file(&mut self, path: PathBuf, rel: PathBuf, meta: &Metadata) {
        if rel.as_os_str().as_bytes().ends_with(NEW_SUFFIX.as_bytes()) {
            self.tree.leftovers.push(path);
            return;
        }
        let class = class_of(&rel);
        let (len, dev, links) = (meta.len(), meta.dev(), meta.nlink());
        self.tree.items.push(Item { path, rel, class, len, dev, links });
    }
}

fn class_of(rel: &Path) -> Class {
    classify(rel.as_os_str().as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where a step fails")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_missing_mount_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (root, space) = (dir.path().join("data"), dir.path().join("space"));
        for made in [root.join("pg_wal"), root.join("pg_tblspc"), space.clone()] {
            fs::create_dir_all(made).unwrap();
        }
        symlink(&space, root.join("pg_tblspc/16400")).unwrap();
        let problems = || -> Vec<PathBuf> {
            walk(&root, "PG_15_1").problems.into_iter().map(|problem| problem.rel).collect()
        };
        let (link, wal) = (PathBuf::from("pg_tblspc/16400"), PathBuf::from("pg_wal"));
        assert_eq!(problems(), vec![link.clone(), wal]);
        fs::create_dir(root.join("pg_wal/archive_status")).unwrap();
        fs::create_dir(space.join("PG_14_1")).unwrap();
        assert_eq!(problems(), vec![link]);
        assert!(!holds_version(&space, "PG_15_"));
        fs::create_dir(space.join("PG_15_1")).unwrap();
        assert_eq!(problems(), Vec::<PathBuf>::new());
        assert!(holds_version(&space, "PG_15_"));
    }
}
