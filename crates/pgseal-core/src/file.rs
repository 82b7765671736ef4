//! A sealed file that behaves like a plain one: reads, writes and truncation at any offset and
//! length, whatever the layout.
//!
//! A [`SealedFile`] holds the key schedule and what it caches of the file; the bytes are in a
//! [`Storage`] that the caller passes to each operation. Several processes may have the same file
//! open, as PostgreSQL's do. So cached tags are only hints: a page that does not authenticate under
//! a cached tag is read again with its tag.

use core::fmt;
use core::ops::Range;

use crate::cipher::Cipher;
use crate::error::SealError;
use crate::geometry::{self, BLOCK_LEN, HEAD_LEN, HEADER_LEN};
use crate::header::{self, Form, Header, Kind};
use crate::keyset::{Generation, KeySet};
use crate::memory::{OutOfMemory, boxed};
use crate::random::Random;
use crate::storage::{Accelerator, Storage};
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen, PlainOff, SealedOff};
use crate::usage::Drawn;
use crate::versions::{Pages, SeenPages};

mod buffer;
mod cells;
mod inplace;
mod operation;
mod paged;
mod resealing;
mod sectored;
mod spans;
mod stream;
mod undo;
mod wal;

pub use buffer::Buffer;
pub use resealing::{Census, GroupKeys};
pub use wal::FlushRecord;
pub(crate) use wal::WalPage;

use inplace::InPlace;
use operation::{InLayout as _, NoRandom, Operation};
use paged::Paged;
use sectored::Sectored;
use stream::Stream;
use wal::Wal;

/// [`BLOCK_LEN`] for indexing.
const BLOCK: usize = BLOCK_LEN as usize;
/// Blocks that are sealed into the scratch buffer before one write.
const BATCH: usize = 16;
/// How often a block that does not authenticate is read again.
const RETRIES: u32 = 6;
/// How often a head is read that another process wraps anew meanwhile.
const HEAD_TRIES: u32 = 8;
/// Zeros to fill gaps with; a static, so that filling needs no heap.
static ZEROS: [u8; BATCH * BLOCK] = [0; BATCH * BLOCK];

/// Buffers for one operation, reused by all files of a process.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Sealed bytes to write, or that were read from a paged or a stream file.
    out: Buffer,
    /// A plain block of which a part is read or changed.
    page: Buffer,
    /// A second block beside `page`: in paged and stream files the sealed bytes before a change.
    old: Buffer,
    /// The tag block of a group of WAL pages, or some rows of it.
    rows: Buffer,
    /// Which rows are in `rows`.
    rows_held: Option<wal::HeldRows>,
    blocks: paged::TagBlocks,
    seen: SeenPages,
    /// The pages of a paged file that the read under way has in `out`.
    run: Option<paged::Run>,
    /// The plain offset up to which the read under way goes on.
    until: u64,
}

/// What to do about a block that does not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Fail the read with [`SealError::BlockDamaged`] or [`SealError::BlockOlder`].
    Fail,
    /// Return a page that fails PostgreSQL's own verification, with and without data checksums, so
    /// that `zero_damaged_pages`, `pg_checksums` and the like work as they do for any damaged page.
    InvalidPage,
    /// Return a page of zeros: for maps that are only hints, where zeros are always a safe answer.
    ZeroPage,
}

/// What a read found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes read; fewer than asked for only at the end of the file.
    pub len: usize,
    /// Blocks that were never written and read as zeros.
    pub zero_blocks: u64,
    /// Blocks that did not authenticate and were replaced by an invalid page or a page of zeros.
    pub damaged_blocks: u64,
    /// The first damaged block.
    pub first_damaged: Option<BlockNo>,
    /// How many of the damaged blocks authenticate, and are older than what the server wrote last
    /// ([`crate::versions`]).
    pub older_blocks: u64,
}

impl ReadOutcome {
    /// Adds the outcome of a read of what follows.
    fn add(&mut self, next: &ReadOutcome) {
        self.len += next.len;
        self.zero_blocks += next.zero_blocks;
        self.damaged_blocks += next.damaged_blocks;
        self.first_damaged = self.first_damaged.or(next.first_damaged);
        self.older_blocks += next.older_blocks;
    }
}

/// What opening a file found.
#[derive(Debug)]
pub enum Opened {
    /// A sealed file, ready.
    Sealed(Box<SealedFile>),
    /// A file without a header. If nothing lies behind the place of the header, the file is empty;
    /// otherwise the header is lost.
    NoHeader {
        /// Bytes of the file beyond the place of the header.
        bytes_behind: u64,
    },
    /// A plain file.
    Plain,
}

/// An open sealed file.
pub struct SealedFile {
    header: Header,
    /// Under the newest file key.
    cipher: Cipher,
    /// Under the file key before it, if the header has one.
    older: Option<Box<Cipher>>,
    /// See [`SealedFile::lacked_key`].
    lacked_key: bool,
    drawn: Drawn,
    tags: paged::TagCache,
    /// The names of its pages, if their versions are kept.
    pages: Option<Pages>,
    /// A plain length that the file is known to have reached: a write that starts at or before it
    /// leaves no gap behind.
    reached: u64,
    /// See [`SealedFile::zeros_appended`].
    zeros_appended: u64,
    /// See [`SealedFile::set_must_open`].
    must_open: u64,
    /// See [`SealedFile::set_flush_record`].
    flush_record: Option<FlushRecord>,
}

impl fmt::Debug for SealedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedFile").field("header", &self.header).finish_non_exhaustive()
    }
}

impl SealedFile {
    /// Reads the head of a file, and opens the file if it is sealed.
    pub fn open<S: Storage + ?Sized>(storage: &S, keys: &KeySet) -> Result<Opened, SealError> {
        let mut start = [0; HEAD_LEN as usize];
        let mut got = storage.read_at(&mut start, SealedOff(0))?;
        let mut opened = SealedFile::open_head(storage, &start[..got], keys);
        for _ in 1..HEAD_TRIES {
            if opened.is_ok() {
                break;
            }
            let before = (start, got);
            got = storage.read_at(&mut start, SealedOff(0))?;
            if start[..got] == before.0[..before.1] {
                break;
            }
            opened = SealedFile::open_head(storage, &start[..got], keys);
        }
        opened
    }

    fn open_head<S: Storage + ?Sized>(
        storage: &S,
        start: &[u8],
        keys: &KeySet,
    ) -> Result<Opened, SealError> {
        match header::classify(start)? {
            Kind::Plain => Ok(Opened::Plain),
            Kind::NoHeader => {
                let bytes_behind = storage.len()?.0.saturating_sub(HEADER_LEN);
                Ok(Opened::NoHeader { bytes_behind })
            }
            Kind::Sealed(header) => {
                Ok(Opened::Sealed(boxed(SealedFile::from_header(start, header, keys)?)?))
            }
        }
    }

    /// Opens a file whose head ([`HEAD_LEN`] bytes) is already read and classified.
    pub fn from_header(
        start: &[u8],
        header: Header,
        keys: &KeySet,
    ) -> Result<SealedFile, SealError> {
        let file_key = header::unwrap_key(start, &header, keys)?;
        let older = SealedFile::older_cipher(start, &header, keys)?;
        let mut file = SealedFile::with_key(header, &file_key)?;
        file.older = older;
        Ok(file)
    }

    /// Writes a header into an empty storage. The caller makes sure that no other process
    /// does so at the same time.
    pub fn create<S: Storage + ?Sized>(
        storage: &S,
        form: &Form,
        keys: &KeySet,
        generation: Generation,
        random: &dyn Random,
    ) -> Result<SealedFile, SealError> {
        let (header, file_key, bytes) = header::create(form, keys, generation, random)?;
        // Allocate first, so that a lack of memory leaves the file unchanged.
        let file = SealedFile::with_key(header, &file_key)?;
        storage.write_at(&bytes[..], SealedOff(0))?;
        Ok(file)
    }

    fn with_key(header: Header, file_key: &header::FileKey) -> Result<SealedFile, SealError> {
        let cipher = Cipher::new(&header, file_key)?;
        let tags = paged::TagCache::new(&header);
        let has_versions = header.layout == Layout::Paged && header.suite.authenticates();
        let pages = has_versions.then(|| Pages::of(&header.file_id, header.place.as_bytes()));
        Ok(SealedFile {
            header,
            cipher,
            older: None,
            lacked_key: false,
            drawn: Drawn::default(),
            tags,
            pages,
            reached: 0,
            zeros_appended: 0,
            must_open: 0,
            flush_record: None,
        })
    }

    /// What the header says.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The samples of writes that are to be added to the header ([`header::count`]), if a sample
    /// was drawn since the last call: the number of the file key, and how many. Call
    /// [`SealedFile::samples_counted`] when they are in the header. If they cannot be added now,
    /// they wait for the next sample.
    #[inline]
    pub fn new_samples(&mut self) -> Option<(u32, u32)> {
        self.drawn.new_samples()
    }

    /// Whether samples wait that are not in the header yet.
    #[must_use]
    pub fn samples_wait(&self) -> bool {
        self.drawn.wait()
    }

    /// See [`SealedFile::new_samples`].
    pub fn samples_counted(&mut self) {
        self.drawn.settle();
    }

    /// The number of pages of zeros that were appended unsealed since the file was opened here.
    #[must_use]
    pub fn zeros_appended(&self) -> u64 {
        self.zeros_appended
    }

    /// Says that all pages of a WAL file that end at or before `plain_off` are on the disk as they
    /// were written: from now on such a page must open under its entry, and a read of any part of
    /// a page that does not is [`SealError::BlockDamaged`], whatever its [`OnDamage`] says. The
    /// pages behind are returned unchecked, because a power cut may have left them without a
    /// fitting entry. 0, all pages unchecked, when the file is opened. Other layouts ignore it.
    pub fn set_must_open(&mut self, plain_off: PlainOff) {
        self.must_open = plain_off.0;
    }

    /// See [`SealedFile::set_must_open`].
    pub(crate) fn must_open(&self) -> PlainOff {
        PlainOff(self.must_open)
    }

    /// The flush record that each write to a WAL file stores with the entries of the pages from now
    /// on; `None`, as when the file is opened: the records stay as they are. Other layouts ignore
    /// it.
    pub fn set_flush_record(&mut self, record: Option<FlushRecord>) {
        self.flush_record = record;
    }

    /// The authentic flush record of a WAL file that has the highest position, or, with a timeline,
    /// the highest of that timeline. Records that do not authenticate are skipped. `None` for a
    /// file of another layout.
    pub fn newest_flush_record<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        timeline: Option<u32>,
    ) -> Result<Option<FlushRecord>, SealError> {
        if self.header.layout == Layout::Wal {
            wal::newest_flush_record(&mut self.cipher, storage, timeline)
        } else {
            Ok(None)
        }
    }

    /// Looks at one page of a WAL file, for [`crate::verify`].
    pub(crate) fn wal_page<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        block: BlockNo,
    ) -> Result<WalPage, SealError> {
        scratch.reserve()?;
        Operation::<S, Wal>::new(self, storage, scratch, &NoRandom).look_at(block)
    }

    /// Notes that the file has at least this plain length.
    fn has_reached(&mut self, plain_len: u64) {
        self.reached = self.reached.max(plain_len);
    }

    /// The plain length of the file.
    pub fn plain_len<S: Storage + ?Sized>(&self, storage: &S) -> Result<PlainLen, SealError> {
        Ok(geometry::plain_len(self.header.layout, storage.len()?))
    }

    /// Reads until `buf` is full or the file ends.
    pub fn read_at<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        buf: &mut [u8],
        plain_off: PlainOff,
        on_damage: OnDamage,
    ) -> Result<ReadOutcome, SealError> {
        self.read_parts_at(storage, scratch, &mut [buf], plain_off, on_damage)
    }

    /// Reads one part after the other until all are full or the file ends, as `preadv(2)`. The
    /// pages of several parts are read from the storage with one call.
    pub fn read_parts_at<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        parts: &mut [&mut [u8]],
        plain_off: PlainOff,
        on_damage: OnDamage,
    ) -> Result<ReadOutcome, SealError> {
        let len = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len()));
        let len = len.ok_or(SealError::TooLarge)?;
        check_range(plain_off, len)?;
        scratch.reserve()?;
        (scratch.run, scratch.until) = (None, plain_off.0 + len as u64);
        let mut all = ReadOutcome::default();
        for part in parts {
            let off = plain_off.0 + all.len as u64;
            let outcome = self.read_part(storage, scratch, part, off, on_damage)?;
            all.add(&outcome);
            if outcome.len < part.len() {
                break;
            }
        }
        Ok(all)
    }

    fn read_part<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        buf: &mut [u8],
        off: u64,
        on_damage: OnDamage,
    ) -> Result<ReadOutcome, SealError> {
        match self.header.layout {
            Layout::Paged => Operation::<S, Paged>::new(self, storage, scratch, &NoRandom)
                .read(buf, off, on_damage),
            Layout::Stream => Operation::<S, Stream>::new(self, storage, scratch, &NoRandom)
                .read(buf, off, on_damage),
            Layout::InPlace => Operation::<S, InPlace>::new(self, storage, scratch, &NoRandom)
                .read(buf, off, on_damage),
            Layout::Sectored => Operation::<S, Sectored>::new(self, storage, scratch, &NoRandom)
                .read(buf, off, on_damage),
            Layout::Wal => Operation::<S, Wal>::new(self, storage, scratch, &NoRandom)
                .read(buf, off, on_damage),
        }
    }

    /// Writes all of `buf`; a gap behind the end of the file reads as zeros afterwards.
    pub fn write_at<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        buf: &[u8],
        plain_off: PlainOff,
        random: &dyn Random,
    ) -> Result<(), SealError> {
        check_range(plain_off, buf.len())?;
        if buf.is_empty() {
            return Ok(());
        }
        scratch.reserve()?;
        let off = plain_off.0;
        match self.header.layout {
            Layout::Paged => {
                Operation::<S, Paged>::new(self, storage, scratch, random).write(buf, off)
            }
            Layout::Stream => {
                Operation::<S, Stream>::new(self, storage, scratch, random).write(buf, off)
            }
            Layout::InPlace => {
                Operation::<S, InPlace>::new(self, storage, scratch, random).write(buf, off)
            }
            Layout::Sectored => {
                Operation::<S, Sectored>::new(self, storage, scratch, random).write(buf, off)
            }
            Layout::Wal => Operation::<S, Wal>::new(self, storage, scratch, random).write(buf, off),
        }
    }

    /// Seals zeros into the sectors of zeros that a power cut left in a file of the sectored
    /// layout, in the blocks for which `may_be_lost` holds. A sector of zeros in another block
    /// stays damage. No other process may write to the file meanwhile. Returns how many sectors of
    /// 512 bytes were filled.
    pub fn fill_lost_sectors<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        random: &dyn Random,
        may_be_lost: &dyn Fn(BlockNo) -> bool,
    ) -> Result<u64, SealError> {
        scratch.reserve()?;
        if self.header.layout != Layout::Sectored {
            return Ok(0);
        }
        Operation::<S, Sectored>::new(self, storage, scratch, random).fill_lost(may_be_lost)
    }

    /// Whether a write that ends at `end` may lengthen a file of the sectored layout, which has no
    /// holes. The caller must then keep out other writers that lengthen the file, because the write
    /// may seal zeros into a gap.
    pub fn must_be_alone<S: Storage + ?Sized>(
        &mut self,
        storage: &S,
        end: PlainOff,
    ) -> Result<bool, SealError> {
        if self.header.layout != Layout::Sectored || end.0 <= self.reached {
            return Ok(false);
        }
        self.reached = self.plain_len(storage)?.0;
        Ok(end.0 > self.reached)
    }

    /// Says that somebody cut off these pages, which a write behind them is about to turn into a
    /// hole: they are damage, not zeros, where versions of pages are kept.
    pub fn pages_are_lost<S: Accelerator + ?Sized>(&self, storage: &S, blocks: Range<u64>) {
        if let Some((table, pages)) = storage.versions().zip(self.pages) {
            table.are_lost(pages, blocks);
        }
    }

    /// Cuts the file, or lengthens it with zeros. The header stays.
    pub fn set_len<S: Accelerator + ?Sized>(
        &mut self,
        storage: &S,
        scratch: &mut Scratch,
        plain_len: PlainLen,
        random: &dyn Random,
    ) -> Result<(), SealError> {
        check_range(PlainOff(plain_len.0), 0)?;
        scratch.reserve()?;
        let len = plain_len.0;
        match self.header.layout {
            Layout::Paged => {
                Operation::<S, Paged>::new(self, storage, scratch, random).set_len(len)?;
            }
            Layout::Stream => {
                Operation::<S, Stream>::new(self, storage, scratch, random).set_len(len)?;
            }
            Layout::InPlace => {
                Operation::<S, InPlace>::new(self, storage, scratch, random).set_len(len)?;
            }
            Layout::Sectored => {
                Operation::<S, Sectored>::new(self, storage, scratch, random).set_len(len)?;
            }
            Layout::Wal => {
                Operation::<S, Wal>::new(self, storage, scratch, random).set_len(len)?;
            }
        }
        self.reached = len;
        Ok(())
    }
}

/// Refuses a range whose sealed offsets might not fit in a signed 64-bit file offset.
fn check_range(plain_off: PlainOff, len: usize) -> Result<(), SealError> {
    let end = plain_off.0.checked_add(len as u64).ok_or(SealError::TooLarge)?;
    if end > 1 << 61 { Err(SealError::TooLarge) } else { Ok(()) }
}

fn all_zero(bytes: &[u8]) -> bool {
    // 128 bytes at a time, which compilers turn into vector instructions: callers pass whole pages.
    let (chunks, rest) = bytes.as_chunks::<128>();
    let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |seen, byte| seen | byte) == 0;
    chunks.iter().all(|chunk| is_zero(chunk)) && is_zero(rest)
}

/// Fills `page` so that PostgreSQL never takes it for a page: header fields out of range, and a
/// `pd_checksum` (bytes 8 and 9) of 0, which no computed checksum is. `pd_lsn` (bytes 0 to 7) is 0
/// as well, because a base backup does not check the checksum of a page that is newer than the
/// backup's start.
fn fill_invalid(page: &mut [u8]) {
    page.fill(0xFF);
    let head = page.len().min(10);
    page[..head].fill(0);
}

/// Fills `buf` for a reader of a file of pages that cannot be opened: each page is invalid, as a
/// damaged page would be ([`OnDamage::InvalidPage`]).
pub fn fill_with_invalid_pages(buf: &mut [u8], plain_off: PlainOff) {
    let mut page = [0; BLOCK];
    fill_invalid(&mut page);
    for span in spans::spans(plain_off.0, buf.len() as u64).most(1) {
        span.copy_from(&page, &mut buf[span.range()]);
    }
}

impl Scratch {
    /// An empty scratch buffer; it grows as needed and keeps its memory.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Grows all buffers to what any operation can need, so that no operation fails halfway for
    /// lack of memory. Later allocations are only for cached tags, and operations work without
    /// those.
    pub fn reserve(&mut self) -> Result<(), OutOfMemory> {
        let pages = BATCH * BLOCK + geometry::TAG_BLOCK_LEN as usize;
        let strides = BATCH * geometry::STREAM_STRIDE as usize;
        let sectors = BATCH * geometry::SECTORED_STRIDE as usize + geometry::SECTOR_LEN as usize;
        self.out.room(pages.max(strides).max(sectors))?;
        self.page.room(2 * BLOCK)?;
        self.old.room(geometry::STREAM_STRIDE as usize)?;
        self.rows.room(geometry::TAG_BLOCK_LEN as usize)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::LibraryRandom;
    use crate::storage::mem::MemStorage;
    use crate::suite::Suite;
    use crate::testing::new_file;

    #[test]
    fn a_damaged_page_is_what_the_reader_asked_for() {
        let (random, storage) = (LibraryRandom::new(), MemStorage::default());
        let mut file = new_file(&storage, Suite::Aes256Gcm, Layout::Paged).unwrap();
        let mut scratch = Scratch::new();
        let pages = vec![7; 3 * BLOCK];
        file.write_at(&storage, &mut scratch, &pages, PlainOff(0), &random).unwrap();
        let nonce = geometry::tag_entry_off(BlockNo(1));
        storage.write_at(&[0; 12], nonce).unwrap();

        let mut all_invalid = vec![1; 3 * BLOCK];
        fill_with_invalid_pages(&mut all_invalid, PlainOff(0));
        for (on_damage, wanted) in [
            (OnDamage::InvalidPage, all_invalid[BLOCK..2 * BLOCK].to_vec()),
            (OnDamage::ZeroPage, vec![0; BLOCK]),
        ] {
            let mut buf = vec![1; 3 * BLOCK];
            let outcome = file.read_at(&storage, &mut scratch, &mut buf, PlainOff(0), on_damage);
            let outcome = outcome.unwrap();
            assert_eq!((outcome.damaged_blocks, outcome.first_damaged), (1, Some(BlockNo(1))));
            assert!(buf[..BLOCK] == pages[..BLOCK] && buf[2 * BLOCK..] == pages[..BLOCK]);
            assert!(buf[BLOCK..2 * BLOCK] == wanted);
        }
        // A part of the range gets the same bytes as in the whole range.
        let mut part = vec![1; BLOCK + 100];
        fill_with_invalid_pages(&mut part, PlainOff(BLOCK_LEN + 8000));
        assert!(part == all_invalid[8000..8000 + BLOCK + 100]);
    }
}
