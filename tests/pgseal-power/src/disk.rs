//! A file system image in memory: directories, files and symbolic links.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::log::Op;

/// The inode number of a file, directory or symbolic link; a number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

/// Why an operation fails; each variant stands for an error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// ENOENT.
    #[error("there is no such name")]
    Missing,
    /// EEXIST.
    #[error("the name is taken")]
    Taken,
    /// ENOTDIR.
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR.
    #[error("a directory")]
    ADirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// EINVAL.
    #[error("not a regular file")]
    NotAFile,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file with its bytes. Copies of a disk share them until one of the copies changes.
    File(Arc<Vec<u8>>),
    /// A directory.
    Dir(BTreeMap<OsString, Ino>),
    /// A symbolic link.
    Link(PathBuf),
}

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File, directory or symbolic link.
    pub node: Node,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Link count: how many directory entries name this inode.
    pub names: u32,
}

/// A whole disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    inodes: HashMap<Ino, Inode>,
    /// The highest number that an inode ever had.
    newest: Ino,
}

impl Disk {
    /// An empty disk whose root directory has this mode and owner.
    #[must_use]
    pub fn new(mode: u32, owner: (u32, u32)) -> Disk {
        let root = Inode { node: Node::Dir(BTreeMap::new()), mode, owner, names: 1 };
        Disk { inodes: HashMap::from([(Ino::ROOT, root)]), newest: Ino::ROOT }
    }

    /// An inode.
    ///
    /// # Errors
    /// When there is no inode with this number.
    pub fn inode(&self, ino: Ino) -> Result<&Inode, DiskError> {
        self.inodes.get(&ino).ok_or(DiskError::Missing)
    }

    /// The inode of a name.
    ///
    /// # Errors
    /// When `parent` is not a directory or has no such name.
    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Ino, DiskError> {
        self.entries(parent)?.get(name).copied().ok_or(DiskError::Missing)
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// When the inode does not exist or is not a directory.
    pub fn entries(&self, ino: Ino) -> Result<&BTreeMap<OsString, Ino>, DiskError> {
        match &self.inode(ino)?.node {
            Node::Dir(entries) => Ok(entries),
            _ => Err(DiskError::NotADirectory),
        }
    }

    /// The bytes of a regular file.
    ///
    /// # Errors
    /// When the inode does not exist or is not a regular file.
    pub fn bytes(&self, ino: Ino) -> Result<&[u8], DiskError> {
        match &self.inode(ino)?.node {
            Node::File(bytes) => Ok(bytes),
            Node::Dir(_) => Err(DiskError::ADirectory),
            Node::Link(_) => Err(DiskError::NotAFile),
        }
    }

    /// The bytes of a regular file, mutable.
    ///
    /// # Errors
    /// When the inode does not exist or is not a regular file.
    pub fn bytes_mut(&mut self, ino: Ino) -> Result<&mut Vec<u8>, DiskError> {
        match &mut self.inodes.get_mut(&ino).ok_or(DiskError::Missing)?.node {
            Node::File(bytes) => Ok(Arc::make_mut(bytes)),
            Node::Dir(_) => Err(DiskError::ADirectory),
            Node::Link(_) => Err(DiskError::NotAFile),
        }
    }

    /// The highest number that an inode ever had.
    #[must_use]
    pub fn newest(&self) -> Ino {
        self.newest
    }

    /// Carries one operation out.
    ///
    /// # Errors
    /// When the disk does not allow the operation; the disk is then unchanged.
    pub fn apply(&mut self, op: &Op) -> Result<(), DiskError> {
        match op {
            Op::Create { parent, name, ino, mode, owner } => {
                self.enter(*parent, name, *ino, Node::File(Arc::default()), *mode, *owner)
            }
            Op::MakeDir { parent, name, ino, mode, owner } => {
                self.enter(*parent, name, *ino, Node::Dir(BTreeMap::new()), *mode, *owner)
            }
            Op::Symlink { parent, name, ino, target, owner } => {
                self.enter(*parent, name, *ino, Node::Link(target.clone()), 0o777, *owner)
            }
            Op::Link { ino, parent, name } => {
                if self.entries(*parent)?.contains_key(name) {
                    return Err(DiskError::Taken);
                }
                if matches!(self.inode(*ino)?.node, Node::Dir(_)) {
                    return Err(DiskError::ADirectory);
                }
                self.count_names(*ino, 1);
                self.set_name(*parent, name, Some(*ino))
            }
            Op::Unlink { ino, parent, name } => {
                if matches!(self.inode(*ino)?.node, Node::Dir(_)) {
                    return Err(DiskError::ADirectory);
                }
                self.count_names(*ino, -1);
                self.set_name(*parent, name, None)
            }
            Op::RemoveDir { ino, parent, name } => {
                if !self.entries(*ino)?.is_empty() {
                    return Err(DiskError::NotEmpty);
                }
                self.count_names(*ino, -1);
                self.set_name(*parent, name, None)
            }
            Op::Rename { ino, parent, name, new_parent, new_name } => {
                self.rename(*ino, (*parent, name), (*new_parent, new_name))
            }
            Op::Attributes { ino, mode, owner } => {
                let inode = self.inodes.get_mut(ino).ok_or(DiskError::Missing)?;
                (inode.mode, inode.owner) = (*mode, *owner);
                Ok(())
            }
            Op::Write { ino, off, bytes } => {
                write_at(self.bytes_mut(*ino)?, *off, bytes);
                Ok(())
            }
            Op::SetLen { ino, len } => {
                self.bytes_mut(*ino)?.resize(as_usize(*len), 0);
                Ok(())
            }
            Op::Sync { .. } | Op::Mark(_) => Ok(()),
        }
    }

    /// Removes an inode if no directory entry names it.
    pub fn forget(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.names == 0) {
            self.inodes.remove(&ino);
        }
    }

    /// Reads the files, directories and symbolic links below `dir` into a new disk.
    ///
    /// # Errors
    /// When an entry cannot be read or has another file type.
    pub fn read_from(dir: &Path) -> io::Result<Disk> {
        let top = fs::metadata(dir)?;
        let mut disk = Disk::new(top.mode() & 0o7777, (top.uid(), top.gid()));
        disk.read_dir(Ino::ROOT, dir)?;
        Ok(disk)
    }

    fn read_dir(&mut self, parent: Ino, dir: &Path) -> io::Result<()> {
        for item in fs::read_dir(dir)? {
            let item = item?;
            let (path, name, meta) = (item.path(), item.file_name(), item.metadata()?);
            let ino = Ino(self.newest().0 + 1);
            let (mode, owner) = (meta.mode() & 0o7777, (meta.uid(), meta.gid()));
            let node = match meta.file_type() {
                kind if kind.is_dir() => Node::Dir(BTreeMap::new()),
                kind if kind.is_file() => Node::File(Arc::new(fs::read(&path)?)),
                kind if kind.is_symlink() => Node::Link(fs::read_link(&path)?),
                _ => return Err(io::Error::other(format!("{}: no file", path.display()))),
            };
            self.enter(parent, &name, ino, node, mode, owner).map_err(io::Error::other)?;
            if meta.is_dir() {
                self.read_dir(ino, &path)?;
            }
        }
        Ok(())
    }

    /// Writes all files, directories and symbolic links into the existing, empty `dir`, with modes
    /// and owners.
    ///
    /// # Errors
    /// When a file cannot be written; only root may give files to other users.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        self.write_dir(Ino::ROOT, dir)
    }

    fn write_dir(&self, ino: Ino, path: &Path) -> io::Result<()> {
        let entries = self.entries(ino).map_err(io::Error::other)?;
        for (name, ino) in entries {
            let path = path.join(name);
            let inode = self.inode(*ino).map_err(io::Error::other)?;
            match &inode.node {
                Node::Dir(_) => {
                    fs::create_dir(&path)?;
                    self.write_dir(*ino, &path)?;
                }
                Node::File(bytes) => fs::write(&path, bytes.as_slice())?,
                Node::Link(target) => {
                    symlink(target, &path)?;
                    lchown(&path, Some(inode.owner.0), Some(inode.owner.1))?;
                    continue;
                }
            }
            give(&path, inode)?;
        }
        let inode = self.inode(ino).map_err(io::Error::other)?;
        give(path, inode)
    }

    fn enter(
        &mut self,
        parent: Ino,
        name: &OsStr,
        ino: Ino,
        node: Node,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<(), DiskError> {
        if self.entries(parent)?.contains_key(name) {
            return Err(DiskError::Taken);
        }
        self.inodes.insert(ino, Inode { node, mode, owner, names: 1 });
        self.newest = self.newest.max(ino);
        self.set_name(parent, name, Some(ino))
    }

    fn rename(
        &mut self,
        ino: Ino,
        (parent, name): (Ino, &OsStr),
        (new_parent, new_name): (Ino, &OsStr),
    ) -> Result<(), DiskError> {
        let is_dir = |disk: &Disk, ino| Ok(matches!(disk.inode(ino)?.node, Node::Dir(_)));
        if let Some(old) = self.entries(new_parent)?.get(new_name).copied() {
            match (is_dir(self, ino)?, is_dir(self, old)?) {
                _ if old == ino => return Ok(()),
                (false, true) => return Err(DiskError::ADirectory),
                (true, false) => return Err(DiskError::NotADirectory),
                (true, true) if !self.entries(old)?.is_empty() => return Err(DiskError::NotEmpty),
                _ => self.count_names(old, -1),
            }
        }
        self.set_name(parent, name, None)?;
        self.set_name(new_parent, new_name, Some(ino))
    }

    fn set_name(&mut self, parent: Ino, name: &OsStr, ino: Option<Ino>) -> Result<(), DiskError> {
        let inode = self.inodes.get_mut(&parent).ok_or(DiskError::Missing)?;
        let Node::Dir(entries) = &mut inode.node else { return Err(DiskError::NotADirectory) };
        match ino {
            Some(ino) => entries.insert(name.to_owned(), ino),
            None => entries.remove(name),
        };
        Ok(())
    }

    fn count_names(&mut self, ino: Ino, by: i32) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.names = inode.names.saturating_add_signed(by);
        }
    }
}

/// Writes bytes at an offset; a gap between the end of the file and `off` is filled with zeros.
pub fn write_at(file: &mut Vec<u8>, off: u64, bytes: &[u8]) {
    let start = as_usize(off);
    let end = start + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

/// Converts a length to `usize`. Lengths of files in memory always fit.
pub fn as_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Gives a file or directory its owner and mode.
pub fn give(path: &Path, inode: &Inode) -> io::Result<()> {
    chown(path, Some(inode.owner.0), Some(inode.owner.1))?;
    fs::set_permissions(path, fs::Permissions::from_mode(inode.mode & 0o7777))
}
