//! One operation on a sealed file: its inputs and buffers, and what the layouts share.

use core::marker::PhantomData;

use super::spans::{Span, Spans};
use super::{Buffer, OnDamage, ReadOutcome, Scratch, SealedFile};
use crate::error::SealError;
use crate::geometry::{BLOCK_LEN, sealed_len};
use crate::random::{Random, RandomFailed};
use crate::storage::Accelerator;
use crate::units::{BlockNo, PlainLen};

/// One operation on a file of the layout `L`, with its inputs and buffers. Each layout implements
/// its methods in a module of its own: [`Paged`](super::paged::Paged),
/// [`Stream`](super::stream::Stream), [`InPlace`](super::inplace::InPlace),
/// [`Sectored`](super::sectored::Sectored), [`Wal`](super::wal::Wal).
pub(super) struct Operation<'a, S: ?Sized, L> {
    pub(super) file: &'a mut SealedFile,
    pub(super) storage: &'a S,
    pub(super) scratch: &'a mut Scratch,
    /// Nonces come from here.
    pub(super) random: &'a dyn Random,
    layout: PhantomData<L>,
}

/// The methods that each layout implements in its own way.
pub(super) trait InLayout: Sized {
    /// The pieces in which a range is read.
    fn read_spans(plain_off: u64, len: u64) -> Spans;

    /// Reads one piece into `target`. Returns the number of bytes read, which is less than the
    /// length of the piece only where the file ends.
    fn read_span(
        &mut self,
        span: Span,
        target: &mut [u8],
        reading: &mut Reading,
    ) -> Result<usize, SealError>;

    /// Writes all of `bytes`, which are not empty, at a plain offset.
    fn write(&mut self, bytes: &[u8], plain_off: u64) -> Result<(), SealError>;

    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&mut self, new_len: u64) -> Result<(), SealError>;

    /// Reads until `buf` is full or the file ends.
    fn read(
        &mut self,
        buf: &mut [u8],
        plain_off: u64,
        on_damage: OnDamage,
    ) -> Result<ReadOutcome, SealError> {
        let mut reading = Reading::new(on_damage);
        for span in Self::read_spans(plain_off, buf.len() as u64) {
            let got = self.read_span(span, &mut buf[span.range()], &mut reading)?;
            reading.outcome.len += got;
            if got < span.len {
                break;
            }
        }
        Ok(reading.outcome)
    }
}

/// How a layout writes files that another process may write and lengthen meanwhile: all but the
/// paged layout, whose writers hold a lock, and the stream layout, which has one writer.
pub(super) trait Shared: InLayout {
    /// Whether a failed write leaves the gap before it filled. Another process may have written
    /// into the gap meanwhile.
    const KEEPS_GAP: bool;
    /// A length is known up to a multiple of this: behind it there may be a filler, which the next
    /// append must notice and cut off.
    const KNOWN_STEP: u64;

    /// Writes bytes into a file of the plain length `had`, which is at least `plain_off`.
    fn write_spans(&mut self, bytes: &[u8], plain_off: u64, had: u64) -> Result<(), SealError>;

    /// Before the file grows from `had` to `new_len`: seals the zeros in between that must not be a
    /// hole.
    fn fill_gap(&mut self, had: u64, new_len: u64) -> Result<(), SealError>;

    /// Lengthens the file with zeros.
    fn lengthen(&mut self, had: u64, new_len: u64) -> Result<(), SealError>;

    /// Truncates the file.
    fn cut(&mut self, end: u64) -> Result<(), SealError>;
}

impl<S: Accelerator + ?Sized, L> Operation<'_, S, L>
where
    Self: Shared,
{
    /// Writes all of `bytes` at a plain offset. If that fails, cuts off what was appended, for
    /// example on a full disk.
    pub(super) fn write_shared(&mut self, bytes: &[u8], plain_off: u64) -> Result<(), SealError> {
        let end = plain_off + bytes.len() as u64;
        let mut had = self.file.reached;
        // The length to which a failed write is cut back.
        let mut kept = had;
        // A write of a part of a block needs the present end of the file, which another process may
        // have moved.
        let whole = plain_off.is_multiple_of(BLOCK_LEN) && end.is_multiple_of(BLOCK_LEN);
        if end > self.file.reached || !whole {
            had = self.plain_len()?;
            kept = if Self::KEEPS_GAP { had.max(plain_off) } else { had };
            if had < plain_off {
                self.fill_gap(had, plain_off)?;
                had = plain_off;
            }
        }
        let result = self.write_spans(bytes, plain_off, had);
        if result.is_err() && end > had {
            let _ = self.cut(kept);
            return result;
        }
        result?;
        if end > had {
            self.cut_filler(had, end)?;
        }
        let known = end.max(had);
        self.file.has_reached(known - known % Self::KNOWN_STEP);
        Ok(())
    }

    /// Cuts the file, or lengthens it with zeros.
    pub(super) fn set_shared_len(&mut self, new_len: u64) -> Result<(), SealError> {
        let had = self.plain_len()?;
        if new_len >= had { self.lengthen(had, new_len) } else { self.cut(new_len) }
    }
}

impl<'a, S: Accelerator + ?Sized, L> Operation<'a, S, L> {
    pub(super) fn new(
        file: &'a mut SealedFile,
        storage: &'a S,
        scratch: &'a mut Scratch,
        random: &'a dyn Random,
    ) -> Operation<'a, S, L> {
        Operation { file, storage, scratch, random, layout: PhantomData }
    }

    /// The plain length of the file.
    pub(super) fn plain_len(&self) -> Result<u64, SealError> {
        Ok(self.file.plain_len(self.storage)?.0)
    }

    /// After the file grew from `had` to `end`: cuts off the rest of the filler that followed the
    /// old last cell (in-place, WAL) or sector (sectored).
    pub(super) fn cut_filler(&self, had: u64, end: u64) -> Result<(), SealError> {
        let layout = self.file.header.layout;
        let (had, end) = (sealed_len(layout, PlainLen(had)), sealed_len(layout, PlainLen(end)));
        if end < had { Ok(self.storage.set_len(end)?) } else { Ok(()) }
    }

    /// Runs `part` with one of the scratch buffers, taken out of the operation so that both can be
    /// borrowed. In the operation, an empty buffer takes its place meanwhile.
    #[inline]
    pub(super) fn lend<T>(
        &mut self,
        which: impl Fn(&mut Scratch) -> &mut Buffer,
        part: impl FnOnce(&mut Self, &mut Buffer) -> Result<T, SealError>,
    ) -> Result<T, SealError> {
        let mut buffer = core::mem::take(which(self.scratch));
        let result = part(self, &mut buffer);
        *which(self.scratch) = buffer;
        result
    }
}

/// The outcome of a read so far, and what the read does about damage.
pub(super) struct Reading {
    pub(super) outcome: ReadOutcome,
    on_damage: OnDamage,
}

impl Reading {
    pub(super) fn new(on_damage: OnDamage) -> Reading {
        Reading { outcome: ReadOutcome::default(), on_damage }
    }

    /// As [`Reading::note_damage`], for a block that authenticates and is an older version.
    pub(super) fn note_older(&mut self, block: BlockNo, page: &mut [u8]) -> Result<(), SealError> {
        if self.on_damage == OnDamage::Fail {
            return Err(SealError::BlockOlder(block));
        }
        self.outcome.older_blocks += 1;
        self.note_damage(block, page)
    }

    /// Handles a block that does not authenticate: fails, or fills `page`, the bytes read of the
    /// block, with what the reader gets instead.
    pub(super) fn note_damage(&mut self, block: BlockNo, page: &mut [u8]) -> Result<(), SealError> {
        match self.on_damage {
            OnDamage::Fail => return Err(SealError::BlockDamaged(block)),
            OnDamage::InvalidPage => super::fill_invalid(page),
            OnDamage::ZeroPage => page.fill(0),
        }
        self.outcome.damaged_blocks += 1;
        self.outcome.first_damaged.get_or_insert(block);
        Ok(())
    }
}

/// The random source of an operation that needs no random bytes.
pub(super) struct NoRandom;

impl Random for NoRandom {
    fn fill(&self, _: &mut [u8]) -> Result<(), RandomFailed> {
        Err(RandomFailed)
    }
}
