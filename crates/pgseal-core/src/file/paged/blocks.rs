//! The tag blocks that a process keeps, of all its files together.

use super::TAG_BLOCK;
use crate::memory::{self, OutOfMemory};

/// How many tag blocks a process keeps: a scan needs that of the group in which it is, and a query,
/// or a worker that reads for others, scans several files at once.
const BLOCKS: usize = 16;

/// A tag block.
#[derive(Debug, Default)]
pub(super) struct TagBlock {
    /// The change counter of the group before the block was read.
    pub(super) changes: Option<u64>,
    /// When the block was used last.
    used: u64,
    pub(super) bytes: Box<[u8]>,
}

/// Which block it is: the serial number of the file, and the group. Files are numbered from 1, so
/// the default is none.
type Name = (u64, u64);

/// The tag blocks that were read or used last, whatever file they are of: so a process with many
/// open files has no more of them than one with few.
#[derive(Debug, Default)]
pub(in crate::file) struct TagBlocks {
    /// Apart from the blocks, so that a look-up reads few lines of the processor's cache.
    names: [Name; BLOCKS],
    blocks: [TagBlock; BLOCKS],
    /// The block that was used last: a scan uses one again and again.
    last: usize,
    clock: u64,
}

impl TagBlocks {
    fn position(&self, name: Name) -> Option<usize> {
        if self.names.get(self.last) == Some(&name) {
            return Some(self.last);
        }
        self.names.iter().position(|known| *known == name)
    }

    /// The block of a group, if it is here.
    pub(super) fn get(&self, file: u64, group: u64) -> Option<&TagBlock> {
        self.blocks.get(self.position((file, group))?)
    }

    /// As [`TagBlocks::get`], and notes that the block is used.
    pub(super) fn using(&mut self, file: u64, group: u64) -> Option<&mut TagBlock> {
        self.last = self.position((file, group))?;
        self.clock += 1;
        let block = self.blocks.get_mut(self.last)?;
        block.used = self.clock;
        Some(block)
    }

    /// A block for a group, in the place of that which was not used for longest. Until its bytes
    /// are filled, and [`TagBlocks::enter`] was called, it is of no file.
    pub(super) fn take(&mut self, file: u64, group: u64) -> Result<&mut TagBlock, OutOfMemory> {
        if self.using(file, group).is_none() {
            let oldest = self.blocks.iter().enumerate().min_by_key(|(_, block)| block.used);
            self.last = oldest.map_or(0, |(at, _)| at);
        }
        self.names[self.last] = Name::default();
        let block = &mut self.blocks[self.last];
        if block.bytes.is_empty() {
            block.bytes = memory::zeros(TAG_BLOCK)?.into_boxed_slice();
        }
        Ok(block)
    }

    /// The block that was just taken is that of this group.
    pub(super) fn enter(&mut self, file: u64, group: u64) {
        self.clock += 1;
        self.names[self.last] = (file, group);
        self.blocks[self.last].used = self.clock;
    }

    /// Drops the block of a group.
    pub(super) fn drop_group(&mut self, file: u64, group: u64) {
        if let Some(at) = self.position((file, group)) {
            self.drop_at(at);
        }
    }

    /// Drops all blocks of a file.
    pub(super) fn drop_file(&mut self, file: u64) {
        for at in 0..BLOCKS {
            if self.names[at].0 == file {
                self.drop_at(at);
            }
        }
    }

    /// The block makes room first.
    fn drop_at(&mut self, at: usize) {
        self.names[at] = Name::default();
        self.blocks[at].used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(blocks: &mut TagBlocks, file: u64, group: u64) {
        blocks.take(file, group).unwrap().bytes.fill((file * 16 + group) as u8);
        blocks.enter(file, group);
    }

    #[test]
    fn the_block_that_was_not_used_for_longest_makes_room() {
        let mut blocks = TagBlocks::default();
        let most = BLOCKS as u64;
        for file in 1..=most {
            fill(&mut blocks, file, 3);
        }
        assert!(blocks.using(1, 3).is_some());
        fill(&mut blocks, 50, 3);
        assert!(blocks.get(2, 3).is_none(), "that of file 2 was used before all others");
        for file in [1, 50].into_iter().chain(3..=most) {
            let block = blocks.get(file, 3).unwrap();
            assert!(block.bytes.iter().all(|byte| *byte == (file * 16 + 3) as u8), "{file}");
        }
        // One file may have several; the block of a group is there once.
        for group in [3, 4, 4, 5] {
            fill(&mut blocks, 50, group);
        }
        let of_file = |blocks: &TagBlocks| blocks.names.iter().filter(|name| name.0 == 50).count();
        assert_eq!(of_file(&blocks), 3);
        blocks.drop_group(50, 4);
        assert!(blocks.get(50, 4).is_none() && of_file(&blocks) == 2);
        blocks.drop_file(50);
        assert_eq!(of_file(&blocks), 0);
        // What was dropped makes room first.
        let held = |blocks: &TagBlocks| blocks.names.iter().filter(|name| name.0 != 0).count();
        let before = held(&blocks);
        for group in 0..3 {
            fill(&mut blocks, 60, group);
        }
        assert_eq!(held(&blocks), before + 3);
    }
}
