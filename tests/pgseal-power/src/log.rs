//! The log of the operations on a disk, in order.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::Ino;

/// A change of the disk, a sync, or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what the calls of the same name take")]
pub enum Op {
    /// A new regular file.
    Create { parent: Ino, name: OsString, ino: Ino, mode: u32, owner: (u32, u32) },
    /// A new directory.
    MakeDir { parent: Ino, name: OsString, ino: Ino, mode: u32, owner: (u32, u32) },
    /// A new symbolic link.
    Symlink { parent: Ino, name: OsString, ino: Ino, target: PathBuf, owner: (u32, u32) },
    /// One more name for a file (hard link).
    Link { ino: Ino, parent: Ino, name: OsString },
    /// Removes one name of a file.
    Unlink { ino: Ino, parent: Ino, name: OsString },
    /// Removes an empty directory.
    RemoveDir { ino: Ino, parent: Ino, name: OsString },
    /// Renames an inode and replaces what had the new name.
    Rename { ino: Ino, parent: Ino, name: OsString, new_parent: Ino, new_name: OsString },
    /// Sets mode, user and group of an inode.
    Attributes { ino: Ino, mode: u32, owner: (u32, u32) },
    /// Writes bytes at an offset; a write beyond the end extends the file.
    Write { ino: Ino, off: u64, bytes: Arc<[u8]> },
    /// Sets the length of a file, in bytes.
    SetLen { ino: Ino, len: u64 },
    /// `fsync` or `fdatasync` of a file or directory has returned.
    Sync { ino: Ino },
    /// An event outside the disk, such as the acknowledgement of a commit.
    Mark(u64),
}

impl Op {
    /// For an operation that the journal covers (names and attributes): the inodes whose `fsync`
    /// makes the operation durable. Empty for all other operations.
    #[must_use]
    pub fn journaled_for(&self) -> Vec<Ino> {
        match self {
            Op::Create { parent, ino, .. }
            | Op::MakeDir { parent, ino, .. }
            | Op::Symlink { parent, ino, .. }
            | Op::Link { ino, parent, .. } => vec![*ino, *parent],
            Op::Unlink { parent, .. } | Op::RemoveDir { parent, .. } => vec![*parent],
            Op::Rename { ino, parent, new_parent, .. } => vec![*ino, *parent, *new_parent],
            Op::Attributes { ino, .. } => vec![*ino],
            Op::Write { .. } | Op::SetLen { .. } | Op::Sync { .. } | Op::Mark(_) => Vec::new(),
        }
    }
}

/// All operations of a recorded run.
#[derive(Clone, Debug, Default)]
pub struct Log(Vec<Op>);

impl Log {
    /// Appends an operation.
    pub fn push(&mut self, op: Op) {
        self.0.push(op);
    }

    /// Removes all operations behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// All operations, in order.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.0
    }

    /// The marks among the first `at` operations.
    pub fn marks(&self, at: usize) -> impl Iterator<Item = u64> {
        self.0[..at.min(self.0.len())].iter().filter_map(|op| match op {
            Op::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}
