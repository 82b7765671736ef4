//! Copies the content of one file into a file of another form.

use pgseal_core::header::{self, Kind};
use pgseal_core::random::{LibraryRandom, Random};
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::verify::{self, BlockList, BlockState};
use pgseal_core::{
    BlockNo, Generation, KeySet, OnDamage, PlainOff, Scratch, SealError, SealedFile, SealedLen,
    SealedOff, geometry,
};

use crate::page::{PAGE_LEN, PageRule};

/// Plain bytes that are read and then written at once: few enough to stay in the CPU's cache.
const CHUNK: usize = 256 << 10;

/// How a file is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Suite, layout and place.
    pub form: pgseal_core::Form,
    /// The data key.
    pub generation: Generation,
}

/// The form of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Plain.
    Plain,
    /// Sealed.
    Sealed(Seal),
}

impl Form {
    /// Bytes on disk of a file with this many plain bytes.
    #[must_use]
    pub fn len_on_disk(self, plain_len: u64) -> u64 {
        match self {
            Form::Plain => plain_len,
            Form::Sealed(seal) => {
                geometry::sealed_len(seal.form.layout, pgseal_core::PlainLen(plain_len)).0
            }
        }
    }
}

/// The form of an existing file.
#[derive(Debug)]
pub enum Source {
    /// Plain.
    Plain,
    /// Sealed, and opened.
    Sealed(Box<SealedFile>),
}

impl Source {
    /// Reads the head of a file. A file that does not begin like a sealed one is plain.
    ///
    /// # Errors
    /// Errors of the storage; an error for a header that does not open under `keys`.
    pub fn look<S: Storage>(storage: &S, keys: &KeySet) -> Result<Source, SealError> {
        let mut start = [0; geometry::HEAD_LEN as usize];
        let got = storage.read_at(&mut start, SealedOff(0))?;
        match header::classify(&start[..got])? {
            Kind::Sealed(header) => {
                let file = SealedFile::from_header(&start[..got], header, keys)?;
                Ok(Source::Sealed(Box::new(file)))
            }
            Kind::NoHeader | Kind::Plain => Ok(Source::Plain),
        }
    }

    /// The plain length of the file.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn plain_len<S: Storage>(&self, storage: &S) -> Result<u64, SealError> {
        Ok(match self {
            Source::Plain => storage.len()?.0,
            Source::Sealed(file) => file.plain_len(storage)?.0,
        })
    }
}

/// Where the content goes.
#[derive(Debug)]
pub enum Sink<'a, S> {
    /// Nowhere: the content is only read and checked.
    Nowhere,
    /// Into a new file of this form.
    File(&'a S, Form),
}

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Plain bytes.
    pub plain_len: u64,
    /// Blocks that do not authenticate, or that PostgreSQL would not accept as pages.
    pub damaged: BlockList,
}

/// The buffers of one thread.
#[derive(Debug)]
pub struct Buffers {
    scratch: Scratch,
    chunk: Vec<u8>,
    random: LibraryRandom,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { scratch: Scratch::new(), chunk: vec![0; CHUNK], random: LibraryRandom::new() }
    }
}

/// Reads a whole file and writes it in its new form. `progress` is called with the number of plain
/// bytes that were just copied, and may stop the copy with an error.
///
/// A page of a relation that does not authenticate is replaced by a page that PostgreSQL does not
/// accept, so that the damage stays visible. In any other file, damage is an error.
///
/// # Errors
/// Errors of both storages; [`SealError::BlockDamaged`]. The new file is then incomplete.
pub fn copy<S: Accelerator, E: From<SealError>>(
    source: &mut Source,
    from: &S,
    sink: &Sink<'_, S>,
    keys: &KeySet,
    rule: Option<PageRule>,
    buffers: &mut Buffers,
    progress: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<Copied, E> {
    let plain_len = source.plain_len(from)?;
    let mut copied = Copied { plain_len, damaged: BlockList::default() };
    let Buffers { scratch, chunk, random } = buffers;
    let mut target = match sink {
        Sink::File(to, Form::Sealed(seal)) => {
            Some(SealedFile::create(*to, &seal.form, keys, seal.generation, random as &dyn Random)?)
        }
        Sink::File(_, Form::Plain) | Sink::Nowhere => None,
    };
    let mut off = 0;
    while off < plain_len {
        let want = usize::try_from((plain_len - off).min(CHUNK as u64)).unwrap_or(CHUNK);
        let part = &mut chunk[..want];
        let judge = rule.is_some() || matches!(sink, Sink::Nowhere);
        read(source, from, scratch, part, off, judge, rule, &mut copied.damaged)?;
        match (sink, &mut target) {
            (Sink::Nowhere, _) => {}
            (Sink::File(to, _), Some(target)) => {
                target.write_at(*to, scratch, part, PlainOff(off), random)?;
            }
            (Sink::File(to, _), None) => {
                to.write_at(part, SealedOff(off)).map_err(SealError::from)?;
            }
        }
        off += want as u64;
        progress(want as u64)?;
    }
    if let (Sink::File(to, form), None) = (sink, &target)
        && *form == Form::Plain
        && plain_len == 0
    {
        to.set_len(SealedLen(0)).map_err(SealError::from)?;
    }
    Ok(copied)
}

/// Reads a part of the content. With `judge`, adds the damaged blocks to `damaged`; without, damage
/// is an error.
#[allow(clippy::too_many_arguments)]
fn read<S: Accelerator>(
    source: &mut Source,
    from: &S,
    scratch: &mut Scratch,
    part: &mut [u8],
    off: u64,
    judge: bool,
    rule: Option<PageRule>,
    damaged: &mut BlockList,
) -> Result<(), SealError> {
    let first = off / geometry::BLOCK_LEN;
    match source {
        Source::Plain => {
            if from.read_at(part, SealedOff(off))? < part.len() {
                return Err(became_shorter());
            }
        }
        Source::Sealed(file) => {
            let on_damage = if judge { OnDamage::InvalidPage } else { OnDamage::Fail };
            let outcome = file.read_at(from, scratch, part, PlainOff(off), on_damage)?;
            if outcome.len < part.len() {
                return Err(became_shorter());
            }
            if outcome.damaged_blocks > 0 && rule.is_none() {
                let blocks = (part.len() as u64).div_ceil(geometry::BLOCK_LEN);
                for block in (first..first + blocks).map(BlockNo) {
                    if verify::verify_block(file, from, scratch, block)? == BlockState::Damaged {
                        damaged.push(block);
                    }
                }
            }
        }
    }
    if let Some(rule) = rule {
        // A page that does not authenticate was replaced by one that no rule accepts.
        for (page, index) in part.chunks(PAGE_LEN).zip(first..) {
            if !rule.accepts(index, page) {
                damaged.push(BlockNo(index));
            }
        }
    }
    Ok(())
}

fn became_shorter() -> SealError {
    let text = "the file became shorter while it was read; is a server running?";
    SealError::Io(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text))
}
