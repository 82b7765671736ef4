//! The walk that authenticates one sealed file, block by block.
//!
//! The walk continues after a damaged block, so that the report shows how much of the file is
//! intact.

use crate::error::SealError;
use crate::file::{OnDamage, Scratch, SealedFile, WalPage};
use crate::geometry::{self, BLOCK_LEN, block_start};
use crate::storage::Accelerator;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, SealedLen};

/// Blocks that are read with one call.
const BATCH: u64 = 16;

/// Neighbouring blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub first: BlockNo,
    /// The number of blocks.
    pub count: u64,
}

/// Block numbers in rising order, kept as ranges: a file may have millions of zero blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockList(Vec<BlockRange>);

impl BlockList {
    /// Adds a block with a number higher than all in the list.
    pub fn push(&mut self, block: BlockNo) {
        match self.0.last_mut() {
            Some(last) if last.first.0 + last.count == block.0 => last.count += 1,
            _ => self.0.push(BlockRange { first: block, count: 1 }),
        }
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[BlockRange] {
        &self.0
    }

    /// The number of blocks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.count).sum()
    }

    /// Whether no block is in the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every block.
    pub fn blocks(&self) -> impl Iterator<Item = BlockNo> + '_ {
        self.0.iter().flat_map(|range| {
            (range.first.0..range.first.0.saturating_add(range.count)).map(BlockNo)
        })
    }
}

/// What the walk over one file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Bytes of the file.
    pub sealed_len: SealedLen,
    /// Bytes of the plain content.
    pub plain_len: PlainLen,
    /// Bytes at the end that belong to no whole structure of the layout.
    pub stray_bytes: u64,
    /// Whether every changed block is noticed: by the suite, or in a WAL file whose pages must all
    /// open ([`SealedFile::set_must_open`]).
    pub authenticated: bool,
    /// Blocks that hold data and were opened.
    pub data_blocks: u64,
    /// Blocks that were not read, because they were not chosen.
    pub skipped_blocks: u64,
    /// Blocks that were never written and read as zeros; a stream file has none.
    pub zero: BlockList,
    /// Blocks that do not authenticate, that hold data but have no tag, or that are zeros where the
    /// format does not allow zeros; pages of WAL that must open and do not fit their entry.
    pub damaged: BlockList,
    /// Pages of WAL that do not fit their entry, or have none, and need not: a power cut leaves
    /// such pages behind what was synced.
    pub unfitting: BlockList,
}

/// Reads every block of the file. In a WAL file, a page that does not fit its entry is damage only
/// if it must open ([`SealedFile::set_must_open`]); otherwise the report only lists it. Calls
/// `progress` with the number of sealed bytes passed since its last call.
///
/// A file that another process shortens meanwhile is read up to its new end.
///
/// # Errors
/// Errors of the storage. Damage is not an error: the report lists it.
pub fn verify_file<S: Accelerator + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport, SealError> {
    verify_chosen(file, storage, scratch, &|_| true, progress)
}

/// As [`verify_file`], but reads only the batches of blocks whose first block is chosen.
///
/// # Errors
/// As [`verify_file`].
pub fn verify_chosen<S: Accelerator + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    is_chosen: &dyn Fn(BlockNo) -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport, SealError> {
    let header = *file.header();
    let sealed_len = storage.len()?;
    let plain_len = geometry::plain_len(header.layout, sealed_len);
    let whole = geometry::sealed_len(header.layout, plain_len);
    let mut report = FileReport {
        sealed_len,
        plain_len,
        stray_bytes: sealed_len.0.saturating_sub(whole.0),
        authenticated: header.suite.authenticates()
            || header.layout == Layout::Wal && file.must_open().0 >= plain_len.0,
        data_blocks: 0,
        skipped_blocks: 0,
        zero: BlockList::default(),
        damaged: BlockList::default(),
        unfitting: BlockList::default(),
    };
    let blocks = plain_len.0.div_ceil(BLOCK_LEN);
    let mut buf = vec![0; (BATCH * BLOCK_LEN) as usize];
    let mut passed = 0;
    let mut block = 0;
    while block < blocks {
        let want = BATCH.min(blocks - block);
        if !is_chosen(BlockNo(block)) {
            report.skipped_blocks += want;
            block += want;
            continue;
        }
        let mut is_end = false;
        let mut one_by_one = header.layout == Layout::Wal;
        if !one_by_one {
            let part = &mut buf[..(want * BLOCK_LEN) as usize];
            let start = block_start(BlockNo(block));
            let outcome = file.read_at(storage, scratch, part, start, OnDamage::InvalidPage)?;
            is_end = outcome.len == 0;
            if outcome.zero_blocks == 0 && outcome.damaged_blocks == 0 {
                report.data_blocks += (outcome.len as u64).div_ceil(BLOCK_LEN);
            } else {
                one_by_one = true;
            }
        }
        if one_by_one {
            for single in block..block + want {
                note(file, storage, scratch, BlockNo(single), &mut report)?;
            }
        }
        block += want;
        let here = geometry::block_sealed_off(header.layout, BlockNo(block)).0.min(sealed_len.0);
        progress(here.saturating_sub(passed));
        passed = here.max(passed);
        if is_end {
            break;
        }
    }
    progress(sealed_len.0.saturating_sub(passed));
    Ok(report)
}

/// What one block turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The block holds data and was opened.
    Data,
    /// Never written.
    Zero,
    /// The block is damaged, as [`FileReport::damaged`] says.
    Damaged,
    /// A page of WAL without a fitting entry, as [`FileReport::unfitting`] says.
    Unfitting,
    /// The file ends before it.
    Gone,
}

/// Checks one block, for example one that looked damaged while a server was writing.
///
/// # Errors
/// Errors of the storage.
pub fn verify_block<S: Accelerator + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    block: BlockNo,
) -> Result<BlockState, SealError> {
    if file.header().layout == Layout::Wal {
        return Ok(match file.wal_page(storage, scratch, block)? {
            WalPage::Authentic => BlockState::Data,
            WalPage::Hole => BlockState::Zero,
            WalPage::Unfitting => BlockState::Unfitting,
            WalPage::Damaged => BlockState::Damaged,
            WalPage::Gone => BlockState::Gone,
        });
    }
    let mut page = vec![0; BLOCK_LEN as usize];
    let start = block_start(block);
    let outcome = file.read_at(storage, scratch, &mut page, start, OnDamage::InvalidPage)?;
    Ok(if outcome.damaged_blocks > 0 {
        BlockState::Damaged
    } else if outcome.len == 0 {
        BlockState::Gone
    } else if outcome.zero_blocks > 0 {
        BlockState::Zero
    } else {
        BlockState::Data
    })
}

fn note<S: Accelerator + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    block: BlockNo,
    report: &mut FileReport,
) -> Result<(), SealError> {
    match verify_block(file, storage, scratch, block)? {
        BlockState::Data => report.data_blocks += 1,
        BlockState::Zero => report.zero.push(block),
        BlockState::Damaged => report.damaged.push(block),
        BlockState::Unfitting => report.unfitting.push(block),
        BlockState::Gone => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{HEADER_LEN, block_sealed_off, tag_entry_off};
    use crate::random::LibraryRandom;
    use crate::storage::mem::MemStorage;
    use crate::suite::{FileKind, Layout, Suite};
    use crate::testing::new_file;
    use crate::units::PlainOff;

    fn sealed(suite: Suite, kind: FileKind, plain: &[u8]) -> (MemStorage, SealedFile) {
        let (storage, random) = (MemStorage::default(), LibraryRandom::new());
        let (suite, layout) = suite.for_kind(kind);
        let mut file = new_file(&storage, suite, layout).unwrap();
        let mut scratch = Scratch::new();
        file.write_at(&storage, &mut scratch, plain, PlainOff(0), &random).unwrap();
        (storage, file)
    }

    fn report(storage: &MemStorage, file: &mut SealedFile) -> (FileReport, u64) {
        let mut passed = 0;
        let mut progress = |bytes| passed += bytes;
        let report = verify_file(file, storage, &mut Scratch::new(), &mut progress).unwrap();
        (report, passed)
    }

    #[test]
    fn a_sound_file_is_all_data_and_progress_reaches_its_length() {
        for kind in FileKind::ALL {
            let len = if kind == FileKind::Stream { 300 * 8192 + 77 } else { 300 * 8192 };
            let (storage, mut file) = sealed(Suite::Aes256Gcm, kind, &vec![5; len]);
            let (report, passed) = report(&storage, &mut file);
            assert_eq!(report.data_blocks, len.div_ceil(8192) as u64, "{kind:?}");
            assert!(report.zero.is_empty() && report.damaged.is_empty());
            assert_eq!((report.stray_bytes, report.plain_len.0), (0, len as u64));
            assert_eq!(passed, report.sealed_len.0);
            assert_eq!(report.authenticated, kind != FileKind::Wal);
            assert!(report.unfitting.is_empty());
        }
    }

    #[test]
    fn every_damaged_block_is_listed_not_only_the_first() {
        for (kind, layout) in
            [(FileKind::Relation, Layout::Paged), (FileKind::Stream, Layout::Stream)]
        {
            let (storage, mut file) = sealed(Suite::Aes256Gcm, kind, &vec![5; 200 * 8192]);
            for block in [3, 4, 150] {
                let at = block_sealed_off(layout, BlockNo(block)).0 as usize + 100;
                storage.bytes()[at] ^= 1;
            }
            let (report, _) = report(&storage, &mut file);
            let damaged: Vec<u64> = report.damaged.blocks().map(|block| block.0).collect();
            assert_eq!(damaged, [3, 4, 150]);
            assert_eq!(report.damaged.ranges().len(), 2);
            assert_eq!(report.data_blocks, 197);
        }
    }

    #[test]
    fn holes_are_zero_blocks_and_a_wiped_page_is_damage() {
        let (storage, mut file) = sealed(Suite::Aes256Gcm, FileKind::Relation, &vec![5; 2 * 8192]);
        let random = LibraryRandom::new();
        let mut scratch = Scratch::new();
        file.write_at(&storage, &mut scratch, &[6; 8192], PlainOff(5 * 8192), &random).unwrap();
        let page = block_sealed_off(Layout::Paged, BlockNo(1)).0 as usize;
        storage.bytes()[page..page + 8192].fill(0);
        let (report, _) = report(&storage, &mut file);
        assert_eq!(report.zero.ranges(), [BlockRange { first: BlockNo(2), count: 3 }]);
        assert_eq!(report.damaged.blocks().collect::<Vec<_>>(), [BlockNo(1)]);
        assert_eq!(report.data_blocks, 2);
    }

    #[test]
    fn a_stream_file_has_no_zero_blocks() {
        let (storage, mut file) = sealed(Suite::Aes256Gcm, FileKind::Stream, &[5; 2 * 8192]);
        let random = LibraryRandom::new();
        let mut scratch = Scratch::new();
        file.write_at(&storage, &mut scratch, &[6; 8192], PlainOff(5 * 8192), &random).unwrap();
        let (sound, _) = report(&storage, &mut file);
        assert_eq!((sound.data_blocks, sound.zero.count(), sound.damaged.count()), (6, 0, 0));
        for block in [1, 3] {
            let wiped = block_sealed_off(Layout::Stream, BlockNo(block)).0 as usize;
            storage.bytes()[wiped..wiped + 8220].fill(0);
        }
        let (report, _) = report(&storage, &mut file);
        assert_eq!(report.damaged.blocks().collect::<Vec<_>>(), [BlockNo(1), BlockNo(3)]);
        assert_eq!((report.data_blocks, report.zero.count()), (4, 0));
    }

    #[test]
    fn a_wiped_page_with_its_tag_wiped_too_reads_as_never_written() {
        let (storage, mut file) = sealed(Suite::Aes256Gcm, FileKind::Relation, &vec![5; 2 * 8192]);
        let page = block_sealed_off(Layout::Paged, BlockNo(1)).0 as usize;
        storage.bytes()[page..page + 8192].fill(0);
        let tag = tag_entry_off(BlockNo(1)).0 as usize;
        storage.bytes()[tag..tag + 32].fill(0);
        let (report, _) = report(&storage, &mut file);
        assert_eq!((report.zero.count(), report.damaged.count()), (1, 0));
    }

    #[test]
    fn bytes_that_belong_to_nothing_are_counted() {
        let (storage, mut file) = sealed(Suite::Aes256Gcm, FileKind::Stream, &[5; 8192]);
        storage.bytes().extend_from_slice(&[1; 20]);
        let (report, _) = report(&storage, &mut file);
        assert_eq!((report.stray_bytes, report.plain_len.0), (20, 8192));
        storage.bytes().truncate(HEADER_LEN as usize + 10);
        let (report, _) = super::tests::report(&storage, &mut file);
        assert_eq!((report.stray_bytes, report.data_blocks), (10, 0));
    }

    #[test]
    fn a_second_look_tells_the_four_states_apart() {
        let (storage, mut file) = sealed(Suite::Aes256Gcm, FileKind::Relation, &[5; 8192]);
        let random = LibraryRandom::new();
        let mut scratch = Scratch::new();
        file.set_len(&storage, &mut scratch, PlainLen(2 * 8192), &random).unwrap();
        let mut look =
            |block| verify_block(&mut file, &storage, &mut Scratch::new(), BlockNo(block)).unwrap();
        assert_eq!((look(0), look(1)), (BlockState::Data, BlockState::Zero));
        assert_eq!(look(2), BlockState::Gone);
        storage.bytes()[block_sealed_off(Layout::Paged, BlockNo(0)).0 as usize + 9] ^= 1;
        assert_eq!(look(0), BlockState::Damaged);
    }
}
