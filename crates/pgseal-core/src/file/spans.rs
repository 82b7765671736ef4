//! A range of plain bytes, cut into the pieces that reading and writing handle one at a time.

use core::ops::Range;

use super::BLOCK;
use crate::geometry::{BLOCK_LEN, GROUP_PAGES};
use crate::units::BlockNo;

/// A piece of a range: neighbouring whole blocks, or bytes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The block in which the piece starts.
    pub(super) block: BlockNo,
    /// How many bytes of that block lie before the piece.
    pub(super) in_block: usize,
    /// How many bytes of the range lie before the piece.
    pub(super) at: usize,
    /// The bytes of the piece; never 0.
    pub(super) len: usize,
}

impl Span {
    /// The plain offset of the piece.
    pub(super) fn off(&self) -> u64 {
        self.block.0 * BLOCK_LEN + self.in_block as u64
    }

    /// The plain offset of the first byte behind the piece.
    pub(super) fn end(&self) -> u64 {
        self.off() + self.len as u64
    }

    /// Where the bytes of the piece are in the buffer of the whole range.
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }

    /// Whether the piece is made of whole blocks.
    pub(super) fn is_whole(&self) -> bool {
        self.in_block == 0 && self.len.is_multiple_of(BLOCK)
    }

    /// Copies the bytes of the piece from `block`, which holds as much of the block as the file
    /// has. Returns the number of bytes copied.
    pub(super) fn copy_from(&self, block: &[u8], target: &mut [u8]) -> usize {
        let bytes = block.get(self.in_block..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(self.len)];
        target[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    /// How many blocks the piece touches.
    pub(super) fn blocks(&self) -> usize {
        (self.in_block + self.len).div_ceil(BLOCK)
    }
}

/// The pieces of a range, in order; see [`spans`].
#[derive(Clone, Debug)]
pub(super) struct Spans {
    off: u64,
    at: u64,
    len: u64,
    /// The most blocks of one piece.
    most: usize,
    in_groups: bool,
    joined: bool,
}

/// Cuts `len` plain bytes at `off` into pieces: one piece for all whole blocks, and one piece each
/// for a part of a block before and behind them.
pub(super) fn spans(off: u64, len: u64) -> Spans {
    Spans { off, at: 0, len, most: usize::MAX, in_groups: false, joined: false }
}

impl Spans {
    /// No piece has more than `blocks` blocks.
    pub(super) fn most(self, blocks: usize) -> Spans {
        Spans { most: blocks, ..self }
    }

    /// No piece goes beyond the end of a group of pages (paged layout).
    pub(super) fn in_groups(self) -> Spans {
        Spans { in_groups: true, ..self }
    }

    /// A part of a block is in one piece with the whole blocks beside it.
    pub(super) fn joined(self) -> Spans {
        Spans { joined: true, ..self }
    }
}

impl Iterator for Spans {
    type Item = Span;

    #[inline]
    fn next(&mut self) -> Option<Span> {
        let rest = (self.len - self.at) as usize;
        if rest == 0 {
            return None;
        }
        let pos = self.off + self.at;
        let (block, in_block) = (BlockNo(pos / BLOCK_LEN), (pos % BLOCK_LEN) as usize);
        let blocks = if self.joined {
            (in_block + rest).div_ceil(BLOCK)
        } else if in_block == 0 {
            (rest / BLOCK).max(1)
        } else {
            1
        };
        let mut blocks = blocks.min(self.most);
        if self.in_groups {
            blocks = blocks.min((GROUP_PAGES - block.0 % GROUP_PAGES) as usize);
        }
        let len = (blocks * BLOCK - in_block).min(rest);
        let span = Span { block, in_block, at: self.at as usize, len };
        self.at += len as u64;
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First block, bytes before the piece in that block, bytes of the piece.
    fn pieces(spans: Spans) -> Vec<(u64, usize, usize)> {
        spans.map(|span| (span.block.0, span.in_block, span.len)).collect()
    }

    #[test]
    fn whole_blocks_are_together_and_parts_alone() {
        assert_eq!(pieces(spans(77, 0)), []);
        assert_eq!(pieces(spans(100, 30)), [(0, 100, 30)]);
        assert_eq!(pieces(spans(8192, 8191)), [(1, 0, 8191)]);
        let range = || spans(8000, 192 + 5 * 8192 + 7);
        assert_eq!(pieces(range()), [(0, 8000, 192), (1, 0, 5 * 8192), (6, 0, 7)]);
        assert!(range().map(|span| span.is_whole()).eq([false, true, false]));
        let of_two = [(0, 8000, 192), (1, 0, 16_384), (3, 0, 16_384), (5, 0, 8192), (6, 0, 7)];
        assert_eq!(pieces(range().most(2)), of_two);
        assert_eq!(pieces(range().joined()), [(0, 8000, 192 + 5 * 8192 + 7)]);
        let joined = [(0, 8000, 192 + 3 * 8192), (4, 0, 2 * 8192 + 7)];
        assert_eq!(pieces(range().joined().most(4)), joined);
        let end_of_group = spans(254 * 8192, 4 * 8192).in_groups();
        assert_eq!(pieces(end_of_group), [(254, 0, 16_384), (256, 0, 16_384)]);
    }

    #[test]
    fn pieces_lie_one_behind_the_other_and_make_the_range() {
        for off in [0, 1, 8191, 8192, 255 * 8192 - 5, 256 * 8192] {
            for len in [1, 100, 8191, 8192, 8193, 3 * 8192, 20 * 8192 + 17] {
                for most in [1, 2, 16, usize::MAX] {
                    let plain = spans(off, len).most(most);
                    for spans in [plain.clone(), plain.clone().joined(), plain.in_groups()] {
                        let mut end = off;
                        for span in spans {
                            assert_eq!((span.off(), span.at as u64), (end, end - off));
                            assert!(span.len > 0 && span.blocks() <= most);
                            assert_eq!(span.range().len(), span.len);
                            end = span.end();
                        }
                        assert_eq!(end, off + len);
                    }
                }
            }
        }
    }
}
