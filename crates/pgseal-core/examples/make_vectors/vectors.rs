//! The vectors: deterministic sealed files, each for one behaviour, and their text form.

use std::cell::Cell;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use pgseal_core::geometry::{
    FLUSH_RECORD_AT, block_sealed_off, tag_entry_off, wal_entry_off, wal_row_off,
};
use pgseal_core::header;
use pgseal_core::random::{Random, RandomFailed};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::{
    BlockNo, DataKey, FlushRecord, Form, Generation, KeySet, KeyringId, Layout, Place, PlainLen,
    PlainOff, Scratch, SealedFile, Suite,
};

/// The data key of all vectors.
pub const DATA_KEY: [u8; 32] = [0xD5; 32];
/// The keyring id of all vectors.
pub const KEYRING_ID: [u8; 16] = *b"pgseal-vectors-1";

/// One file, and the result that a reader must get.
pub struct Vector {
    pub name: String,
    pub expect: String,
    pub form: Form,
    /// SHA-256 of the plain contents, where all of them can be read.
    pub plain_sha256: Option<String>,
    /// Of a file of the WAL layout.
    pub wal: Option<WalFields>,
    pub comment: String,
    pub bytes: Vec<u8>,
}

/// What the vectors of the WAL layout say beyond those of the others.
pub struct WalFields {
    /// The plain offset up to which pages must open.
    pub must_open: u64,
    /// The newest flush record.
    pub newest: Option<FlushRecord>,
}

/// A flush record as text: `timeline position`, or `-`.
pub fn record_text(record: Option<FlushRecord>) -> String {
    record.map_or_else(|| "-".to_owned(), |r| format!("{} {}", r.timeline, r.position))
}

/// Random bytes that are the same in each run: SHA-256 of a counter.
struct Fixed(Cell<u64>);

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        for chunk in bytes.chunks_mut(32) {
            self.0.set(self.0.get() + 1);
            let block = digest(&SHA256, &self.0.get().to_le_bytes());
            chunk.copy_from_slice(&block.as_ref()[..chunk.len()]);
        }
        Ok(())
    }
}

pub fn keys() -> KeySet {
    let key = DataKey::init_with(|bytes| {
        *bytes = DATA_KEY;
        Ok::<(), ()>(())
    });
    let mut keys = KeySet::new(KeyringId(KEYRING_ID), Suite::Aes256Gcm, Generation(1));
    keys.insert(Generation(1), key.unwrap());
    keys
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

impl Vector {
    /// Fields, an empty line, then the bytes: `@OFFSET` lines, hexadecimal digits, 32 bytes a line.
    /// Bytes up to `length` that are not given are zeros. `solid` is a flag of earlier drafts; no
    /// file has it any more.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let Form { suite, layout, place } = self.form;
        let sha = self.plain_sha256.as_deref().unwrap_or("-");
        let wal = self.wal.as_ref().map_or_else(String::new, |wal| {
            let newest = record_text(wal.newest);
            format!("must-open: {}\nnewest-flush-record: {newest}\n", wal.must_open)
        });
        let _ = write!(
            text,
            "name: {}\nexpect: {}\nsuite: {suite}\nlayout: {layout}\nsolid: false\nplace: {place}\nkeyring-id: {}\ngeneration: 1\n\
             data-key: {}\nplain-sha256: {sha}\n{wal}comment: {}\nlength: {}\n\n",
            self.name,
            self.expect,
            hex(&KEYRING_ID),
            hex(&DATA_KEY),
            self.comment,
            self.bytes.len()
        );
        let mut next = usize::MAX;
        for (index, line) in self.bytes.chunks(32).enumerate() {
            if line.iter().all(|byte| *byte == 0) {
                continue;
            }
            if next != index {
                let _ = writeln!(text, "@{}", index * 32);
            }
            let _ = writeln!(text, "{}", hex(line));
            next = index + 1;
        }
        text
    }
}

/// The plain contents of the vectors: a text that no cipher makes by chance.
fn plain(len: usize) -> Vec<u8> {
    b"pgseal test vector. ".iter().copied().cycle().take(len).collect()
}

enum Step {
    Write(usize, usize),
    SetLen(u64),
    /// Zeros, which may be stored as they are.
    Zeros(usize, usize),
    /// The flush record of the writes behind, on timeline 1.
    Flushed(u64),
    /// The next stage of a resealing.
    Advance,
    /// So many samples of writes under the file key of this number.
    Count(u32, u32),
}

/// Makes a file by steps. Returns its sealed bytes and its plain contents.
fn build(form: &Form, seed: u64, steps: &[Step]) -> (Vec<u8>, Vec<u8>) {
    let (keys, storage, random) = (keys(), MemStorage::default(), Fixed(Cell::new(seed << 32)));
    let mut scratch = Scratch::new();
    let mut file = SealedFile::create(&storage, form, &keys, Generation(1), &random).unwrap();
    let mut model = Vec::new();
    for step in steps {
        match *step {
            Step::Write(off, len) | Step::Zeros(off, len) => {
                let bytes = match step {
                    Step::Zeros(..) => vec![0; len],
                    _ => plain(len),
                };
                file.write_at(&storage, &mut scratch, &bytes, PlainOff(off as u64), &random)
                    .unwrap();
                model.resize(model.len().max(off + len), 0);
                model[off..off + len].copy_from_slice(&bytes);
            }
            Step::SetLen(len) => {
                file.set_len(&storage, &mut scratch, PlainLen(len), &random).unwrap();
                model.resize(len as usize, 0);
            }
            Step::Flushed(position) => {
                file.set_flush_record(Some(FlushRecord { timeline: 1, position }));
            }
            Step::Advance => {
                let head = storage.bytes()[..512].to_vec();
                let head = header::advance(&head, file.header(), &keys, &random).unwrap();
                storage.bytes()[..512].copy_from_slice(&head);
                assert!(file.refresh(&storage, &keys).unwrap());
            }
            Step::Count(key_number, samples) => {
                let head = storage.bytes()[..512].to_vec();
                let samples = (key_number, samples);
                let counted = header::count(&head, file.header(), &keys, samples, &random).unwrap();
                storage.bytes()[..512].copy_from_slice(&counted.unwrap().0);
                file.refresh(&storage, &keys).unwrap();
            }
        }
    }
    let bytes = storage.bytes().clone();
    (bytes, model)
}

struct Maker {
    vectors: Vec<Vector>,
    /// The seed of the last vector, one higher for each.
    seed: u64,
}

impl Maker {
    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// Leaves out the seeds of vectors that were removed, so that those behind keep their bytes.
    fn skip(&mut self, seeds: u64) {
        self.seed += seeds;
    }

    fn good(&mut self, name: &str, suite: Suite, layout: Layout, steps: &[Step], comment: &str) {
        self.good_as(name, &Form::anywhere(suite, layout), steps, comment);
    }

    fn good_as(&mut self, name: &str, form: &Form, steps: &[Step], comment: &str) {
        let (bytes, model) = build(form, self.next_seed(), steps);
        self.vectors.push(Vector {
            name: name.to_owned(),
            expect: "ok".to_owned(),
            form: *form,
            plain_sha256: Some(sha256(&model)),
            wal: None,
            comment: comment.to_owned(),
            bytes,
        });
    }

    /// Adds a file of one whole block and a part of a second one, changed by `spoil`.
    fn bad(
        &mut self,
        name: &str,
        expect: &str,
        form: Form,
        comment: &str,
        spoil: impl FnOnce(&mut Vec<u8>),
    ) {
        let steps = [Step::Write(0, 8192 + 100)];
        let (mut bytes, _) = build(&form, self.next_seed(), &steps);
        spoil(&mut bytes);
        self.vectors.push(Vector {
            name: name.to_owned(),
            expect: expect.to_owned(),
            form,
            plain_sha256: None,
            wal: None,
            comment: comment.to_owned(),
            bytes,
        });
    }
}

const fn form(suite: Suite, layout: Layout) -> Form {
    Form { suite, layout, place: Place::ANY }
}

const PAGED: Form = form(Suite::Aes256Gcm, Layout::Paged);
const STREAM: Form = form(Suite::Aes256Gcm, Layout::Stream);
const INPLACE: Form = form(Suite::Aes256Xts, Layout::InPlace);
const SECTORED: Form = form(Suite::Aes256Gcm, Layout::Sectored);
const CTR: Form = form(Suite::Aes256Ctr, Layout::Paged);
const AEGIS: Form = form(Suite::Aegis256X2, Layout::Paged);

/// All vectors, good ones first.
pub fn all() -> Vec<Vector> {
    let mut maker = Maker { vectors: Vec::new(), seed: 0 };
    good(&mut maker);
    bad_headers(&mut maker);
    bad_blocks(&mut maker);
    sectored(&mut maker);
    wal(&mut maker);
    resealing(&mut maker);
    counted(&mut maker);
    aegis(&mut maker);
    maker.vectors
}

fn good(m: &mut Maker) {
    use Step::{SetLen, Write};
    for suite in Suite::ALL.into_iter().filter(|suite| *suite != AEGIS.suite) {
        for layout in [Layout::Paged, Layout::Stream, Layout::InPlace] {
            if layout.carries(suite) {
                let name = format!("ok-{suite}-{layout}");
                m.good(&name, suite, layout, &[Write(0, 600)], "600 bytes in one block");
            }
        }
    }
    let Form { suite: s, layout: l, .. } = PAGED;
    m.good("ok-paged-empty", s, l, &[], "a header and nothing else");
    m.good("ok-paged-hole", s, l, &[SetLen(16_384), Write(8192, 8192)], "block 0 never written");
    m.good("ok-paged-second-group", s, l, &[SetLen(2_097_152), Write(2_097_152, 16)], "two groups");
    m.good("ok-paged-cut", s, l, &[Write(0, 8192), SetLen(100)], "cut into a page");
    let Form { suite: s, layout: l, .. } = STREAM;
    m.good("ok-stream-two-blocks", s, l, &[Write(0, 8193)], "a last block of one byte");
    let gap = [Write(0, 10), Write(2 * 8192 + 5, 10)];
    m.good("ok-stream-gap", s, l, &gap, "a gap behind byte 10, sealed as zeros");
    let Form { suite: s, layout: l, .. } = INPLACE;
    m.good("ok-in-place-1-byte", s, l, &[Write(0, 1)], "a padded cell and a filler of one byte");
    m.good("ok-in-place-15-bytes", s, l, &[Write(0, 15)], "a filler of 15 bytes");
    m.good("ok-in-place-hole", s, l, &[Write(0, 20), SetLen(2000)], "a hole from byte 512 on");
    m.good("ok-in-place-second-unit", s, l, &[SetLen(8192), Write(8192, 32)], "data unit 1");
    m.skip(2);
    let place = Place::of(b"base/5/16384").unwrap();
    m.good_as("ok-place", &Form { place, ..PAGED }, &[Write(0, 8192)], "bound to a place");
    let place = Place::of(&[b'p'; Place::MAX_LEN]).unwrap();
    m.good_as("ok-place-longest", &Form { place, ..STREAM }, &[Write(0, 1)], "126 bytes of place");
}

fn bad_headers(m: &mut Maker) {
    m.bad("bad-version", "unknown-version 3", PAGED, "format version 3", |b| b[8] = 3);
    m.bad("bad-suite", "unknown-suite", PAGED, "suite 99", |b| b[10] = 99);
    m.bad("bad-layout", "unknown-suite", PAGED, "layout 3 with a GCM suite", |b| b[12] = 3);
    m.bad("bad-reserved", "reserved-not-zero", PAGED, "byte 200 is 1", |b| b[200] = 1);
    m.bad("bad-flag", "reserved-not-zero", PAGED, "no holes, in a paged file", |b| b[14] = 1);
    m.bad("bad-flag-unknown", "reserved-not-zero", INPLACE, "flag 2", |b| b[14] = 2);
    m.bad("bad-place-length", "bad-place", PAGED, "a place of 127 bytes", |b| b[64] = 127);
    m.bad("bad-place-padding", "bad-place", PAGED, "a byte behind the place", |b| b[190] = b'x');
    let placed = Form { place: Place::of(b"base/5/16384").unwrap(), ..PAGED };
    m.bad("bad-place", "header-not-authentic", placed, "another place", |b| b[77] = b'5');
    m.skip(1);
    m.bad("bad-keyring", "key-unknown", PAGED, "another keyring's id", |b| b[32] ^= 1);
    m.bad("bad-generation", "key-unknown", PAGED, "generation 2", |b| b[48] = 2);
    m.bad("bad-file-id", "header-not-authentic", PAGED, "file id changed", |b| b[16] ^= 1);
    m.bad("bad-wrap", "header-not-authentic", PAGED, "wrapped key changed", |b| b[450] ^= 1);
    m.bad("plain", "plain", PAGED, "no magic: a plain file", |b| b[0] = b'P');
    m.bad("unborn-empty", "unborn", PAGED, "0 bytes", Vec::clear);
    m.bad("unborn-short", "unborn", PAGED, "511 bytes of a header", |b| b.truncate(511));
    m.bad("unborn-zeros", "unborn", PAGED, "zeros where the header should be", |b| {
        b[..8192].fill(0);
    });
}

fn bad_blocks(m: &mut Maker) {
    let page = block_sealed_off(Layout::Paged, BlockNo(0)).0 as usize;
    let entry = tag_entry_off(BlockNo(1)).0 as usize;
    m.bad("bad-page-bit", "block-damaged 0", PAGED, "a bit of page 0", |b| b[page] ^= 1);
    m.bad("bad-page-nonce", "block-damaged 1", PAGED, "nonce of page 1", |b| b[entry] ^= 1);
    m.bad("bad-page-tag", "block-damaged 1", PAGED, "tag of page 1", |b| b[entry + 12] ^= 1);
    m.bad("bad-page-mark", "block-damaged 1", PAGED, "written mark 3", |b| b[entry + 28] = 3);
    m.bad("bad-page-no-entry", "block-damaged 1", PAGED, "entry wiped, page not", |b| {
        b[entry..entry + 32].fill(0);
    });
    m.bad("bad-page-zeros", "block-damaged 0", PAGED, "page wiped, entry not", |b| {
        b[page..page + 8192].fill(0);
    });
    m.bad("bad-ctr-page-zeros", "block-damaged 0", CTR, "page wiped, entry not", |b| {
        b[page..page + 8192].fill(0);
    });
    m.bad("bad-page-cut", "block-damaged 1", PAGED, "page 1 cut by 50 bytes", |b| {
        b.truncate(b.len() - 50);
    });
    m.bad("bad-stream-bit", "block-damaged 0", STREAM, "a bit of block 0", |b| b[8300] ^= 1);
    m.bad("bad-stream-cut", "block-damaged 1", STREAM, "block 1 cut by a byte", |b| {
        b.truncate(b.len() - 1);
    });
    m.bad("bad-stream-swap", "block-damaged 1", STREAM, "block 0's start as block 1", |b| {
        b.copy_within(8192..8192 + 128, 8192 + 8220);
    });
    m.bad("bad-stream-wiped", "block-damaged 0", STREAM, "block 0 wiped, nonce and tag too", |b| {
        b[8192..8192 + 8220].fill(0);
    });
    m.skip(2);
}

fn sectored(m: &mut Maker) {
    use Step::{SetLen, Write};
    let Form { suite: s, layout: l, .. } = SECTORED;
    let short = Suite::Aes128Gcm;
    m.good("ok-aes-128-gcm-sectored", short, l, &[Write(0, 600)], "600 bytes in two sectors");
    m.good("ok-aes-256-gcm-sectored", s, l, &[Write(0, 600)], "600 bytes in two sectors");
    m.good("ok-sectored-1-byte", s, l, &[Write(0, 1)], "a padded sector and a filler of one byte");
    m.good("ok-sectored-484-bytes", s, l, &[Write(0, 484)], "one sector, no filler");
    m.good("ok-sectored-last-sector", s, l, &[Write(0, 8191)], "447 bytes in sector 16");
    m.good("ok-sectored-second-block", s, l, &[Write(0, 8193)], "17 sectors, then one byte");
    m.good("ok-sectored-gap", s, l, &[Write(0, 10), Write(8292, 10)], "a gap is sealed as zeros");
    m.good("ok-sectored-cut", s, l, &[Write(0, 8192), SetLen(500)], "cut into a sector");
    let sector = |number: usize| 8192 + number * 512;
    m.bad("bad-sectored-bit", "block-damaged 0", SECTORED, "a bit of sector 3", |b| {
        b[sector(3) + 100] ^= 1;
    });
    m.bad("bad-sectored-nonce", "block-damaged 0", SECTORED, "nonce of sector 3", |b| {
        b[sector(3)] ^= 1;
    });
    m.bad("bad-sectored-tag", "block-damaged 0", SECTORED, "tag of sector 3", |b| {
        b[sector(3) + 12] ^= 1;
    });
    m.bad("bad-sectored-padding", "block-damaged 0", SECTORED, "padding of sector 16", |b| {
        b[sector(17) - 1] ^= 1;
    });
    m.bad("bad-sectored-swap", "block-damaged 1", SECTORED, "sector 0 as sector 17", |b| {
        b.copy_within(sector(0)..sector(1), sector(17));
    });
    m.bad("bad-sectored-wiped", "block-damaged 0", SECTORED, "sector 3 of zeros", |b| {
        b[sector(3)..sector(4)].fill(0);
    });
    m.bad("bad-sectored-suite", "unknown-suite", SECTORED, "layout 4 with an XTS suite", |b| {
        b[10] = 4;
    });
}

const WAL: Form = form(Suite::Aes256Xts, Layout::Wal);

impl Maker {
    /// Adds a file of the WAL layout whose pages up to `must_open` must open, changed by `spoil`.
    /// `expect` is `ok` or the verdict; `newest` the position of the newest flush record.
    fn wal(
        &mut self,
        (name, expect, comment): (&str, &str, &str),
        steps: &[Step],
        (must_open, newest): (u64, Option<u64>),
        spoil: impl FnOnce(&mut Vec<u8>),
    ) {
        let (mut bytes, model) = build(&WAL, self.next_seed(), steps);
        spoil(&mut bytes);
        let newest = newest.map(|position| FlushRecord { timeline: 1, position });
        self.vectors.push(Vector {
            name: name.to_owned(),
            expect: expect.to_owned(),
            form: WAL,
            plain_sha256: (expect == "ok").then(|| sha256(&model)),
            wal: Some(WalFields { must_open, newest }),
            comment: comment.to_owned(),
            bytes,
        });
    }
}

fn wal(m: &mut Maker) {
    use Step::{Flushed, SetLen, Write, Zeros};
    let Form { suite: s, layout: l, .. } = WAL;
    m.good("ok-aes-128-xts-wal", Suite::Aes128Xts, l, &[Write(0, 600)], "600 bytes in one page");
    m.good("ok-aes-256-xts-wal", s, l, &[Write(0, 600)], "600 bytes in one page");
    m.good("ok-wal-15-bytes", s, l, &[Write(0, 15)], "a filler of 15 bytes");
    m.good("ok-wal-hole", s, l, &[Write(0, 20), SetLen(2000)], "a hole from byte 512 on");
    m.good("ok-wal-zeros", s, l, &[Zeros(0, 16_384)], "two pages of zeros without entries");
    let group = 2_097_152;
    let last = [SetLen(group - 8192), Write(group as usize - 8192, 8191)];
    m.good("ok-wal-filler-behind-group", s, l, &last, "a filler of 15 bytes behind the group");
    let second = [SetLen(group), Write(group as usize, 16)];
    m.good("ok-wal-second-group", s, l, &second, "two groups");

    let part = [Write(0, 8192 + 100)];
    let nothing = |_: &mut Vec<u8>| {};
    m.wal(("ok-wal-authentic", "ok", "both pages must open"), &part, (16_384, None), nothing);
    let cut = [Write(0, 16_384), SetLen(8192 + 20)];
    m.wal(("ok-wal-cut", "ok", "page 1 cut in a cell, must open"), &cut, (16_384, None), nothing);
    let grown = [Write(0, 20), SetLen(5000)];
    m.wal(("ok-wal-grown", "ok", "lengthened, must open"), &grown, (8192, None), nothing);
    let noted = [Write(0, 8192), Flushed(0x100_0028), Write(8192, 8192), Flushed(0x100_0F00)];
    let more = [Write(16 * 8192, 8192)];
    let noted: Vec<Step> = noted.into_iter().chain(more).collect();
    let what = "a flush record in each of two rows";
    m.wal(("ok-wal-flush-records", "ok", what), &noted, (16_384, Some(0x100_0F00)), nothing);

    let entry = wal_entry_off(BlockNo(1)).0 as usize;
    let page = block_sealed_off(Layout::Wal, BlockNo(0)).0 as usize;
    let free = (8192, None);
    let tag = move |b: &mut Vec<u8>| b[entry + 12] ^= 1;
    m.wal(("ok-wal-unfitting", "ok", "tag of page 1, which need not open"), &part, free, tag);
    m.wal(
        ("bad-wal-tag", "block-damaged 1", "the same, and page 1 must open"),
        &part,
        (16_384, None),
        tag,
    );
    m.wal(("bad-wal-nonce", "block-damaged 1", "nonce of page 1"), &part, (16_384, None), |b| {
        b[entry] ^= 1
    });
    m.wal(("bad-wal-bit", "block-damaged 0", "a bit of page 0"), &part, free, |b| {
        b[page + 5000] ^= 1;
    });
    m.wal(("bad-wal-no-entry", "block-damaged 1", "entry wiped"), &part, (16_384, None), |b| {
        b[entry..entry + 28].fill(0);
    });
    let wiped = ("bad-wal-wiped", "block-damaged 0", "page 0 and its entry wiped");
    m.wal(wiped, &part, free, |b| {
        b[page..page + 8192].fill(0);
        b[entry - 28..entry].fill(0);
    });
    let zeros = ("bad-wal-zeros", "block-damaged 0", "page 0, appended as zeros, must open");
    m.wal(zeros, &[Zeros(0, 16_384)], free, |_| {});
    let swap = ("bad-wal-swap", "block-damaged 1", "page 0 and its entry as page 1");
    m.wal(swap, &[Write(0, 16_384)], (16_384, None), |b| {
        b.copy_within(page..page + 8192, page + 8192);
        b.copy_within(entry - 28..entry, entry);
    });
    let short = ("bad-wal-cut", "block-damaged 1", "page 1 cut by a cell");
    m.wal(short, &[Write(0, 16_384)], (16_384, None), |b| b.truncate(b.len() - 16));

    let record = (wal_row_off(BlockNo(16)).0 + FLUSH_RECORD_AT) as usize;
    for (name, what, at) in [
        ("ok-wal-record-position", "position of the newer flush record changed: skipped", 8),
        ("ok-wal-record-timeline", "timeline of the newer flush record changed: skipped", 0),
        ("ok-wal-record-tag", "tag of the newer flush record changed: skipped", 28),
        ("ok-wal-record-reserved", "reserved bytes of the newer flush record: skipped", 50),
    ] {
        let kept = (16_384, Some(0x100_0028));
        m.wal((name, "ok", what), &noted, kept, |b| b[record + at] ^= 1);
    }
    m.bad("bad-wal-suite", "unknown-suite", WAL, "layout 5 with a GCM suite", |b| b[10] = 2);
}

impl Maker {
    /// Adds a file that `steps` make, changed by `spoil`. `expect` is `ok` or the verdict.
    fn resealed(
        &mut self,
        (name, expect, comment): (&str, &str, &str),
        form: Form,
        steps: &[Step],
        spoil: impl FnOnce(&mut Vec<u8>),
    ) {
        let (mut bytes, model) = build(&form, self.next_seed(), steps);
        spoil(&mut bytes);
        self.vectors.push(Vector {
            name: name.to_owned(),
            expect: expect.to_owned(),
            form,
            plain_sha256: (expect == "ok").then(|| sha256(&model)),
            wal: None,
            comment: comment.to_owned(),
            bytes,
        });
    }
}

/// The last four bytes of the entry of page 0 or 1.
fn key_number_at(page: u64) -> usize {
    tag_entry_off(BlockNo(page)).0 as usize + 28
}

fn resealing(m: &mut Maker) {
    use Step::{Advance, Write};
    let nothing = |_: &mut Vec<u8>| {};
    let two = || Write(0, 16_384);
    let announced = ("ok-resealing-announced", "ok", "two keys, the older one seals");
    m.resealed(announced, PAGED, &[two(), Advance, Write(0, 8192)], nothing);
    let moving = || [Write(0, 16_384), Advance, Advance, Write(0, 8192)];
    let name = ("ok-resealing-moving", "ok", "two keys: page 0 has the newer, page 1 the older");
    m.resealed(name, PAGED, &moving(), nothing);
    let name = ("ok-resealing-moving-ctr", "ok", "the same with CTR");
    m.resealed(name, CTR, &moving(), nothing);
    let name = ("ok-resealed", "ok", "the second key, alone");
    let steps = [Write(0, 16_384), Advance, Advance, Write(0, 16_384), Advance];
    m.resealed(name, PAGED, &steps, nothing);
    let name = ("ok-resealing-again", "ok", "the second key and the third");
    let steps = [Advance, Advance, Write(0, 16_384), Advance, Advance, Advance, Write(8192, 8192)];
    m.resealed(name, PAGED, &steps, nothing);

    let dropped = ("bad-key-dropped", "block-damaged 1", "page 1 has a key that left the header");
    m.resealed(dropped, PAGED, &[two(), Advance, Advance, Write(0, 8192), Advance], nothing);
    let newer = ("bad-key-newer", "block-damaged 0", "entry 0 names a key newer than the newest");
    m.resealed(newer, PAGED, &moving(), |b| b[key_number_at(0)] = 3);
    let older = ("bad-key-exchanged", "block-damaged 0", "entry 0 names the other key");
    m.resealed(older, PAGED, &moving(), |b| b[key_number_at(0)] = 1);
    let exchanged = ("bad-key-exchanged-older", "block-damaged 1", "entry 1 names the other key");
    m.resealed(exchanged, PAGED, &moving(), |b| b[key_number_at(1)] = 2);
    let none = ("bad-key-none", "block-damaged 1", "entry 1 names key 0");
    m.resealed(none, PAGED, &moving(), |b| b[key_number_at(1)] = 0);
    let wrap = ("bad-older-wrap", "header-not-authentic", "the older wrapped key changed");
    m.resealed(wrap, PAGED, &moving(), |b| b[210] ^= 1);
    let stage = ("bad-key-stage", "bad-key-stage", "stage 3");
    m.resealed(stage, PAGED, &moving(), |b| b[56] = 3);
    let first = ("bad-key-stage-first", "bad-key-stage", "two keys, and the newer is the first");
    m.resealed(first, PAGED, &moving(), |b| b[52] = 0);
    let last = ("bad-key-number", "bad-key-stage", "4294967295 keys before this one");
    m.resealed(last, PAGED, &moving(), |b| b[52..56].fill(0xFF));
    let stream = ("bad-key-layout", "bad-key-stage", "a stream file with a second key");
    m.resealed(stream, STREAM, &[Write(0, 100)], |b| b[52] = 1);
    let stays = ("bad-older-left", "reserved-not-zero", "one key, and bytes of an older one");
    m.resealed(stays, PAGED, &moving(), |b| b[56] = 0);
    let spare = ("bad-reserved-resealing", "reserved-not-zero", "two keys, byte 300 is 1");
    m.resealed(spare, PAGED, &moving(), |b| b[300] = 1);
}

fn counted(m: &mut Maker) {
    use Step::{Advance, Count, Write};
    let nothing = |_: &mut Vec<u8>| {};
    let steps = || [Write(0, 16_384), Count(1, 3)];
    m.resealed(("ok-counted", "ok", "3 samples of its writes"), PAGED, &steps(), nothing);
    let most = ("ok-counted-most", "ok", "more samples than there is room for");
    m.resealed(most, PAGED, &[Count(1, u32::MAX), Count(1, 9), Write(0, 100)], nothing);
    let moving =
        ("ok-counted-moving", "ok", "samples of the second key; those of the first are gone");
    let both = [Write(0, 16_384), Count(1, 70_000), Advance, Count(1, 1), Advance, Count(2, 2)];
    m.resealed(moving, PAGED, &both, nothing);
    let wal = ("ok-counted-wal", "ok", "40000 samples, in a file of WAL");
    m.wal(wal, &[Write(0, 8192), Count(1, 40_000)], (8192, None), nothing);
    let changed = ("bad-counted", "header-not-authentic", "a sample taken away");
    m.resealed(changed, PAGED, &steps(), |b| b[60] = 2);
    let older = ("bad-counted-older", "header-not-authentic", "two keys, a sample taken away");
    m.resealed(older, PAGED, &both, |b| b[60] = 1);
    let stream = ("bad-counted-layout", "reserved-not-zero", "a stream file with a sample");
    m.resealed(stream, STREAM, &[Write(0, 100)], |b| b[60] = 1);
}

fn aegis(m: &mut Maker) {
    use Step::{Advance, SetLen, Write};
    let Form { suite: s, layout: l, .. } = AEGIS;
    let nothing = |_: &mut Vec<u8>| {};
    m.good("ok-aegis-256x2-paged", s, l, &[Write(0, 600)], "600 bytes in one block");
    m.good("ok-aegis-1-byte", s, l, &[Write(0, 1)], "a page of one byte");
    m.good("ok-aegis-hole", s, l, &[SetLen(16_384), Write(8192, 8192)], "block 0 never written");
    let second = [SetLen(2_097_152), Write(2_097_152, 8192)];
    m.good("ok-aegis-second-group", s, l, &second, "block 256");
    let moving = || [Write(0, 16_384), Advance, Advance, Write(0, 8192)];
    let name = ("ok-aegis-resealing", "ok", "two keys: page 0 has the newer, page 1 the older");
    m.resealed(name, AEGIS, &moving(), nothing);
    // 255 keys more: the number of the newest one ends in a byte of zeros.
    let keys = || core::iter::repeat_with(|| Advance).take(3 * 255);
    let many: Vec<Step> = keys().chain([Write(0, 100)]).collect();
    m.resealed(("ok-aegis-key-256", "ok", "sealed with key 256"), AEGIS, &many, nothing);

    let page = block_sealed_off(Layout::Paged, BlockNo(0)).0 as usize;
    let entry = tag_entry_off(BlockNo(1)).0 as usize;
    m.bad("bad-aegis-bit", "block-damaged 0", AEGIS, "a bit of page 0", |b| b[page] ^= 1);
    m.bad("bad-aegis-nonce", "block-damaged 1", AEGIS, "last byte of the nonce of page 1", |b| {
        b[entry + 14] ^= 1;
    });
    m.bad("bad-aegis-tag", "block-damaged 1", AEGIS, "last byte of the tag of page 1", |b| {
        b[entry + 30] ^= 1;
    });
    m.bad("bad-aegis-number", "block-damaged 1", AEGIS, "entry 1 names key 2", |b| {
        b[entry + 31] = 2;
    });
    m.bad("bad-aegis-no-entry", "block-damaged 1", AEGIS, "entry wiped, page not", |b| {
        b[entry..entry + 32].fill(0);
    });
    m.bad("bad-aegis-zeros", "block-damaged 0", AEGIS, "page wiped, entry not", |b| {
        b[page..page + 8192].fill(0);
    });
    let swap = ("bad-aegis-swap", "block-damaged 0", "page 1 and its entry as page 0");
    m.resealed(swap, AEGIS, &[Write(0, 16_384)], |b| {
        b.copy_within(page + 8192..page + 16_384, page);
        b.copy_within(entry..entry + 32, entry - 32);
    });
    m.bad("bad-aegis-layout", "unknown-suite", AEGIS, "layout 2 with AEGIS", |b| b[12] = 2);
    m.bad("bad-aegis-counted", "reserved-not-zero", AEGIS, "a sample", |b| b[60] = 1);
    let exchanged = ("bad-aegis-key-exchanged", "block-damaged 0", "entry 0 names the other key");
    m.resealed(exchanged, AEGIS, &moving(), |b| b[entry - 1] = 1);
}
