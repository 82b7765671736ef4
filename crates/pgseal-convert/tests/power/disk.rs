//! A simulated disk that loses what was not synced at a power cut: bytes of files, and names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgseal_convert::Media;
use pgseal_core::storage::crash::CrashStorage;
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::{SealedLen, SealedOff};

type Inode = Arc<CrashStorage>;

#[derive(Clone, Debug)]
enum NameOp {
    Add(PathBuf, Inode),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameOp {
    fn dirs(&self) -> BTreeSet<PathBuf> {
        let dir = |path: &Path| path.parent().expect("a directory").to_owned();
        match self {
            NameOp::Add(path, _) | NameOp::Remove(path) => [dir(path)].into(),
            NameOp::Rename(from, to) => [dir(from), dir(to)].into(),
        }
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, Inode>) {
        match self {
            NameOp::Add(path, inode) => {
                names.insert(path, inode);
            }
            NameOp::Remove(path) => {
                names.remove(&path);
            }
            NameOp::Rename(from, to) => {
                let inode = names.remove(&from).expect("the file that is renamed");
                names.insert(to, inode);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<PathBuf, Inode>,
    durable: BTreeMap<PathBuf, Inode>,
    /// Changes of names that a power cut may lose. Within a directory, it loses the latest first.
    pending: Vec<NameOp>,
}

impl State {
    fn change(&mut self, op: NameOp) {
        op.clone().apply(&mut self.live);
        self.pending.push(op);
    }
}

/// The disk.
#[derive(Debug, Default)]
pub struct PowerDisk(Mutex<State>);

/// A file on it.
#[derive(Debug)]
pub struct PowerFile(Inode);

impl PowerDisk {
    /// A disk with these files, all of them synced.
    pub fn with(files: &[(&str, Vec<u8>)]) -> PowerDisk {
        let inode = |bytes: &Vec<u8>| Arc::new(CrashStorage::with(bytes.clone()));
        let live: BTreeMap<PathBuf, Inode> =
            files.iter().map(|(path, bytes)| (PathBuf::from(path), inode(bytes))).collect();
        PowerDisk(Mutex::new(State { durable: live.clone(), live, pending: Vec::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk after a power cut; `seed` chooses what is lost.
    pub fn cut(&self, seed: u64) -> PowerDisk {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 33
        };
        let state = self.state();
        let mut names = state.durable.clone();
        // A file system keeps the order of changes within a directory.
        let mut lost: BTreeSet<PathBuf> = BTreeSet::new();
        let kept_of_8 = [8, 6, 3, 0][(next() % 4) as usize];
        for op in &state.pending {
            let dirs = op.dirs();
            if dirs.is_disjoint(&lost) && next() % 8 < kept_of_8 {
                op.clone().apply(&mut names);
            } else {
                lost.extend(dirs);
            }
        }
        let after = |inode: Inode, seed| {
            let bytes = inode.crash_by_seed(seed).bytes().clone();
            Arc::new(CrashStorage::with(bytes))
        };
        let live: BTreeMap<PathBuf, Inode> =
            names.into_iter().map(|(path, inode)| (path, after(inode, next()))).collect();
        PowerDisk(Mutex::new(State { durable: live.clone(), live, pending: Vec::new() }))
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().live.keys().cloned().collect()
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.state().live.get(path).cloned()?;
        Some(inode.crash(|_| true).bytes().clone())
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Media for PowerDisk {
    type File = PowerFile;

    fn open(&self, path: &Path) -> io::Result<PowerFile> {
        self.state().live.get(path).cloned().map(PowerFile).ok_or_else(missing)
    }

    fn create(&self, path: &Path, _like: &Path) -> io::Result<PowerFile> {
        let mut state = self.state();
        if state.live.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = Inode::default();
        state.change(NameOp::Add(path.to_owned(), Arc::clone(&inode)));
        Ok(PowerFile(inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.live.contains_key(from) {
            return Err(missing());
        }
        state.change(NameOp::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.live.get(from).cloned().ok_or_else(missing)?;
        state.change(NameOp::Add(to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.live.contains_key(path) {
            state.change(NameOp::Remove(path.to_owned()));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        // Syncs all changes in the directory, and earlier changes elsewhere that they depend on.
        let mut dirs: BTreeSet<PathBuf> = [dir.to_owned()].into();
        let pending = std::mem::take(&mut state.pending);
        let mut kept = Vec::new();
        let mut synced = Vec::new();
        for op in pending.into_iter().rev() {
            if op.dirs().is_disjoint(&dirs) {
                kept.push(op);
            } else {
                dirs.extend(op.dirs());
                synced.push(op);
            }
        }
        for op in synced.into_iter().rev() {
            op.apply(&mut state.durable);
        }
        state.pending = kept.into_iter().rev().collect();
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().live.contains_key(path))
    }
}

impl Storage for PowerFile {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        self.0.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        self.0.write_at(buf, off)
    }

    fn len(&self) -> io::Result<SealedLen> {
        self.0.len()
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Accelerator for PowerFile {}
