//! Finds the zero blocks of a sealed file without a key: their tag, or the block itself, is all
//! zeros.

use std::io;

use pgseal_core::geometry::{self, BLOCK_LEN, GROUP_PAGES, TAG_BLOCK_LEN, TAG_ENTRY_LEN};
use pgseal_core::verify::BlockList;
use pgseal_core::{BlockNo, Layout, PlainLen};

use crate::storage::ReadOnly;

/// The blocks that look as if they were never written.
pub fn find(file: &ReadOnly, layout: Layout, plain_len: PlainLen) -> io::Result<BlockList> {
    let blocks = plain_len.0.div_ceil(BLOCK_LEN);
    let mut list = BlockList::default();
    match layout {
        Layout::Paged => {
            let mut tags = vec![0; TAG_BLOCK_LEN as usize];
            for group in 0..blocks.div_ceil(GROUP_PAGES) {
                let got = file.raw(&mut tags, geometry::tag_block_off(group).0)?;
                if let Some(rest) = tags.get_mut(got..) {
                    rest.fill(0);
                }
                let first = group * GROUP_PAGES;
                let here = (blocks - first).min(GROUP_PAGES) as usize;
                let entries = tags.chunks(TAG_ENTRY_LEN as usize).take(here);
                for (block, _) in (first..).zip(entries).filter(|(_, entry)| is_zero(entry)) {
                    list.push(BlockNo(block));
                }
            }
        }
        Layout::Stream | Layout::InPlace | Layout::Sectored | Layout::Wal => {
            let stride = match layout {
                Layout::Stream => geometry::STREAM_STRIDE,
                Layout::Sectored => geometry::SECTORED_STRIDE,
                Layout::Paged | Layout::InPlace | Layout::Wal => BLOCK_LEN,
            };
            let mut bytes = vec![0; stride as usize];
            for block in (0..blocks).map(BlockNo) {
                let got = file.raw(&mut bytes, geometry::block_sealed_off(layout, block).0)?;
                if bytes.get(..got).is_some_and(is_zero) {
                    list.push(block);
                }
            }
        }
    }
    Ok(list)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
