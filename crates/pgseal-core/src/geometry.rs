//! Converts plain offsets and lengths to sealed ones, and back (`spec/sealed-file.md`, section 4).
//!
//! Every sealed length has a plain length, also a length that a crash left behind.

use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, PlainOff, SealedLen, SealedOff};

/// Bytes of the header of every sealed file: one page, so that pages in the file stay aligned to
/// 8192 bytes.
pub const HEADER_LEN: u64 = 8192;
/// Bytes of the head: the first sector of the header, which holds all its fields and is all that a
/// reader looks at.
pub const HEAD_LEN: u64 = 512;
/// Bytes of a plain block: PostgreSQL's page, the data unit of XTS, the block of a stream.
pub const BLOCK_LEN: u64 = 8192;
/// Pages in a group of the paged and of the WAL layout.
pub const GROUP_PAGES: u64 = 256;
/// Bytes of the tag block before each group.
pub const TAG_BLOCK_LEN: u64 = 8192;
/// Bytes of the entry of one page in a tag block of the paged layout.
pub const TAG_ENTRY_LEN: u64 = 32;
/// Pages that have their entries in one row of a tag block of the WAL layout; a row is a sector.
pub const ROW_PAGES: u64 = 16;
/// Bytes of the entry of one page in a row of the WAL layout.
pub const WAL_ENTRY_LEN: u64 = NONCE_LEN + TAG_LEN;
/// Where the flush record begins in a row of the WAL layout.
pub const FLUSH_RECORD_AT: u64 = ROW_PAGES * WAL_ENTRY_LEN;
/// Sealed bytes of a whole group with its tag block.
pub const GROUP_LEN: u64 = TAG_BLOCK_LEN + GROUP_PAGES * BLOCK_LEN;
/// Bytes of the nonce before a stream block.
pub const NONCE_LEN: u64 = 12;
/// Bytes of a GCM tag.
pub const TAG_LEN: u64 = 16;
/// Sealed bytes of a whole stream block.
pub const STREAM_STRIDE: u64 = NONCE_LEN + BLOCK_LEN + TAG_LEN;
/// Bytes that a stream block adds to its plain bytes.
pub const STREAM_OVERHEAD: u64 = NONCE_LEN + TAG_LEN;
/// Bytes of a cell of the in-place layout: the block of AES.
pub const CELL_LEN: u64 = 16;
/// Bytes of a sector: what a device writes whole or not at all (`spec/media.md`).
pub const SECTOR_LEN: u64 = 512;
/// Plain bytes in a sector of the sectored layout, behind its nonce and tag.
pub const SECTOR_DATA_LEN: u64 = SECTOR_LEN - NONCE_LEN - TAG_LEN;
/// Sectors of a block of the sectored layout. The last one holds the 448 bytes that are left.
pub const BLOCK_SECTORS: u64 = BLOCK_LEN.div_ceil(SECTOR_DATA_LEN);
/// Sealed bytes of a whole block of the sectored layout.
pub const SECTORED_STRIDE: u64 = BLOCK_SECTORS * SECTOR_LEN;

/// The block that holds a plain offset.
#[must_use]
pub fn block_of(plain_off: PlainOff) -> BlockNo {
    BlockNo(plain_off.0 / BLOCK_LEN)
}

/// The plain offset where a block starts.
#[must_use]
pub fn block_start(block: BlockNo) -> PlainOff {
    PlainOff(block.0 * BLOCK_LEN)
}

/// The sealed offset of the first byte of a block: of the page (paged), of its nonce (stream), of
/// its first cell (in-place, WAL), of its first sector (sectored).
#[must_use]
pub fn block_sealed_off(layout: Layout, block: BlockNo) -> SealedOff {
    SealedOff(match layout {
        Layout::Paged | Layout::Wal => {
            let (group, page) = (block.0 / GROUP_PAGES, block.0 % GROUP_PAGES);
            HEADER_LEN + group * GROUP_LEN + TAG_BLOCK_LEN + page * BLOCK_LEN
        }
        Layout::Stream => HEADER_LEN + block.0 * STREAM_STRIDE,
        Layout::InPlace => HEADER_LEN + block.0 * BLOCK_LEN,
        Layout::Sectored => HEADER_LEN + block.0 * SECTORED_STRIDE,
    })
}

/// The sealed offset of the tag block of a group of pages (paged and WAL layout).
#[must_use]
pub fn tag_block_off(group: u64) -> SealedOff {
    SealedOff(HEADER_LEN + group * GROUP_LEN)
}

/// The sealed offset of the tag entry of a page (paged layout).
#[must_use]
pub fn tag_entry_off(block: BlockNo) -> SealedOff {
    SealedOff(tag_block_off(block.0 / GROUP_PAGES).0 + (block.0 % GROUP_PAGES) * TAG_ENTRY_LEN)
}

/// The sealed offset of the row that has the entry of a page (WAL layout).
#[must_use]
pub fn wal_row_off(block: BlockNo) -> SealedOff {
    let row = block.0 % GROUP_PAGES / ROW_PAGES;
    SealedOff(tag_block_off(block.0 / GROUP_PAGES).0 + row * SECTOR_LEN)
}

/// The sealed offset of the entry of a page (WAL layout).
#[must_use]
pub fn wal_entry_off(block: BlockNo) -> SealedOff {
    SealedOff(wal_row_off(block).0 + block.0 % ROW_PAGES * WAL_ENTRY_LEN)
}

/// The sealed length of a file with this plain length.
#[must_use]
pub fn sealed_len(layout: Layout, plain_len: PlainLen) -> SealedLen {
    let plain = plain_len.0;
    SealedLen(
        HEADER_LEN
            + match layout {
                Layout::Paged => plain + plain.div_ceil(GROUP_PAGES * BLOCK_LEN) * TAG_BLOCK_LEN,
                Layout::Stream => {
                    let (full, rest) = (plain / BLOCK_LEN, plain % BLOCK_LEN);
                    full * STREAM_STRIDE + if rest == 0 { 0 } else { rest + STREAM_OVERHEAD }
                }
                Layout::InPlace => len_in_cells(plain),
                Layout::Wal => {
                    len_in_cells(plain) + plain.div_ceil(GROUP_PAGES * BLOCK_LEN) * TAG_BLOCK_LEN
                }
                Layout::Sectored => {
                    let (full, in_block) = (plain / BLOCK_LEN, plain % BLOCK_LEN);
                    let (sectors, rest) = (in_block / SECTOR_DATA_LEN, in_block % SECTOR_DATA_LEN);
                    full * SECTORED_STRIDE
                        + sectors * SECTOR_LEN
                        + if rest == 0 { 0 } else { SECTOR_LEN + rest }
                }
            },
    )
}

/// The plain length of a file with this sealed length.
///
/// Bytes that belong to no whole structure (half a tag block, a stream block shorter than its nonce
/// and tag) come from a write that a crash interrupted. They are not counted.
#[must_use]
pub fn plain_len(layout: Layout, sealed_len: SealedLen) -> PlainLen {
    let Some(body) = sealed_len.0.checked_sub(HEADER_LEN) else { return PlainLen(0) };
    PlainLen(match layout {
        Layout::Paged => {
            let (groups, rest) = (body / GROUP_LEN, body % GROUP_LEN);
            groups * GROUP_PAGES * BLOCK_LEN + rest.saturating_sub(TAG_BLOCK_LEN)
        }
        Layout::Stream => {
            let (full, rest) = (body / STREAM_STRIDE, body % STREAM_STRIDE);
            full * BLOCK_LEN + rest.saturating_sub(STREAM_OVERHEAD)
        }
        Layout::InPlace => len_of_cells(body),
        Layout::Wal => {
            let (groups, rest) = (body / GROUP_LEN, body % GROUP_LEN);
            let before = groups * GROUP_PAGES * BLOCK_LEN;
            match (groups, rest) {
                // The filler of the last cell of a group lies where the next group would begin.
                (1.., 1..CELL_LEN) => before - CELL_LEN + rest,
                _ => before + len_of_cells(rest.saturating_sub(TAG_BLOCK_LEN)),
            }
        }
        Layout::Sectored => {
            let (sectors, rest) = (body / SECTOR_LEN, body % SECTOR_LEN);
            // The plain offset at which a sector starts.
            let start = |sector: u64| {
                sector / BLOCK_SECTORS * BLOCK_LEN + sector % BLOCK_SECTORS * SECTOR_DATA_LEN
            };
            match (sectors, rest) {
                (sectors, 0) => start(sectors),
                (0, _) => 0,
                (sectors, rest) => (start(sectors - 1) + rest).min(start(sectors)),
            }
        }
    })
}

/// The bytes of cells that hold `plain` bytes, with the filler.
fn len_in_cells(plain: u64) -> u64 {
    let (cells, rest) = (plain / CELL_LEN, plain % CELL_LEN);
    cells * CELL_LEN + if rest == 0 { 0 } else { CELL_LEN + rest }
}

/// The plain bytes in `len` bytes of cells and filler.
fn len_of_cells(len: u64) -> u64 {
    let (cells, rest) = (len / CELL_LEN, len % CELL_LEN);
    match (cells, rest) {
        (cells, 0) => cells * CELL_LEN,
        (0, _) => 0,
        (cells, rest) => (cells - 1) * CELL_LEN + rest,
    }
}

/// The sealed byte range that holds a plain range, for calls that only advise the kernel
/// (`posix_fadvise`, `sync_file_range`): start, and length or 0 for "to the end".
#[must_use]
pub fn sealed_range(layout: Layout, plain_off: PlainOff, len: u64) -> (SealedOff, u64) {
    let start = if plain_off.0 == 0 {
        SealedOff(0)
    } else if matches!(layout, Layout::Paged | Layout::Wal)
        && block_of(plain_off).0.is_multiple_of(GROUP_PAGES)
    {
        tag_block_off(block_of(plain_off).0 / GROUP_PAGES)
    } else {
        block_sealed_off(layout, block_of(plain_off))
    };
    if len == 0 {
        return (start, 0);
    }
    let end = sealed_len(layout, PlainLen(plain_off.0.saturating_add(len)));
    (start, end.0.saturating_sub(start.0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_length_survives_the_round_trip() {
        let edges = (0..40)
            .chain(480..544)
            .chain(8180..8240)
            .chain(16_370..16_400)
            .chain(2_097_140..2_097_170)
            .chain(2_105_330..2_105_360)
            .chain([1 << 30, (1 << 30) + 1, (1 << 40) + 12_345]);
        for plain in edges {
            for layout in Layout::ALL {
                let sealed = sealed_len(layout, PlainLen(plain));
                assert_eq!(plain_len(layout, sealed), PlainLen(plain), "{layout} {plain}");
            }
        }
    }

    #[test]
    fn every_sealed_length_has_a_plain_length_that_fits() {
        for sealed in (0..70_000).chain(2_100_000..2_130_000) {
            for layout in Layout::ALL {
                let plain = plain_len(layout, SealedLen(sealed));
                assert!(plain.0 <= sealed.saturating_sub(HEADER_LEN));
            }
        }
    }

    /// The worked sizes of spec/sealed-file.md, section 4.
    #[test]
    fn worked_sizes() {
        for (layout, plain, sealed) in [
            (Layout::Paged, 0, 8192),
            (Layout::Paged, 8192, 24_576),
            (Layout::Paged, 2_097_152, 2_113_536),
            (Layout::Paged, 2_105_344, 2_129_920),
            (Layout::Paged, 1 << 30, 1_077_944_320),
            (Layout::Stream, 1, 8221),
            (Layout::Stream, 8192, 16_412),
            (Layout::Stream, 8193, 16_441),
            (Layout::InPlace, 1, 8209),
            (Layout::InPlace, 15, 8223),
            (Layout::InPlace, 16, 8208),
            (Layout::InPlace, 512, 8704),
            (Layout::InPlace, 16_777_216, 16_785_408),
            (Layout::Wal, 1, 16_384 + 16 + 1),
            (Layout::Wal, 2_097_151, 8192 + 8192 + 2_097_152 + 15),
            (Layout::Wal, 16_777_216, 8192 + 8 * 8192 + 16_777_216),
            (Layout::Sectored, 1, 8192 + 512 + 1),
            (Layout::Sectored, 484, 8192 + 512),
            (Layout::Sectored, 512, 8192 + 1024 + 28),
            (Layout::Sectored, 8192, 8192 + 17 * 512),
            (Layout::Sectored, 32 * 8192, 8192 + 32 * 17 * 512),
        ] {
            assert_eq!(sealed_len(layout, PlainLen(plain)), SealedLen(sealed), "{layout} {plain}");
        }
    }

    #[test]
    fn advised_ranges_cover_the_pages() {
        let (off, len) = sealed_range(Layout::Paged, PlainOff(GROUP_PAGES * 8192), 8192);
        assert_eq!((off.0, len), (HEADER_LEN + GROUP_LEN, TAG_BLOCK_LEN + 8192));
        assert_eq!(sealed_range(Layout::InPlace, PlainOff(0), 0), (SealedOff(0), 0));
        let (off, len) = sealed_range(Layout::Wal, PlainOff(GROUP_PAGES * 8192), 8192);
        assert_eq!((off.0, len), (HEADER_LEN + GROUP_LEN, TAG_BLOCK_LEN + 8192));
    }
}
