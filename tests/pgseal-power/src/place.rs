//! A directory that gets one disk after another.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, Ino, Inode, Node, give};

/// A directory into which disks are written, each over the one before. Only what differs is
/// written: a file keeps its bytes if they are those of the new disk and nobody has changed the
/// file since it was written.
#[derive(Debug)]
pub struct Place {
    at: PathBuf,
    written: HashMap<PathBuf, Written>,
}

/// A file as it was written.
#[derive(Debug)]
struct Written {
    bytes: Arc<Vec<u8>>,
    mark: Mark,
}

/// What tells that nobody has changed a file: the time of its last change is set by the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    ino: u64,
    len: u64,
    changed: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> io::Result<Mark> {
        let meta = fs::symlink_metadata(path)?;
        let changed = (meta.ctime(), meta.ctime_nsec());
        Ok(Mark { ino: meta.ino(), len: meta.len(), changed })
    }
}

impl Place {
    /// An existing directory. What is in it is replaced by the first disk.
    #[must_use]
    pub fn new(at: &Path) -> Place {
        Place { at: at.to_owned(), written: HashMap::new() }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes the directory hold what the disk holds, and nothing else.
    ///
    /// # Errors
    /// When a file cannot be written or removed.
    pub fn put(&mut self, disk: &Disk) -> io::Result<()> {
        let mut before = std::mem::take(&mut self.written);
        self.put_dir(disk, Ino::ROOT, &self.at.clone(), &mut before)
    }

    /// Removes all that is in the directory.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn clear(&mut self) -> io::Result<()> {
        self.written.clear();
        for item in fs::read_dir(&self.at)? {
            remove(&item?.path())?;
        }
        Ok(())
    }

    fn put_dir(
        &mut self,
        disk: &Disk,
        ino: Ino,
        path: &Path,
        before: &mut HashMap<PathBuf, Written>,
    ) -> io::Result<()> {
        let entries = disk.entries(ino).map_err(io::Error::other)?;
        for item in fs::read_dir(path)? {
            let item = item?;
            if !entries.contains_key(&item.file_name()) {
                remove(&item.path())?;
            }
        }
        for (name, ino) in entries {
            let path = path.join(name);
            let inode = disk.inode(*ino).map_err(io::Error::other)?;
            match &inode.node {
                Node::Dir(_) => {
                    if !fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                        remove_if_there(&path)?;
                        fs::create_dir(&path)?;
                    }
                    self.put_dir(disk, *ino, &path, before)?;
                }
                Node::File(bytes) => {
                    let known = before.remove(&path);
                    self.put_file(path, inode, bytes, known)?;
                }
                Node::Link(target) => {
                    remove_if_there(&path)?;
                    symlink(target, &path)?;
                    lchown(&path, Some(inode.owner.0), Some(inode.owner.1))?;
                }
            }
        }
        give(path, disk.inode(ino).map_err(io::Error::other)?)
    }

    fn put_file(
        &mut self,
        path: PathBuf,
        inode: &Inode,
        bytes: &Arc<Vec<u8>>,
        known: Option<Written>,
    ) -> io::Result<()> {
        let is_there = known.is_some_and(|known| {
            (Arc::ptr_eq(&known.bytes, bytes) || known.bytes == *bytes)
                && Mark::of(&path).is_ok_and(|mark| mark == known.mark)
        });
        if !is_there {
            // A new file: the old one may have a second name.
            remove_if_there(&path)?;
            fs::write(&path, bytes.as_slice())?;
        }
        let meta = fs::symlink_metadata(&path)?;
        if (meta.uid(), meta.gid()) != inode.owner || meta.mode() & 0o7777 != inode.mode {
            give(&path, inode)?;
        }
        let mark = Mark::of(&path)?;
        self.written.insert(path, Written { bytes: Arc::clone(bytes), mark });
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::Place;
    use crate::disk::Disk;

    /// A disk with the files `a` and `d/b`, a directory and a link.
    fn disk(a: &[u8], b: &[u8]) -> Disk {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        fs::write(dir.path().join("a"), a).unwrap();
        fs::write(dir.path().join("d/b"), b).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        Disk::read_from(dir.path()).unwrap()
    }

    fn ino(at: &Path, name: &str) -> u64 {
        fs::symlink_metadata(at.join(name)).unwrap().ino()
    }

    /// The same files below the root, whose owner and mode may differ, and whatever the numbers of
    /// their inodes are.
    fn assert_holds(at: &Path, wanted: &Disk) {
        let other = tempfile::tempdir().unwrap();
        wanted.write_to(other.path()).unwrap();
        let mut diff = Command::new("diff");
        let diff =
            diff.args(["-r", "--no-dereference"]).arg(at).arg(other.path()).output().unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    }

    #[test]
    fn a_disk_replaces_the_one_before_whatever_was_done_to_it() {
        let at = tempfile::tempdir().unwrap();
        let (first, second) = (disk(b"one", b"same"), disk(b"two", b"same"));
        let mut place = Place::new(at.path());
        fs::write(at.path().join("stray"), "x").unwrap();
        place.put(&first).unwrap();
        assert_holds(at.path(), &first);
        let b = ino(at.path(), "d/b");
        place.put(&second).unwrap();
        assert_holds(at.path(), &second);
        assert_eq!(ino(at.path(), "d/b"), b, "what did not change is not written again");

        // A change that keeps the length.
        let file = File::options().write(true).open(at.path().join("d/b")).unwrap();
        file.write_at(b"S", 0).unwrap();
        drop(file);
        fs::remove_file(at.path().join("a")).unwrap();
        fs::create_dir(at.path().join("a")).unwrap();
        fs::write(at.path().join("a/new"), "x").unwrap();
        fs::remove_dir(at.path().join("empty")).unwrap();
        fs::write(at.path().join("empty"), "x").unwrap();
        fs::write(at.path().join("d/new"), "x").unwrap();
        place.put(&second).unwrap();
        assert_holds(at.path(), &second);

        place.clear().unwrap();
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
        place.put(&first).unwrap();
        assert_holds(at.path(), &first);
    }
}
