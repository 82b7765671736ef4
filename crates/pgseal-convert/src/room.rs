//! Whether there is room: for what grows, and for the largest files, which are there twice.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The unit in which file systems give room, in bytes; what a file takes is rounded up to it.
const UNIT: u64 = 4096;
/// For the journal, directories that grow, and what the file system itself needs.
const SPARE: u64 = 1 << 20;

/// A file that will be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The file system that it lies on.
    pub dev: u64,
    /// Bytes now.
    pub old_len: u64,
    /// Bytes then.
    pub new_len: u64,
    /// Whether the room of the old one is free afterwards: not if it has other names.
    pub frees_old: bool,
}

/// The bytes that each file system must have free when `jobs` files are replaced at once.
#[must_use]
pub fn needed(replacements: &[Replacement], jobs: usize) -> BTreeMap<u64, u64> {
    let mut by_dev: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    for replacement in replacements {
        let (old, new) = (whole_units(replacement.old_len), whole_units(replacement.new_len));
        let freed = if replacement.frees_old { old } else { 0 };
        let (growth, sizes) = by_dev.entry(replacement.dev).or_default();
        *growth += new.saturating_sub(freed);
        sizes.push(new.min(freed));
    }
    let total = |(growth, mut sizes): (u64, Vec<u64>)| {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        growth + sizes.iter().take(jobs).sum::<u64>() + SPARE
    };
    by_dev.into_iter().map(|(dev, of)| (dev, total(of))).collect()
}

fn whole_units(len: u64) -> u64 {
    len.next_multiple_of(UNIT)
}

/// Bytes that an ordinary user may still write to the file system of a directory.
///
/// # Errors
/// Those of the file system.
pub fn free(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replacement(dev: u64, old_len: u64, new_len: u64) -> Replacement {
        Replacement { dev, old_len, new_len, frees_old: true }
    }

    #[test]
    fn the_largest_file_is_there_twice_and_growth_stays() {
        let all = [replacement(1, 8192, 24_576), replacement(1, 1 << 20, (1 << 20) + 16_384)];
        let one = needed(&all, 1)[&1];
        assert_eq!(one, 16_384 + 16_384 + (1 << 20) + SPARE);
        assert_eq!(needed(&all, 2)[&1], one + 8192);
        assert_eq!(needed(&all, 9)[&1], one + 8192);
    }

    #[test]
    fn a_file_with_other_names_gives_nothing_back() {
        let mut only = replacement(3, 1 << 20, 1 << 20);
        assert_eq!(needed(&[only], 1)[&3], (1 << 20) + SPARE);
        only.frees_old = false;
        assert_eq!(needed(&[only, only], 1)[&3], (2 << 20) + SPARE);
    }

    #[test]
    fn file_systems_are_counted_apart() {
        let all = [replacement(1, 0, 4096), replacement(2, 0, 8192)];
        let needed = needed(&all, 1);
        assert_eq!((needed[&1], needed[&2]), (4096 + SPARE, 8192 + SPARE));
    }
}
