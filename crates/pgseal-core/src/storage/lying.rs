//! Storage that says a write is done and did something else: the write is lost, lost in part, or
//! lies in another place or in another file. Only whole sectors go wrong, as on a disk.
//!
//! The storage reads what was written, as a page cache does. What the disk has is another file:
//! [`LyingStorage::disk`]. Lengths are right: they are the file system's, not the sector's.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mem::{MemStorage, read_from, write_to};
use super::{Accelerator, Storage};
use crate::geometry::SECTOR_LEN;
use crate::units::{SealedLen, SealedOff};

/// What becomes of the sectors of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// None of them is written.
    Lost,
    /// Each one is written or lost, as the bits of this number say, lowest first, in a circle.
    LostInPart(u64),
    /// They are written at this sealed offset, rounded down to a sector, and not where they belong.
    To(SealedOff),
    /// They are written into the other file, at this sealed offset, rounded down to a sector.
    ToOtherFile(SealedOff),
}

/// When the storage lies.
#[derive(Clone, Debug, Default)]
pub enum Lies {
    /// Never.
    #[default]
    None,
    /// At these writes, counted from 1 since [`LyingStorage::begin`].
    At(Vec<(u64, Lie)>),
    /// At one of four writes, as this seed says.
    BySeed(u64),
}

/// A file in memory whose disk does not do what it says.
#[derive(Debug, Default)]
pub struct LyingStorage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cache: Vec<u8>,
    disk: Vec<u8>,
    other: Vec<u8>,
    lies: Lies,
    writes: u64,
    told: Vec<Lie>,
}

impl LyingStorage {
    /// An empty file. `other` is what the other file has, which misdirected writes may hit.
    #[must_use]
    pub fn beside(other: Vec<u8>) -> LyingStorage {
        LyingStorage(Mutex::new(State { other, ..State::default() }))
    }

    /// From now on, counted from 1 again, writes go wrong as `lies` says.
    pub fn begin(&self, lies: Lies) {
        let mut state = self.state();
        (state.lies, state.writes) = (lies, 0);
        state.told.clear();
    }

    /// The lies that were told since [`LyingStorage::begin`].
    #[must_use]
    pub fn told(&self) -> Vec<Lie> {
        self.state().told.clone()
    }

    /// The file as its writer believes it to be.
    #[must_use]
    pub fn believed(&self) -> MemStorage {
        MemStorage::with(self.state().cache.clone())
    }

    /// The file as it lies on the disk.
    #[must_use]
    pub fn disk(&self) -> MemStorage {
        MemStorage::with(self.state().disk.clone())
    }

    /// The other file as it lies on the disk.
    #[must_use]
    pub fn other(&self) -> MemStorage {
        MemStorage::with(self.state().other.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The lie of the next write, if there is one. `len` is the length of the file.
    fn next_lie(&mut self) -> Option<Lie> {
        self.writes += 1;
        let lie = match &mut self.lies {
            Lies::None => None,
            Lies::At(lies) => {
                lies.iter().find(|(number, _)| *number == self.writes).map(|(_, lie)| *lie)
            }
            Lies::BySeed(seed) => {
                let mut next = || {
                    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
                    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                    (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) >> 7
                };
                let place = |of: usize, at: u64| SealedOff(at % (of as u64 + 1));
                (next() % 4 == 0).then(|| match next() % 4 {
                    0 => Lie::Lost,
                    1 => Lie::LostInPart(next()),
                    2 => Lie::To(place(self.cache.len(), next())),
                    _ => Lie::ToOtherFile(place(self.other.len(), next())),
                })
            }
        };
        self.told.extend(lie);
        lie
    }
}

/// The offset of the sector that a byte is in.
fn sector_of(off: u64) -> u64 {
    off - off % SECTOR_LEN
}

impl Storage for LyingStorage {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        Ok(read_from(&self.state().cache, buf, off))
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        let mut state = self.state();
        write_to(&mut state.cache, buf, off)?;
        let len = state.cache.len();
        let end = (off.0 + buf.len() as u64).next_multiple_of(SECTOR_LEN).min(len as u64);
        let start = sector_of(off.0);
        let mut sectors = vec![0; usize::try_from(end - start).unwrap_or(0)];
        read_from(&state.cache, &mut sectors, SealedOff(start));
        state.disk.resize(len, 0);
        match state.next_lie() {
            None => write_to(&mut state.disk, &sectors, SealedOff(start)),
            Some(Lie::Lost) => Ok(()),
            Some(Lie::LostInPart(bits)) => {
                for (index, sector) in (0_u32..).zip(sectors.chunks(SECTOR_LEN as usize)) {
                    if bits.rotate_right(index) & 1 == 1 {
                        let at = start + u64::from(index) * SECTOR_LEN;
                        write_to(&mut state.disk, sector, SealedOff(at))?;
                    }
                }
                Ok(())
            }
            Some(Lie::To(at)) => {
                write_to(&mut state.disk, &sectors, SealedOff(sector_of(at.0)))?;
                // Sectors behind the end of the file belong to nobody.
                state.disk.truncate(len);
                Ok(())
            }
            Some(Lie::ToOtherFile(at)) => {
                let len = state.other.len();
                write_to(&mut state.other, &sectors, SealedOff(sector_of(at.0)))?;
                state.other.truncate(len);
                Ok(())
            }
        }
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.state().cache.len() as u64))
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        let len = usize::try_from(len.0).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut state = self.state();
        state.cache.resize(len, 0);
        state.disk.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Accelerator for LyingStorage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lie_is_told_as_it_is_planned() {
        let storage = LyingStorage::beside(vec![1; 1024]);
        storage.write_at(&[2; 2048], SealedOff(0)).unwrap();
        storage.begin(Lies::At(vec![
            (1, Lie::Lost),
            (2, Lie::To(SealedOff(700))),
            (3, Lie::ToOtherFile(SealedOff(512))),
            (5, Lie::LostInPart(0b10)),
        ]));
        for byte in 3..=6_u8 {
            storage.write_at(&[byte; 10], SealedOff(1030)).unwrap();
        }
        // The fourth write brings its whole sector to the disk, the fifth its second sector only.
        storage.write_at(&[7; 1024], SealedOff(0)).unwrap();
        let disk = storage.disk().bytes().clone();
        assert!(disk[..512] == [2; 512], "lost in part");
        assert!(disk[512..1024] == [7; 512]);
        assert!(disk[1030..1040] == [6; 10]);
        assert!(disk[1040..] == [2; 1008]);
        let other = storage.other().bytes().clone();
        assert!(other[..512] == [1; 512] && other[518..528] == [5; 10] && other.len() == 1024);
        assert!(storage.believed().bytes()[..1024] == [7; 1024]);
        assert_eq!(storage.told().len(), 4);
    }
}
