//! What the inodes of a log are called, and how long its files are, operation by operation.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Ino, Node};
use crate::log::Op;

/// Follows the operations of a log, beginning with the disk before the first one.
#[derive(Clone, Debug)]
pub struct Timeline {
    paths: HashMap<Ino, PathBuf>,
    lens: HashMap<Ino, u64>,
}

impl Timeline {
    /// Before the first operation of a log, on this disk.
    #[must_use]
    pub fn of(base: &Disk) -> Timeline {
        let mut timeline = Timeline { paths: HashMap::new(), lens: HashMap::new() };
        timeline.visit(base, Ino::ROOT, Path::new(""));
        timeline
    }

    fn visit(&mut self, disk: &Disk, ino: Ino, path: &Path) {
        self.paths.insert(ino, path.to_owned());
        match disk.inode(ino).map(|inode| &inode.node) {
            Ok(Node::Dir(entries)) => {
                for (name, ino) in entries {
                    self.visit(disk, *ino, &path.join(name));
                }
            }
            Ok(Node::File(bytes)) => {
                self.lens.insert(ino, bytes.len() as u64);
            }
            _ => {}
        }
    }

    /// Takes note of an operation.
    pub fn pass(&mut self, op: &Op) {
        match op {
            Op::Create { parent, name, ino, .. }
            | Op::MakeDir { parent, name, ino, .. }
            | Op::Symlink { parent, name, ino, .. }
            | Op::Link { parent, name, ino } => self.name(*ino, *parent, name),
            Op::Rename { ino, new_parent, new_name, .. } => {
                self.name(*ino, *new_parent, new_name);
            }
            Op::Write { ino, off, bytes } => {
                let end = off + bytes.len() as u64;
                let len = self.lens.entry(*ino).or_default();
                *len = end.max(*len);
            }
            Op::SetLen { ino, len } => {
                self.lens.insert(*ino, *len);
            }
            _ => {}
        }
    }

    fn name(&mut self, ino: Ino, parent: Ino, name: &OsStr) {
        let path = self.path(parent).join(name);
        self.paths.insert(ino, path);
    }

    /// The newest path of an inode, below the root of the disk. A file that was removed keeps it.
    #[must_use]
    pub fn path(&self, ino: Ino) -> &Path {
        self.paths.get(&ino).map_or(Path::new(""), PathBuf::as_path)
    }

    /// The length of a file, in bytes.
    #[must_use]
    pub fn len(&self, ino: Ino) -> u64 {
        self.lens.get(&ino).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;
    use std::sync::Arc;

    use super::Timeline;
    use crate::disk::{Disk, Ino};
    use crate::log::Op;

    #[test]
    fn names_and_lengths_are_those_of_the_moment() {
        let mut disk = Disk::new(0o700, (0, 0));
        let (dir, file) = (Ino(2), Ino(3));
        let made = |parent, name: &str, ino| Op::Create {
            parent,
            name: name.into(),
            ino,
            mode: 0o600,
            owner: (0, 0),
        };
        let make_dir = Op::MakeDir {
            parent: Ino::ROOT,
            name: "d".into(),
            ino: dir,
            mode: 0o700,
            owner: (0, 0),
        };
        disk.apply(&make_dir).unwrap();
        disk.apply(&made(dir, "a", file)).unwrap();
        disk.apply(&Op::SetLen { ino: file, len: 7 }).unwrap();
        let mut timeline = Timeline::of(&disk);
        assert_eq!((timeline.path(file), timeline.len(file)), (Path::new("d/a"), 7));
        timeline.pass(&Op::Write { ino: file, off: 4, bytes: Arc::from([1; 9]) });
        timeline.pass(&Op::Write { ino: file, off: 0, bytes: Arc::from([1; 2]) });
        assert_eq!(timeline.len(file), 13);
        timeline.pass(&Op::SetLen { ino: file, len: 5 });
        timeline.pass(&Op::Rename {
            ino: file,
            parent: dir,
            name: "a".into(),
            new_parent: Ino::ROOT,
            new_name: "b".into(),
        });
        timeline.pass(&made(dir, "a", Ino(4)));
        assert_eq!((timeline.path(file), timeline.len(file)), (Path::new("b"), 5));
        assert_eq!((timeline.path(Ino(4)), timeline.len(Ino(4))), (Path::new("d/a"), 0));
    }
}
