//! Storage that forgets: what a power cut leaves of a file (`spec/media.md`).
//!
//! Every write and every change of length since the last sync may have reached the disk or not, in
//! any combination. A write is torn at 512-byte sectors, each kept or lost on its own. A kept
//! sector holds what the page cache held of it after that write, because a disk writes whole
//! sectors. If a change of length is kept, all changes of length before it are kept too: an inode
//! has one length and one list of blocks, which no longer has the blocks that an earlier cut took
//! away.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mem::{MemStorage, read_from, write_to};
use super::{Accelerator, Storage};
use crate::geometry::SECTOR_LEN;
use crate::units::{SealedLen, SealedOff};

const SECTOR: usize = SECTOR_LEN as usize;

/// A file in memory that records what a power cut could take away.
#[derive(Debug, Default)]
pub struct CrashStorage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<Unsynced>,
}

#[derive(Debug)]
enum Unsynced {
    /// A write: the sectors that it touched, each with its offset and with the bytes that the file
    /// had in it after the write.
    Write {
        sectors: Vec<(usize, Vec<u8>)>,
        end: usize,
    },
    SetLen(usize),
}

/// A part of an unsynced operation that a power cut keeps or loses. `op` counts the operations
/// since the last sync, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One sector of a write; `sector` is its number in the file.
    Sector {
        /// The operation.
        op: usize,
        /// The number of the sector in the file.
        sector: u64,
    },
    /// The file length that a write reached, even where its last sectors are lost.
    Length {
        /// The operation.
        op: usize,
    },
    /// A change of the length.
    SetLen {
        /// The operation.
        op: usize,
    },
}

impl CrashStorage {
    /// A file with these bytes, all of them synced.
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> CrashStorage {
        CrashStorage(Mutex::new(State { live: bytes.clone(), durable: bytes, log: Vec::new() }))
    }

    /// Operations since the last sync.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.state().log.len()
    }

    /// The file after a power cut that keeps the parts for which `keep` returns true, and all
    /// changes of length before the last kept one.
    #[must_use]
    pub fn crash(&self, mut keep: impl FnMut(Part) -> bool) -> MemStorage {
        let state = self.state();
        let mut disk = state.durable.clone();
        let set_len_ops =
            state.log.iter().enumerate().filter(|(_, op)| matches!(op, Unsynced::SetLen(_)));
        let cut_up_to =
            set_len_ops.map(|(op, _)| op).filter(|op| keep(Part::SetLen { op: *op })).last();
        for (op, unsynced) in state.log.iter().enumerate() {
            match unsynced {
                Unsynced::Write { sectors, end } => {
                    for (start, image) in sectors {
                        if keep(Part::Sector { op, sector: (start / SECTOR) as u64 }) {
                            keep_sector(&mut disk, *start, image);
                        }
                    }
                    if keep(Part::Length { op }) && disk.len() < *end {
                        disk.resize(*end, 0);
                    }
                }
                Unsynced::SetLen(len) => {
                    if cut_up_to >= Some(op) {
                        disk.resize(*len, 0);
                    }
                }
            }
        }
        MemStorage::with(disk)
    }

    /// The file after a power cut that `seed` chooses. Some seeds lose all unsynced parts, some
    /// keep all, most lose some.
    #[must_use]
    pub fn crash_by_seed(&self, seed: u64) -> MemStorage {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 33
        };
        let kept_of_8 = [4, 1, 7, 4, 0, 8][(next() % 6) as usize];
        self.crash(|_| next() % 8 < kept_of_8)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the kept bytes of a sector to the disk and fills the rest of the sector with zeros:
/// behind the end of the file, the page cache holds zeros.
fn keep_sector(disk: &mut Vec<u8>, start: usize, image: &[u8]) {
    if disk.len() < start + image.len() {
        disk.resize(start + image.len(), 0);
    }
    let stop = disk.len().min(start + SECTOR);
    disk[start..start + image.len()].copy_from_slice(image);
    disk[start + image.len()..stop].fill(0);
}

impl Storage for CrashStorage {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        Ok(read_from(&self.state().live, buf, off))
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        let mut state = self.state();
        write_to(&mut state.live, buf, off)?;
        let start = usize::try_from(off.0).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start + buf.len();
        let sectors = (start - start % SECTOR..end)
            .step_by(SECTOR)
            .map(|at| (at, state.live[at..state.live.len().min(at + SECTOR)].to_vec()))
            .collect();
        state.log.push(Unsynced::Write { sectors, end });
        Ok(())
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.state().live.len() as u64))
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        let len = usize::try_from(len.0).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut state = self.state();
        state.live.resize(len, 0);
        state.log.push(Unsynced::SetLen(len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.durable = state.live.clone();
        state.log.clear();
        Ok(())
    }
}

impl Accelerator for CrashStorage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_is_sure_to_survive() {
        let disk = CrashStorage::default();
        disk.write_at(&[1; 700], SealedOff(0)).unwrap();
        disk.sync().unwrap();
        disk.write_at(&[2; 1024], SealedOff(256)).unwrap();
        disk.set_len(SealedLen(600)).unwrap();
        assert_eq!(*disk.crash(|_| false).bytes(), [1; 700]);
        assert_eq!(disk.crash(|_| true).bytes().len(), 600);
        assert_eq!(disk.unsynced(), 2);

        let torn = disk.crash(|part| part == Part::Sector { op: 0, sector: 1 });
        let torn = torn.bytes();
        assert_eq!((torn.len(), torn[511], torn[512], torn[1023]), (1024, 1, 2, 2));

        let grown = disk.crash(|part| part == Part::Length { op: 0 });
        let grown = grown.bytes();
        assert_eq!((grown.len(), grown[699], grown[700]), (1280, 1, 0));
    }

    #[test]
    fn changes_of_length_survive_in_order() {
        let disk = CrashStorage::with(vec![1; 600]);
        disk.set_len(SealedLen(1)).unwrap();
        disk.set_len(SealedLen(500)).unwrap();
        disk.set_len(SealedLen(900)).unwrap();
        let last = disk.crash(|part| part == Part::SetLen { op: 1 });
        let last = last.bytes();
        assert_eq!((last.len(), last[0], last[1], last[499]), (500, 1, 0, 0));
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let disk = CrashStorage::default();
        for sector in 0..64 {
            disk.write_at(&[7; 512], SealedOff(sector * 512)).unwrap();
        }
        let images: std::collections::HashSet<Vec<u8>> =
            (0..50).map(|seed| disk.crash_by_seed(seed).bytes().clone()).collect();
        assert!(images.len() > 10, "{}", images.len());
        assert_eq!(*disk.crash_by_seed(3).bytes(), *disk.crash_by_seed(3).bytes());
    }
}
