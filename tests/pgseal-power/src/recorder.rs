//! A FUSE file system in memory that records every change.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, SessionACL, TimeOrNow, WriteFlags,
};

use crate::disk::{Disk, DiskError, Ino, Node, as_usize};
use crate::faults::{Faults, Rule, inode_at, path_of};
use crate::log::{Log, Op};

/// How long the kernel may cache entries and attributes: long, since nobody else changes the disk.
const TTL: Duration = Duration::from_secs(3600);
/// `FALLOC_FL_KEEP_SIZE` of `fallocate(2)`.
const KEEP_SIZE: i32 = 1;

/// A recording disk. The mounted file system and the test share the same state.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    disk: Disk,
    base: Disk,
    log: Log,
    /// The next free inode number.
    next: u64,
    changed: HashMap<Ino, SystemTime>,
    faults: Faults,
}

/// A mounted recorder; dropping it unmounts the file system.
#[derive(Debug)]
pub struct Mounted {
    /// The recorder that is mounted.
    pub recorder: Recorder,
    session: Option<BackgroundSession>,
    at: PathBuf,
}

impl Recorder {
    /// An empty disk whose root directory belongs to this user and group.
    #[must_use]
    pub fn new(owner: (u32, u32)) -> Recorder {
        Recorder::of(Disk::new(0o755, owner))
    }

    /// A disk with this content, all of it durable.
    #[must_use]
    pub fn of(disk: Disk) -> Recorder {
        let next = disk.newest().0 + 1;
        let state = State {
            base: disk.clone(),
            disk,
            log: Log::default(),
            next,
            changed: HashMap::new(),
            faults: Faults::default(),
        };
        Recorder(Arc::new(Mutex::new(state)))
    }

    /// Mounts the recorder at an existing directory, for all users.
    ///
    /// # Errors
    /// When the kernel has no FUSE, or this user may not mount.
    pub fn mount(&self, at: &Path) -> io::Result<Mounted> {
        let mut config = Config::default();
        let name = MountOption::FSName("pgseal-power".to_owned());
        config.mount_options = vec![name, MountOption::DefaultPermissions, MountOption::NoAtime];
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(self.clone(), at, &config)?;
        Ok(Mounted { recorder: self.clone(), session: Some(session), at: at.to_owned() })
    }

    /// Starts the recording: the current content becomes the durable base, and the log is emptied.
    pub fn begin(&self) {
        let mut state = self.state();
        state.base = state.disk.clone();
        state.log = Log::default();
    }

    /// Writes a mark into the log.
    pub fn mark(&self, mark: u64) {
        self.state().log.push(Op::Mark(mark));
    }

    /// How many operations the log has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().log.ops().len()
    }

    /// Whether nothing has happened since [`Recorder::begin`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The disk at the beginning of the log, and the log.
    #[must_use]
    pub fn recorded(&self) -> (Disk, Log) {
        let state = self.state();
        (state.base.clone(), state.log.clone())
    }

    /// The disk as it is now, synced or not.
    #[must_use]
    pub fn now(&self) -> Disk {
        self.state().disk.clone()
    }

    /// From now on the disk does wrong as these rules say, and the counts begin anew. No rules: it
    /// does right.
    pub fn set_faults(&self, rules: Vec<Rule>) {
        self.state().faults.set(rules);
    }

    /// For each rule, how many calls fitted it, and how many of them went wrong.
    #[must_use]
    pub fn fault_counts(&self) -> Vec<(u64, u64)> {
        self.state().faults.counts()
    }

    /// How many syncs are stuck.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.state().faults.held()
    }

    /// Lets the stuck syncs return.
    pub fn release(&self) {
        let mut state = self.state();
        for (ino, reply) in state.faults.take_held() {
            empty(reply, state.perform(Op::Sync { ino }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mounted {
    /// Unmounts the file system.
    ///
    /// # Errors
    /// When a process still uses the file system.
    pub fn unmount(mut self) -> io::Result<()> {
        match self.session.take() {
            Some(session) => session.umount_and_join(),
            None => Ok(()),
        }
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes the kernel forget what it has of a file in its page cache, so that the next read asks
    /// the disk. The path is below the root of the disk.
    ///
    /// # Errors
    /// When there is no such file, or the kernel refuses.
    pub fn forget(&self, path: &Path) -> io::Result<()> {
        let ino = inode_at(&self.recorder.state().disk, path);
        let ino = ino.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let session = self.session.as_ref().ok_or_else(|| io::Error::other("unmounted"))?;
        session.notifier().inval_inode(INodeNo(ino.0), 0, 0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever waits for a stuck sync cannot end.
        self.recorder.set_faults(Vec::new());
        self.recorder.release();
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

impl State {
    /// Applies an operation to the disk and records it in the log.
    fn perform(&mut self, op: Op) -> Result<(), Errno> {
        self.disk.apply(&op).map_err(errno)?;
        let now = SystemTime::now();
        match &op {
            Op::Write { ino, .. }
            | Op::SetLen { ino, .. }
            | Op::Create { ino, .. }
            | Op::MakeDir { ino, .. }
            | Op::Symlink { ino, .. } => {
                self.changed.insert(*ino, now);
            }
            _ => {}
        }
        for ino in op.journaled_for() {
            self.changed.insert(ino, now);
        }
        self.log.push(op);
        Ok(())
    }

    fn attr(&self, ino: Ino) -> Result<FileAttr, Errno> {
        let inode = self.disk.inode(ino).map_err(errno)?;
        let (kind, size) = match &inode.node {
            Node::File(bytes) => (FileType::RegularFile, bytes.len()),
            Node::Dir(_) => (FileType::Directory, 4096),
            Node::Link(target) => (FileType::Symlink, target.as_os_str().len()),
        };
        let size = size as u64;
        let time = self.changed.get(&ino).copied().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(FileAttr {
            ino: INodeNo(ino.0),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: (inode.mode & 0o7777) as u16,
            nlink: inode.names,
            uid: inode.owner.0,
            gid: inode.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Creates a new inode with the operation that `op` makes for its number.
    fn make(
        &mut self,
        parent: Ino,
        name: &OsStr,
        op: impl FnOnce(Ino) -> Op,
    ) -> Result<FileAttr, Errno> {
        let State { faults, disk, .. } = self;
        faults.allocate(|| path_of(disk, parent).join(name))?;
        let ino = Ino(self.next);
        self.next += 1;
        self.perform(op(ino))?;
        self.attr(ino)
    }

    /// Changes the length of a file.
    fn set_len(&mut self, ino: Ino, len: u64) -> Result<(), Errno> {
        let State { faults, disk, .. } = self;
        if len > disk.bytes(ino).map_err(errno)?.len() as u64 {
            faults.allocate(|| path_of(disk, ino))?;
        }
        self.perform(Op::SetLen { ino, len })
    }

    fn set_attributes(
        &mut self,
        ino: Ino,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        len: Option<u64>,
    ) -> Result<FileAttr, Errno> {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            let inode = self.disk.inode(ino).map_err(errno)?;
            let owner = (uid.unwrap_or(inode.owner.0), gid.unwrap_or(inode.owner.1));
            let mode = mode.map_or(inode.mode, |mode| mode & 0o7777);
            self.perform(Op::Attributes { ino, mode, owner })?;
        }
        if let Some(len) = len {
            self.set_len(ino, len)?;
        }
        self.attr(ino)
    }

    fn remove(&mut self, parent: Ino, name: &OsStr, dir: bool) -> Result<(), Errno> {
        let ino = self.disk.lookup(parent, name).map_err(errno)?;
        let name = name.to_owned();
        self.perform(match dir {
            true => Op::RemoveDir { ino, parent, name },
            false => Op::Unlink { ino, parent, name },
        })
    }

    fn sync(&mut self, ino: Ino, reply: ReplyEmpty) {
        let State { faults, disk, .. } = self;
        if let Some((reply, done)) = faults.sync(disk, ino, reply) {
            empty(reply, done.and_then(|()| self.perform(Op::Sync { ino })));
        }
    }

    fn allocate(&mut self, ino: Ino, end: u64, mode: i32) -> Result<(), Errno> {
        let len = self.disk.bytes(ino).map_err(errno)?.len() as u64;
        match mode {
            0 if end > len => self.set_len(ino, end),
            0 | KEEP_SIZE => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn errno(error: DiskError) -> Errno {
    match error {
        DiskError::Missing => Errno::ENOENT,
        DiskError::Taken => Errno::EEXIST,
        DiskError::NotADirectory => Errno::ENOTDIR,
        DiskError::ADirectory => Errno::EISDIR,
        DiskError::NotEmpty => Errno::ENOTEMPTY,
        DiskError::NotAFile => Errno::EINVAL,
    }
}

fn ino_of(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

fn entry(reply: ReplyEntry, made: Result<FileAttr, Errno>) {
    match made {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Recorder {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        let ino = state.disk.lookup(ino_of(parent), name).map_err(errno);
        entry(reply, ino.and_then(|ino| state.attr(ino)));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, _nlookup: u64) {
        let mut state = self.state();
        state.disk.forget(ino_of(ino));
        if state.disk.inode(ino_of(ino)).is_err() {
            state.changed.remove(&ino_of(ino));
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attr(ino_of(ino)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.state().set_attributes(ino_of(ino), mode, uid, gid, size) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let state = self.state();
        match state.disk.inode(ino_of(ino)).map(|inode| &inode.node) {
            Ok(Node::Link(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (req.uid(), req.gid());
        let (parent, mode) = (ino_of(parent), mode & !umask & 0o7777);
        let op = |ino| Op::MakeDir { parent, name: name.to_owned(), ino, mode, owner };
        let made = self.state().make(parent, name, op);
        entry(reply, made);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = (req.uid(), req.gid());
        let (parent, mode) = (ino_of(parent), mode & !umask & 0o7777);
        let op = |ino| Op::Create { parent, name: name.to_owned(), ino, mode, owner };
        match self.state().make(parent, name, op) {
            Ok(attr) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let owner = (req.uid(), req.gid());
        let parent = ino_of(parent);
        let (name, target) = (link_name.to_owned(), target.to_owned());
        let op = |ino| Op::Symlink { parent, name, ino, target, owner };
        let made = self.state().make(parent, link_name, op);
        entry(reply, made);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut state = self.state();
        let (ino, parent, name) = (ino_of(ino), ino_of(newparent), newname.to_owned());
        let done = state.perform(Op::Link { ino, parent, name });
        entry(reply, done.and_then(|()| state.attr(ino)));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.state().remove(ino_of(parent), name, false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.state().remove(ino_of(parent), name, true));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let (parent, new_parent) = (ino_of(parent), ino_of(newparent));
        let taken = state.disk.lookup(new_parent, newname).is_ok();
        let done = match (state.disk.lookup(parent, name), flags) {
            (Err(error), _) => Err(errno(error)),
            (Ok(_), RenameFlags::RENAME_NOREPLACE) if taken => Err(Errno::EEXIST),
            (Ok(ino), flags) if (flags - RenameFlags::RENAME_NOREPLACE).is_empty() => {
                let (name, new_name) = (name.to_owned(), newname.to_owned());
                state.perform(Op::Rename { ino, parent, name, new_parent, new_name })
            }
            _ => Err(Errno::EINVAL),
        };
        empty(reply, done);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.state();
        let State { faults, disk, .. } = &mut *state;
        let range = offset..offset.saturating_add(u64::from(size));
        if let Err(error) = faults.read(disk, ino_of(ino), range) {
            return reply.error(error);
        }
        match disk.bytes(ino_of(ino)) {
            Ok(bytes) => {
                let start = as_usize(offset).min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[start..end]);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let State { faults, disk, .. } = &mut *state;
        let done = faults.write(disk, ino_of(ino), offset, data).and_then(|(ops, count)| {
            ops.into_iter().try_for_each(|op| state.perform(op)).map(|()| count)
        });
        match done {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.state().sync(ino_of(ino), reply);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.state().sync(ino_of(ino), reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        let entries = match state.disk.entries(ino_of(ino)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(error)),
        };
        // The offset of an entry is its inode number plus 2, so that removing an entry while the
        // directory is read does not shift the other entries.
        let mut there: Vec<_> =
            entries.iter().map(|(name, ino)| (*ino, name.as_os_str())).collect();
        there.sort();
        let dots = [(1, "."), (2, "..")].map(|(at, name)| (at, ino_of(ino), OsStr::new(name)));
        let named = there.into_iter().map(|(ino, name)| (ino.0 + 2, ino, name));
        for (at, ino, name) in dots.into_iter().chain(named).filter(|(at, ..)| *at > offset) {
            let kind = match state.disk.inode(ino).map(|inode| &inode.node) {
                Ok(Node::File(_)) => FileType::RegularFile,
                Ok(Node::Link(_)) => FileType::Symlink,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(ino.0), at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 22;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = offset.saturating_add(length);
        empty(reply, self.state().allocate(ino_of(ino), end, mode));
    }
}
