//! A disk that does wrong on purpose: errors, a full disk, writes that are lost or go elsewhere,
//! and syncs that do not return.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};

use crate::disk::{Disk, Ino};
use crate::log::Op;

/// What a program asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads bytes that the kernel does not have in its page cache.
    Read,
    /// Writes bytes.
    Write,
    /// `fsync` or `fdatasync`, also of a directory.
    Sync,
    /// Needs room: makes a file longer, or a new file, directory or symbolic link.
    Allocate,
}

/// What the disk does instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO, and nothing is done.
    Error,
    /// ENOSPC, and nothing is done.
    Full,
    /// A write says that it is done and is lost; the file has its new length.
    Lost,
    /// A write says that it is done; its bytes are at this offset of this file, a path below the
    /// root of the disk.
    Elsewhere(PathBuf, u64),
    /// Only so many bytes are written, and the disk says so.
    Short(usize),
    /// A sync does not return until [`crate::Recorder::release`].
    Stuck,
}

/// Which calls go wrong, and how.
#[derive(Clone, Debug)]
pub struct Rule {
    call: Call,
    /// The beginning of the path below the root of the disk.
    path: PathBuf,
    /// Only reads and writes that touch these bytes.
    bytes: Option<Range<u64>>,
    /// The first and the last call that goes wrong, counted from 1.
    numbers: (u64, u64),
    fault: Fault,
    met: u64,
    struck: u64,
}

impl Rule {
    /// All calls of a kind, of the file or of all files below the directory at this path below the
    /// root of the disk; of all names with this beginning in the last part.
    #[must_use]
    pub fn new(call: Call, path: impl AsRef<Path>, fault: Fault) -> Rule {
        let path = path.as_ref().to_owned();
        Rule { call, path, bytes: None, numbers: (1, u64::MAX), fault, met: 0, struck: 0 }
    }

    /// Only the call with this number, from 1.
    #[must_use]
    pub fn only(mut self, number: u64) -> Rule {
        self.numbers = (number, number);
        self
    }

    /// The call with this number, from 1, and all that follow.
    #[must_use]
    pub fn from(mut self, number: u64) -> Rule {
        self.numbers = (number, u64::MAX);
        self
    }

    /// Only reads and writes that touch these bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: Range<u64>) -> Rule {
        self.bytes = Some(bytes);
        self
    }

    fn fits(&self, call: Call, path: &Path, bytes: &Range<u64>) -> bool {
        self.call == call
            && path
                .as_os_str()
                .as_encoded_bytes()
                .starts_with(self.path.as_os_str().as_encoded_bytes())
            && self.bytes.as_ref().is_none_or(|of| of.start < bytes.end && bytes.start < of.end)
    }
}

/// The rules of a disk, and the syncs that are stuck.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    held: Vec<(Ino, ReplyEmpty)>,
}

impl Faults {
    pub(crate) fn set(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
    }

    /// For each rule, how many calls fitted it, and how many of them went wrong.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.rules.iter().map(|rule| (rule.met, rule.struck)).collect()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The stuck syncs, to be answered.
    pub(crate) fn take_held(&mut self) -> Vec<(Ino, ReplyEmpty)> {
        std::mem::take(&mut self.held)
    }

    /// Counts a call, and says what goes wrong with it.
    fn meet(&mut self, call: Call, path: &Path, bytes: &Range<u64>) -> Option<Fault> {
        let mut found = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.fits(call, path, bytes)) {
            rule.met += 1;
            if found.is_none() && (rule.numbers.0..=rule.numbers.1).contains(&rule.met) {
                rule.struck += 1;
                found = Some(rule.fault.clone());
            }
        }
        found
    }

    fn error_of(fault: &Fault) -> Errno {
        match fault {
            Fault::Full => Errno::ENOSPC,
            _ => Errno::EIO,
        }
    }

    /// Before bytes of a file are read.
    pub(crate) fn read(&mut self, disk: &Disk, ino: Ino, bytes: Range<u64>) -> Result<(), Errno> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let fault = self.meet(Call::Read, &path_of(disk, ino), &bytes);
        fault.map_or(Ok(()), |fault| Err(Faults::error_of(&fault)))
    }

    /// Before a file, directory or link is made in a directory, or a file is lengthened to `end`.
    pub(crate) fn allocate(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), Errno> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let fault = self.meet(Call::Allocate, &path(), &(0..u64::MAX));
        fault.map_or(Ok(()), |fault| Err(Faults::error_of(&fault)))
    }

    /// What is done in the place of a write, and how many bytes the disk says are written.
    pub(crate) fn write(
        &mut self,
        disk: &Disk,
        ino: Ino,
        off: u64,
        data: &[u8],
    ) -> Result<(Vec<Op>, usize), Errno> {
        let whole = |ino, off, data: &[u8]| Op::Write { ino, off, bytes: Arc::from(data) };
        if self.rules.is_empty() {
            return Ok((vec![whole(ino, off, data)], data.len()));
        }
        let (path, end) = (path_of(disk, ino), off + data.len() as u64);
        let len = disk.bytes(ino).map_or(0, |bytes| bytes.len() as u64);
        let grown = (end > len).then_some(Op::SetLen { ino, len: end });
        let full =
            if grown.is_some() { self.meet(Call::Allocate, &path, &(off..end)) } else { None };
        match full.or_else(|| self.meet(Call::Write, &path, &(off..end))) {
            None => Ok((vec![whole(ino, off, data)], data.len())),
            Some(Fault::Short(count)) => {
                let count = count.min(data.len());
                Ok((vec![whole(ino, off, &data[..count])], count))
            }
            Some(Fault::Lost) => Ok((grown.into_iter().collect(), data.len())),
            Some(Fault::Elsewhere(path, there)) => {
                let other = inode_at(disk, &path).ok_or(Errno::EIO)?;
                let moved = whole(other, there, data);
                Ok((grown.into_iter().chain([moved]).collect(), data.len()))
            }
            Some(fault) => Err(Faults::error_of(&fault)),
        }
    }

    /// Before a sync. Gives the reply back unless the sync is stuck.
    pub(crate) fn sync(
        &mut self,
        disk: &Disk,
        ino: Ino,
        reply: ReplyEmpty,
    ) -> Option<(ReplyEmpty, Result<(), Errno>)> {
        if self.rules.is_empty() {
            return Some((reply, Ok(())));
        }
        match self.meet(Call::Sync, &path_of(disk, ino), &(0..u64::MAX)) {
            None => Some((reply, Ok(()))),
            Some(Fault::Stuck) => {
                self.held.push((ino, reply));
                None
            }
            Some(fault) => Some((reply, Err(Faults::error_of(&fault)))),
        }
    }
}

/// The path of an inode below the root of the disk; empty for the root, and for an inode without a
/// name.
pub(crate) fn path_of(disk: &Disk, wanted: Ino) -> PathBuf {
    let mut todo = vec![(Ino::ROOT, PathBuf::new())];
    while let Some((dir, at)) = todo.pop() {
        let Ok(entries) = disk.entries(dir) else { continue };
        for (name, ino) in entries {
            let path = at.join(name);
            if *ino == wanted {
                return path;
            }
            todo.push((*ino, path));
        }
    }
    PathBuf::new()
}

/// The inode at a path below the root of the disk.
pub(crate) fn inode_at(disk: &Disk, path: &Path) -> Option<Ino> {
    path.iter().try_fold(Ino::ROOT, |dir, name| disk.lookup(dir, name).ok())
}
