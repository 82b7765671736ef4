//! The tamper matrix of the file layer: changes to a file by somebody who can write to the storage,
//! and what a reader notices. The table is `spec/threat-model-file-layer.inc.md`; run with
//! `UPDATE_EXPECT=1` to write it anew.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::geometry::{
    BLOCK_LEN, HEADER_LEN, SECTORED_STRIDE, block_sealed_off, sealed_len, tag_entry_off,
    wal_entry_off,
};
use pgseal_core::storage::Storage;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{BlockNo, Layout, Opened, PlainLen, PlainOff, SealError, SealedFile, Suite};

const BLOCK: usize = BLOCK_LEN as usize;
const BLOCKS: u64 = 6;
const TARGET: BlockNo = BlockNo(3);

/// The bytes of a sealed file, of an older state of it, and of another file of the same cluster.
struct Files {
    layout: Layout,
    now: Vec<u8>,
    old: Vec<u8>,
    other: Vec<u8>,
}

impl Files {
    fn page(&self, block: BlockNo) -> core::ops::Range<usize> {
        let start = block_sealed_off(self.layout, block).0 as usize;
        let len = match self.layout {
            Layout::Paged | Layout::InPlace | Layout::Wal => BLOCK,
            Layout::Stream => 8220,
            Layout::Sectored => SECTORED_STRIDE as usize,
        };
        start..start + len
    }

    fn entry(&self, block: BlockNo) -> Option<core::ops::Range<usize>> {
        let (start, len) = match self.layout {
            Layout::Paged => (tag_entry_off(block).0 as usize, 32),
            Layout::Wal => (wal_entry_off(block).0 as usize, 28),
            Layout::Stream | Layout::InPlace | Layout::Sectored => return None,
        };
        Some(start..start + len)
    }

    fn flip(&self, at: usize) -> Option<Vec<u8>> {
        let mut bytes = self.now.clone();
        bytes[at] ^= 0x10;
        Some(bytes)
    }

    /// Replaces the target page if `page`, and its tag entry if `entry`, with the page and the tag
    /// entry of the block `from` in another image.
    fn graft(&self, image: &[u8], from: BlockNo, page: bool, entry: bool) -> Option<Vec<u8>> {
        let mut bytes = self.now.clone();
        if page {
            bytes[self.page(TARGET)].copy_from_slice(&image[self.page(from)]);
        }
        if entry && let Some(range) = self.entry(TARGET) {
            bytes[range].copy_from_slice(&image[self.entry(from)?]);
        } else if entry && !page {
            return None;
        }
        Some(bytes)
    }

    fn cut(&self, plain_len: u64, less: usize) -> Option<Vec<u8>> {
        let len = sealed_len(self.layout, PlainLen(plain_len)).0 as usize - less;
        Some(self.now[..len].to_vec())
    }

    fn zeroed(&self, page: bool, entry: bool) -> Option<Vec<u8>> {
        self.graft(&vec![0; self.now.len()], TARGET, page, entry)
    }
}

type Attack = fn(&Files) -> Option<Vec<u8>>;

/// The attacks, in the order of the table; an attack returns `None` where the layout does not have
/// what it changes.
const ATTACKS: &[(&str, Attack)] = &[
    ("header: bit flip in the magic", |f| f.flip(3)),
    ("header: bit flip in the version", |f| f.flip(8)),
    ("header: bit flip in the suite", |f| f.flip(10)),
    ("header: bit flip in the layout", |f| f.flip(12)),
    ("header: bit flip in the file id", |f| f.flip(20)),
    ("header: bit flip in the keyring id", |f| f.flip(40)),
    ("header: bit flip in the generation", |f| f.flip(48)),
    ("header: bit flip in the wrap nonce", |f| f.flip(70)),
    ("header: bit flip in the wrapped key", |f| f.flip(100)),
    ("header: bit flip in the wrap tag", |f| f.flip(150)),
    ("header: bit flip in the reserved bytes", |f| f.flip(500)),
    ("header: bit flip in the padding", |f| f.flip(4000)),
    ("header of another file of the cluster", |f| {
        let mut bytes = f.now.clone();
        bytes[..HEADER_LEN as usize].copy_from_slice(&f.other[..HEADER_LEN as usize]);
        Some(bytes)
    }),
    ("header of zeros", |f| {
        let mut bytes = f.now.clone();
        bytes[..HEADER_LEN as usize].fill(0);
        Some(bytes)
    }),
    ("bit flip in a block's nonce", |f| {
        let at = match f.layout {
            Layout::Paged | Layout::Wal => f.entry(TARGET)?.start,
            Layout::Stream | Layout::Sectored => f.page(TARGET).start,
            Layout::InPlace => return None,
        };
        f.flip(at + 5)
    }),
    ("bit flip in a block's tag", |f| {
        let at = match f.layout {
            Layout::Paged | Layout::Wal => f.entry(TARGET)?.start + 12,
            Layout::Stream => f.page(TARGET).end - 16,
            Layout::Sectored => f.page(TARGET).start + 12,
            Layout::InPlace => return None,
        };
        f.flip(at + 5)
    }),
    ("bit flip in the last bytes of an entry", |f| {
        f.entry(TARGET).filter(|entry| entry.len() == 32).and_then(|entry| f.flip(entry.start + 29))
    }),
    ("bit flip in a block", |f| f.flip(f.page(TARGET).start + 1000)),
    ("block from elsewhere in the file", |f| f.graft(&f.now, BlockNo(1), true, false)),
    ("block and entry from elsewhere in the file", |f| {
        f.entry(TARGET)?;
        f.graft(&f.now, BlockNo(1), true, true)
    }),
    ("block and entry of another file, same place", |f| f.graft(&f.other, TARGET, true, true)),
    ("older copy of the block, without its entry", |f| {
        f.entry(TARGET)?;
        f.graft(&f.old, TARGET, true, false)
    }),
    ("older copy of the entry, without its block", |f| f.graft(&f.old, TARGET, false, true)),
    ("older copy of the block and its entry", |f| f.graft(&f.old, TARGET, true, true)),
    ("older copy of the whole file", |f| Some(f.old.clone())),
    ("block of zeros", |f| {
        f.zeroed(true, false).filter(|_| !matches!(f.layout, Layout::Stream | Layout::Sectored))
    }),
    ("entry of zeros", |f| f.zeroed(false, true)),
    ("block of zeros, nonce and tag too", |f| {
        f.zeroed(true, true).filter(|_| f.layout != Layout::InPlace)
    }),
    ("one sector of zeros", |f| {
        let mut bytes = f.now.clone();
        bytes[f.page(TARGET).start + 1024..][..512].fill(0);
        Some(bytes)
    }),
    ("one sector from an older copy of the block", |f| {
        let sector = f.page(TARGET).start + 1024;
        let mut bytes = f.now.clone();
        bytes[sector..sector + 512].copy_from_slice(&f.old[sector..sector + 512]);
        Some(bytes)
    }),
    ("file cut between two blocks", |f| f.cut(4 * BLOCK_LEN, 0)),
    ("file cut inside a block", |f| f.cut(4 * BLOCK_LEN, 100)),
    ("file cut inside the header's fields", |f| Some(f.now[..100].to_vec())),
    ("file cut inside the header's padding", |f| Some(f.now[..2000].to_vec())),
];

/// What a reader of a file notices whose pages up to `must_open` must open (WAL).
fn verdict(image: Vec<u8>, plain: &[u8], must_open: u64) -> String {
    let storage = MemStorage::with(image);
    match SealedFile::open(&storage, &keys()) {
        Ok(Opened::Sealed(_)) => {}
        Ok(Opened::NoHeader { .. }) => return "**not detected**: empty file".to_owned(),
        Ok(Opened::Plain) => return "a plain file: policy decides".to_owned(),
        Err(SealError::Header(_) | SealError::KeyUnknown { .. }) => {
            return "detected: file refused".to_owned();
        }
        Err(error) => panic!("{error}"),
    }
    let mut handle = Handle::open(&storage, &keys());
    handle.file.set_must_open(PlainOff(must_open));
    let len = handle.len(&storage) as usize;
    let (mut damaged, mut changed, mut zeros) = (0, 0, 0);
    for at in (0..len).step_by(BLOCK) {
        let mut buf = vec![0; BLOCK.min(len - at)];
        match handle.read_into(&storage, &mut buf, at as u64) {
            Ok(outcome) => {
                zeros += outcome.zero_blocks;
                changed += usize::from(plain[at..at + buf.len()] != buf);
            }
            Err(SealError::BlockDamaged(_)) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(storage.len().is_ok());
    match (damaged, changed, zeros, len < plain.len()) {
        (0, 0, 0, false) => "no effect".to_owned(),
        (0, 0, 0, true) => "**not detected**: shorter file".to_owned(),
        (0, 1, 1, _) => "**not detected** at read: zeros; verify lists a zero block".to_owned(),
        (0, ..) => "**not detected**".to_owned(),
        (1, 0, 0, false) => "detected: that block".to_owned(),
        (1, 0, 0, true) => "detected: the cut block".to_owned(),
        (_, 0, 0, false) if damaged as u64 == BLOCKS => "detected: every block".to_owned(),
        mixed => panic!("mixed verdict {mixed:?}"),
    }
}

fn files(suite: Suite, layout: Layout) -> (Files, Vec<u8>) {
    let keys = keys();
    let make = |seed| {
        let storage = MemStorage::default();
        let mut handle = Handle::create(&storage, suite, layout, &keys);
        handle.write(&storage, &pattern(BLOCKS as usize * BLOCK, seed), 0).unwrap();
        (storage, handle)
    };
    let ((storage, mut handle), (other, _)) = (make(1), make(2));
    let old = storage.bytes().clone();
    let plain = pattern(BLOCKS as usize * BLOCK, 3);
    handle.write(&storage, &plain, 0).unwrap();
    let now = storage.bytes().clone();
    let other = other.bytes().clone();
    (Files { layout, now, old, other }, plain)
}

/// One column for each family of suites, and the plain offset up to which its pages must open
/// (WAL); all members must agree.
const COLUMNS: [(&str, Layout, &str, u64); 8] = [
    ("GCM, paged", Layout::Paged, "gcm", 0),
    ("AEGIS, paged", Layout::Paged, "256x2", 0),
    ("GCM, stream", Layout::Stream, "gcm", 0),
    ("GCM, sectored", Layout::Sectored, "gcm", 0),
    ("XTS, in-place", Layout::InPlace, "xts", 0),
    ("WAL that must open", Layout::Wal, "xts", BLOCKS * BLOCK_LEN),
    ("WAL behind that", Layout::Wal, "xts", 0),
    ("CTR, paged", Layout::Paged, "ctr", 0),
];

/// The verdict in the row of an attack of a written table.
fn cell(table: &str, what: &str, column: usize) -> String {
    let row = table.lines().find_map(|line| line.strip_prefix(&format!("| {what} |")));
    row.and_then(|row| row.split('|').nth(column)).unwrap_or_default().trim().to_owned()
}

#[test]
fn the_verdicts_are_those_of_the_table() {
    let mut table = String::from(
        "<!-- written by UPDATE_EXPECT=1 cargo test -p pgseal-core --test tamper -->\n\n| what is done |",
    );
    table.extend(COLUMNS.map(|(title, ..)| format!(" {title} |")));
    table.push_str("\n|---|---|---|---|---|---|---|---|---|\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/threat-model-file-layer.inc.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let combinations: Vec<_> =
        combinations().map(|(suite, layout)| (suite, layout, files(suite, layout))).collect();
    for (what, attack) in ATTACKS {
        table.push_str(&format!("| {what} |"));
        for (column, (title, layout, family, must_open)) in COLUMNS.into_iter().enumerate() {
            let mut verdicts: Vec<String> = combinations
                .iter()
                .filter(|(suite, l, _)| *l == layout && suite.name().ends_with(family))
                .map(|(.., (files, plain))| {
                    attack(files)
                        .map_or_else(|| "-".to_owned(), |image| verdict(image, plain, must_open))
                })
                .collect();
            verdicts.dedup();
            if pgseal_crypto::FIPS && verdicts.is_empty() {
                // It does not have the suites of this column.
                verdicts.push(cell(&committed, what, column));
            }
            assert_eq!(verdicts.len(), 1, "{what}, {title}: {verdicts:?}");
            table.push_str(&format!(" {} |", verdicts[0]));
        }
        table.push('\n');
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &table).unwrap();
        return;
    }
    assert!(committed == table, "the table has changed; if on purpose, UPDATE_EXPECT=1\n{table}");
}

/// With GCM every attack is noticed except rollback, truncation (sectored: also within a block),
/// and wiping page and entry together (paged), whatever the table says.
#[test]
fn gcm_notices_everything_but_rollback_cuts_and_wiping() {
    let exempt = [
        "older copy of the block and",
        "older copy of the whole",
        "nonce and tag too",
        "file cut between",
        "file cut inside the header",
        "header of zeros",
    ];
    for (suite, layout) in combinations().filter(|(suite, _)| suite.authenticates()) {
        let (files, plain) = files(suite, layout);
        for (what, attack) in ATTACKS {
            let Some(image) = attack(&files) else { continue };
            let missed = verdict(image, &plain, 0).contains("**not detected**");
            let exempt = exempt.iter().any(|start| what.contains(start))
                && !(layout != Layout::Paged && what.contains("nonce and tag too"))
                || (layout == Layout::Sectored
                    && ["one sector from an older", "file cut inside a block"]
                        .iter()
                        .any(|start| what.starts_with(start)));
            assert_eq!(missed, exempt, "{suite} {layout}: {what}");
        }
    }
}
