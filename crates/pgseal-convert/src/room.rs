//! How much free space a conversion needs: for files that grow, and for the files being replaced,
//! which exist twice for a while.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The unit in which file systems allocate space, in bytes. The size of a file is rounded up to it.
const UNIT: u64 = 4096;
/// Extra bytes for the journal, for growing directories, and for the file system itself.
const SPARE: u64 = 1 << 20;

/// A file that will be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The number of the file system that holds the file.
    pub dev: u64,
    /// Length of the old file in bytes.
    pub old_len: u64,
    /// Length of the new file in bytes.
    pub new_len: u64,
    /// Whether replacing the old file frees its space. It does not if the file has other names.
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
/// Errors of the file system.
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
    fn growth_and_a_second_copy_of_the_largest_file_are_counted() {
        let all = [replacement(1, 8192, 24_576), replacement(1, 1 << 20, (1 << 20) + 16_384)];
        let one = needed(&all, 1)[&1];
        assert_eq!(one, 16_384 + 16_384 + (1 << 20) + SPARE);
        assert_eq!(needed(&all, 2)[&1], one + 8192);
        assert_eq!(needed(&all, 9)[&1], one + 8192);
    }

    #[test]
    fn replacing_a_file_with_other_names_frees_nothing() {
        let mut only = replacement(3, 1 << 20, 1 << 20);
        assert_eq!(needed(&[only], 1)[&3], (1 << 20) + SPARE);
        only.frees_old = false;
        assert_eq!(needed(&[only, only], 1)[&3], (2 << 20) + SPARE);
    }

    #[test]
    fn each_file_system_is_counted_separately() {
        let all = [replacement(1, 0, 4096), replacement(2, 0, 8192)];
        let needed = needed(&all, 1);
        assert_eq!((needed[&1], needed[&2]), (4096 + SPARE, 8192 + SPARE));
    }
}
