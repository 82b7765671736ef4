//! The disk that a power cut leaves.

use std::collections::{BTreeMap, HashMap};

use fastrand::Rng;

use crate::disk::{Disk, Ino, as_usize, write_at};
use crate::log::{Log, Op};

/// The unit that the disk writes atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 512 bytes: `spec/media.md` requires atomic sectors.
    Sector,
    /// 4096 bytes: the kernel writes its page cache in pages.
    Page,
    /// One whole `write` call.
    Write,
}

impl Unit {
    /// The length of the unit in bytes; `None` for a whole `write` call.
    fn len(self) -> Option<u64> {
        match self {
            Unit::Sector => Some(512),
            Unit::Page => Some(4096),
            Unit::Write => None,
        }
    }
}

/// A power cut, before operation `at` of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How many operations happened before the cut.
    pub at: usize,
    /// The seed that decides which unsynced changes survive.
    pub seed: u64,
    /// How the seed decides.
    pub survival: Survival,
}

/// Which unsynced changes survive a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Each one survives or not.
    Any,
    /// All survive: the disk stops between two operations. For a cut that is aimed at the place
    /// between two writes that belong together.
    All,
}

/// The disk after a cut, and the random choices that made it.
#[derive(Clone, Debug)]
pub struct Image {
    /// The content of the disk.
    pub disk: Disk,
    /// The unit that was written atomically.
    pub unit: Unit,
    /// The probability that an unsynced unit is on the disk.
    pub kept: f64,
    /// The operations on names before this index of the log are on the disk.
    pub names_at: usize,
}

impl Cut {
    /// The disk after this cut. `base` is the disk before the first operation of the log.
    #[must_use]
    pub fn image(&self, base: &Disk, log: &Log) -> Image {
        let ops = &log.ops()[..self.at.min(log.ops().len())];
        let mut rng = Rng::with_seed(self.seed);
        let unit = [Unit::Sector, Unit::Page, Unit::Write][rng.usize(0..3)];
        let kept = [0.0, 0.1, 0.5, 0.9, 1.0][rng.usize(0..5)];
        let durable = Durable::of(ops);
        let names_at = match rng.u8(0..4) {
            0 => durable.names_at,
            1 => rng.usize(durable.names_at..=ops.len()),
            _ => ops.len(),
        };
        let is_whole = self.survival == Survival::All;
        let (unit, kept, names_at) = match is_whole {
            true => (Unit::Write, 1.0, ops.len()),
            false => (unit, kept, names_at),
        };
        let mut disk = base.clone();
        for op in ops[..names_at].iter().filter(|op| !op.journaled_for().is_empty()) {
            // An error cannot occur: the same operation succeeded on the recorded disk in the same
            // state.
            let _ = disk.apply(op);
        }
        let mut unsynced: BTreeMap<Ino, Vec<&Op>> = BTreeMap::new();
        for (at, op) in ops.iter().enumerate() {
            let (Op::Write { ino, .. } | Op::SetLen { ino, .. }) = op else { continue };
            if durable.synced.get(ino).is_some_and(|synced| at < *synced) {
                // An error means that the file has no name on the disk; its bytes are lost, too.
                let _ = disk.apply(op);
            } else {
                unsynced.entry(*ino).or_default().push(op);
            }
        }
        for (ino, ops) in &unsynced {
            if let Ok(bytes) = disk.bytes_mut(*ino) {
                let lengths = if is_whole { ops.len() } else { lengths_of(ops, &mut rng) };
                tear(bytes, ops, lengths, (unit, kept), &mut rng);
            }
        }
        Image { disk, unit, kept, names_at }
    }
}

/// What the syncs in a log make durable.
struct Durable {
    /// For each inode the index of its last `fsync`.
    synced: HashMap<Ino, usize>,
    /// All operations on names before this index of the log are durable.
    names_at: usize,
}

impl Durable {
    fn of(ops: &[Op]) -> Durable {
        let mut durable = Durable { synced: HashMap::new(), names_at: 0 };
        let mut named: HashMap<Ino, usize> = HashMap::new();
        for (at, op) in ops.iter().enumerate() {
            for ino in op.journaled_for() {
                named.insert(ino, at + 1);
            }
            if let Op::Sync { ino } = op {
                durable.synced.insert(*ino, at);
                durable.names_at = durable.names_at.max(named.get(ino).copied().unwrap_or(0));
            }
        }
        durable
    }
}

/// How many of the unsynced operations of a file have their change of the length on the disk.
fn lengths_of(ops: &[&Op], rng: &mut Rng) -> usize {
    match rng.u8(0..3) {
        0 => 0,
        1 => ops.len(),
        _ => rng.usize(0..=ops.len()),
    }
}

/// Applies a random part of the unsynced operations of one file. Each unit of a write survives
/// independently; changes of the length survive in the first `lengths` operations.
fn tear(
    bytes: &mut Vec<u8>,
    ops: &[&Op],
    lengths: usize,
    (unit, kept): (Unit, f64),
    rng: &mut Rng,
) {
    let mut len = bytes.len();
    for (at, op) in ops.iter().enumerate() {
        let has_length = at < lengths;
        match op {
            Op::Write { off, bytes: written, .. } => {
                for (start, part) in units(*off, written, unit) {
                    if rng.f64() < kept {
                        write_at(bytes, start, part);
                    }
                }
                if has_length {
                    len = len.max(as_usize(*off) + written.len());
                }
            }
            Op::SetLen { len: new, .. } if has_length => {
                len = as_usize(*new);
                bytes.truncate(len);
            }
            _ => {}
        }
    }
    bytes.resize(len, 0);
}

/// Splits a write into its atomic units, each with its offset in the file.
fn units(off: u64, bytes: &[u8], unit: Unit) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    let mut at = off;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let here = unit.len().map_or(rest.len(), |len| as_usize(len - at % len).min(rest.len()));
        let (part, behind) = rest.split_at(here);
        let start = at;
        rest = behind;
        at += here as u64;
        Some((start, part))
    })
}

#[cfg(test)]
mod tests;
