//! Disks that lie: a write that never arrives, arrives in part, or arrives in another place or in
//! another file, all without an error (`spec/media.md`).
//!
//! In a suite with authentication, and in WAL that must open, a reader gets what was written, an
//! older version of it, or an error, and never anything else. Where a reader gets something older,
//! the fingerprint of the file is not the one that the writer's manifest has.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::geometry::{BLOCK_LEN, SECTOR_DATA_LEN, block_sealed_off};
use pgseal_core::storage::lying::{Lie, Lies, LyingStorage};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::verify::verify_file;
use pgseal_core::{
    BlockNo, Fingerprint, Layout, OnDamage, Opened, PlainOff, SealError, SealedFile, SealedOff,
    Suite,
};
use proptest::prelude::*;

const BLOCK: usize = BLOCK_LEN as usize;
/// Blocks of the other file.
const OTHER_BLOCKS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Write { off: usize, len: usize },
    SetLen(usize),
}

impl Op {
    fn run(&self, handle: &mut Handle, storage: &LyingStorage, seed: u32, model: &mut Vec<u8>) {
        match *self {
            Op::Write { off, len } => {
                let bytes = pattern(len, seed);
                handle.write(storage, &bytes, off as u64).unwrap();
                model.resize(model.len().max(off + len), 0);
                model[off..off + len].copy_from_slice(&bytes);
            }
            Op::SetLen(len) => {
                handle.set_len(storage, len as u64).unwrap();
                model.resize(len, 0);
            }
        }
    }
}

/// Mostly whole blocks, as PostgreSQL writes them, over the edge of a group too.
fn op() -> impl Strategy<Value = Op> {
    let block = prop_oneof![3 => 0_usize..8, 1 => 254_usize..259];
    let len = prop_oneof![4 => Just(BLOCK), 1 => Just(3 * BLOCK), 1 => 1_usize..600];
    let shift = prop_oneof![3 => Just(0_usize), 1 => 1_usize..BLOCK];
    prop_oneof![
        6 => (block, shift, len).prop_map(|(block, shift, len)| {
            Op::Write { off: block * BLOCK + shift, len }
        }),
        1 => (0_usize..8).prop_map(|blocks| Op::SetLen(blocks * BLOCK)),
    ]
}

/// Whether a reader can tell a version of a block from anything else.
fn tells(suite: Suite, layout: Layout) -> bool {
    layout == Layout::Wal || suite.authenticates() && layout != Layout::InPlace
}

/// The content of each piece that is authenticated by itself, over time: of each block, or of each
/// sector of the sectored layout.
struct Versions {
    layout: Layout,
    of: Vec<Vec<Vec<u8>>>,
}

impl Versions {
    fn pieces(layout: Layout, block: &[u8]) -> Vec<&[u8]> {
        match layout {
            Layout::Sectored => block.chunks(SECTOR_DATA_LEN as usize).collect(),
            _ => vec![block],
        }
    }

    /// Where the pieces of a block are in the list.
    fn first(&self, block: usize) -> usize {
        if self.layout == Layout::Sectored { block * 17 } else { block }
    }

    fn add(&mut self, content: &[u8]) {
        for (number, block) in content.chunks(BLOCK).enumerate() {
            let first = self.first(number);
            for (index, piece) in Versions::pieces(self.layout, block).into_iter().enumerate() {
                // Before it was written there was nothing, which reads as zeros.
                if self.of.len() <= first + index {
                    self.of.resize(first + index + 1, vec![Vec::new()]);
                }
                let known = &mut self.of[first + index];
                if known.last().is_none_or(|last| last != piece) {
                    known.push(piece.to_vec());
                }
            }
        }
    }

    /// Whether each piece of a block that was read is one of its versions.
    fn have(&self, block: usize, read: &[u8]) -> bool {
        let first = self.first(block);
        Versions::pieces(self.layout, read).into_iter().enumerate().all(|(index, got)| {
            let is = |version: &Vec<u8>| {
                let same = version.len().min(got.len());
                got[..same] == version[..same] && got[same..].iter().all(|byte| *byte == 0)
            };
            self.of.get(first + index).is_none_or(|known| known.iter().any(is))
        })
    }
}

/// What a reader finds on a disk that lied.
#[derive(Debug, Default, Clone, Copy)]
struct Found {
    /// Errors, of the file or of a block.
    errors: u32,
    /// Blocks that read as something older, without an error.
    older: u32,
}

/// Reads each block of what is on a disk. `believed` is the file as its writer believes it to be.
fn judge(
    layout: Layout,
    disk: &MemStorage,
    believed: &MemStorage,
    content: &[u8],
    versions: &Versions,
) -> Result<Found, String> {
    let keys = keys();
    let mut found = Found::default();
    let is_the_same = Fingerprint::of(disk).unwrap() == Fingerprint::of(believed).unwrap();
    match SealedFile::open(disk, &keys) {
        Err(_) => found.errors += 1,
        Ok(Opened::NoHeader { .. } | Opened::Plain) => found.older += 1,
        Ok(Opened::Sealed(_)) => {
            let mut handle = Handle::open(disk, &keys);
            if layout == Layout::Wal {
                handle.file.set_must_open(PlainOff(u64::MAX));
            }
            for block in 0..content.len().div_ceil(BLOCK) {
                let at = block * BLOCK;
                let want = &content[at..content.len().min(at + BLOCK)];
                match handle.read(disk, at as u64, BLOCK) {
                    Err(SealError::BlockDamaged(_)) => found.errors += 1,
                    Err(error) => return Err(format!("block {block}: {error}")),
                    Ok(read) if read == want => {}
                    Ok(read) if versions.have(block, &read) => found.older += 1,
                    Ok(_) => return Err(format!("block {block} has what nobody wrote there")),
                }
            }
        }
    }
    if found.older > 0 && is_the_same {
        return Err(format!("{} older blocks, and the fingerprint is the same", found.older));
    }
    Ok(found)
}

/// A file of other content, and the versions of its blocks.
fn other(suite: Suite, layout: Layout) -> (Vec<u8>, Vec<u8>, Versions) {
    let (storage, content) = (MemStorage::default(), pattern(OTHER_BLOCKS * BLOCK, 77));
    Handle::create(&storage, suite, layout, &keys()).write(&storage, &content, 0).unwrap();
    let mut versions = Versions { layout, of: Vec::new() };
    versions.add(&content);
    let bytes = storage.bytes().clone();
    (bytes, content, versions)
}

/// Runs the operations on a disk that begins to lie before operation `from`.
fn run(suite: Suite, layout: Layout, ops: &[Op], from: usize, seed: u64) -> Result<Found, String> {
    let (other_bytes, other_content, other_versions) = other(suite, layout);
    let storage = LyingStorage::beside(other_bytes.clone());
    let mut handle = Handle::create(&storage, suite, layout, &keys());
    let (mut content, mut versions) = (Vec::new(), Versions { layout, of: Vec::new() });
    for (number, op) in ops.iter().enumerate() {
        if number == from {
            storage.begin(Lies::BySeed(seed));
        }
        op.run(&mut handle, &storage, number as u32 + 1, &mut content);
        versions.add(&content);
    }
    let mine = judge(layout, &storage.disk(), &storage.believed(), &content, &versions)?;
    let believed = MemStorage::with(other_bytes);
    let others = judge(layout, &storage.other(), &believed, &other_content, &other_versions)
        .map_err(|what| format!("the other file: {what}"))?;
    // Of the other file there is no older version: what hit it is an error, or hit nothing.
    if others.older > 0 && Fingerprint::of(&storage.other()).unwrap().file_id != [0; 16] {
        return Err(format!("{} blocks of the other file changed in silence", others.older));
    }
    Ok(Found { errors: mine.errors + others.errors, older: mine.older })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_a_lying_disk_did_is_an_error_or_an_older_version_that_the_manifest_knows(
        ops in proptest::collection::vec(op(), 2..12),
        from in 0_usize..6,
        seed in any::<u64>(),
    ) {
        for (suite, layout) in combinations().filter(|(suite, layout)| tells(*suite, *layout)) {
            let found = run(suite, layout, &ops, from.min(ops.len() - 1), seed);
            prop_assert!(found.is_ok(), "{suite} {layout} {ops:?} from {from}, {seed}: {found:?}");
        }
    }
}

/// Checks that the property above is about something: of many runs some end in errors and some in
/// older versions, in each layout.
#[test]
fn lies_are_told_and_matter() {
    for (suite, layout) in combinations().filter(|(suite, layout)| tells(*suite, *layout)) {
        let mut sum = Found::default();
        for seed in 0..60 {
            let ops: Vec<Op> = (0..12)
                .map(|at| Op::Write { off: (seed as usize + at * 5) % 7 * BLOCK, len: BLOCK })
                .collect();
            let found = run(suite, layout, &ops, 7, seed).unwrap();
            (sum.errors, sum.older) = (sum.errors + found.errors, sum.older + found.older);
        }
        assert!(sum.errors > 10 && sum.older > 0, "{suite} {layout}: {sum:?}");
    }
}

/// A file of six blocks; one of them is written again on a disk that tells these lies. Returns the
/// file on the disk and as it should be, the other file, and how block 3 reads.
struct Overwritten {
    disk: MemStorage,
    believed: MemStorage,
    other: MemStorage,
}

const OLD: u32 = 1;
const NEW: u32 = 2;

impl Overwritten {
    fn new(suite: Suite, layout: Layout, lies: Vec<(u64, Lie)>) -> Overwritten {
        let storage = LyingStorage::beside(other(suite, layout).0);
        let mut handle = Handle::create(&storage, suite, layout, &keys());
        handle.write(&storage, &pattern(6 * BLOCK, OLD), 0).unwrap();
        let count = lies.len();
        storage.begin(Lies::At(lies));
        handle.write(&storage, &pattern(BLOCK, NEW), 3 * BLOCK_LEN).unwrap();
        assert_eq!(storage.told().len(), count, "{suite} {layout}: a lie that was not told");
        Overwritten { disk: storage.disk(), believed: storage.believed(), other: storage.other() }
    }

    fn read(storage: &MemStorage, layout: Layout, block: u64) -> Result<Vec<u8>, SealError> {
        let mut handle = Handle::open(storage, &keys());
        if layout == Layout::Wal {
            handle.file.set_must_open(PlainOff(u64::MAX));
        }
        let mut buf = vec![0; BLOCK];
        handle.file.read_at(
            storage,
            &mut handle.scratch,
            &mut buf,
            PlainOff(block * BLOCK_LEN),
            OnDamage::Fail,
        )?;
        Ok(buf)
    }

    fn has_the_believed_fingerprint(&self) -> bool {
        Fingerprint::of(&self.disk).unwrap() == Fingerprint::of(&self.believed).unwrap()
    }
}

fn is_damaged(read: &Result<Vec<u8>, SealError>) -> bool {
    matches!(read, Err(SealError::BlockDamaged(_)))
}

fn with_tag_blocks() -> impl Iterator<Item = (Suite, Layout)> {
    combinations().filter(|(suite, layout)| {
        tells(*suite, *layout) && matches!(layout, Layout::Paged | Layout::Wal)
    })
}

/// Page and entry are two writes: if one is lost the page does not open, if both are lost it is the
/// older page, which only the fingerprint tells.
#[test]
fn a_lost_page_or_entry_is_damage_and_both_are_an_older_page() {
    for (suite, layout) in with_tag_blocks() {
        for lost in [1, 2] {
            let file = Overwritten::new(suite, layout, vec![(lost, Lie::Lost)]);
            let read = Overwritten::read(&file.disk, layout, 3);
            assert!(is_damaged(&read), "{suite} {layout}: write {lost} lost: {read:?}");
        }
        let file = Overwritten::new(suite, layout, vec![(1, Lie::Lost), (2, Lie::Lost)]);
        let read = Overwritten::read(&file.disk, layout, 3).unwrap();
        assert!(read == pattern(6 * BLOCK, OLD)[3 * BLOCK..4 * BLOCK], "{suite} {layout}");
        assert!(!file.has_the_believed_fingerprint(), "{suite} {layout}");
        let right = Overwritten::new(suite, layout, vec![]);
        assert!(right.has_the_believed_fingerprint());
        assert!(Overwritten::read(&right.disk, layout, 3).unwrap() == pattern(BLOCK, NEW));
    }
}

/// A page that went to the place of another one damages both; one that went to another file damages
/// its own place and the page there. `pgseal verify` reads the same way and finds each.
#[test]
fn a_misdirected_page_is_noticed_in_both_places() {
    let keys = keys();
    for (suite, layout) in with_tag_blocks() {
        let place = block_sealed_off(layout, BlockNo(5));
        let file = Overwritten::new(suite, layout, vec![(1, Lie::To(place))]);
        for block in 0..6 {
            let read = Overwritten::read(&file.disk, layout, block);
            assert_eq!(is_damaged(&read), [3, 5].contains(&block), "{suite} {layout} {block}");
        }
        let file = Overwritten::new(suite, layout, vec![(1, Lie::ToOtherFile(place))]);
        for block in 0..6 {
            let mine = Overwritten::read(&file.disk, layout, block);
            let others = Overwritten::read(&file.other, layout, block);
            assert_eq!(is_damaged(&mine), block == 3, "{suite} {layout} {block}");
            assert_eq!(is_damaged(&others), block == 5, "{suite} {layout} {block}: other file");
        }
        for storage in [&file.disk, &file.other] {
            let mut handle = Handle::open(storage, &keys);
            let scratch = &mut handle.scratch;
            let report = verify_file(&mut handle.file, storage, scratch, &mut |_| {}).unwrap();
            let count = report.damaged.count() + report.unfitting.count();
            assert_eq!(count, 1, "{suite} {layout}: {report:?}");
        }
    }
}

/// A page over a header: the file does not open as what it was.
#[test]
fn a_page_over_the_header_of_another_file_is_noticed() {
    for (suite, layout) in with_tag_blocks() {
        let to = Lie::ToOtherFile(SealedOff(0));
        let file = Overwritten::new(suite, layout, vec![(1, to)]);
        match SealedFile::open(&file.other, &keys()) {
            Err(_) | Ok(Opened::Plain) => {}
            other => panic!("{suite} {layout}: {other:?}"),
        }
    }
}

/// In-place XTS and CTR have nothing to tell versions apart. This is what `spec/media.md` says of
/// them, so that nobody expects more.
#[test]
fn xts_and_ctr_notice_none_of_it() {
    let suites = [(Suite::Aes256Xts, Layout::InPlace), (Suite::Aes256Ctr, Layout::Paged)];
    for (suite, layout) in suites {
        let file = Overwritten::new(suite, layout, vec![(1, Lie::Lost)]);
        assert!(!is_damaged(&Overwritten::read(&file.disk, layout, 3)), "{suite} {layout}");
        assert!(file.has_the_believed_fingerprint(), "{suite} {layout}");
    }
}
