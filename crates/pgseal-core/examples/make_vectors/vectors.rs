//! The vectors: deterministic sealed files, each for one behaviour, and their text form.

use std::cell::Cell;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use pgseal_core::geometry::{block_sealed_off, tag_entry_off};
use pgseal_core::random::{Random, RandomFailed};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::{
    BlockNo, DataKey, Form, Generation, KeySet, KeyringId, Layout, Place, PlainLen, PlainOff,
    Scratch, SealedFile, Suite,
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
    pub comment: String,
    pub bytes: Vec<u8>,
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
        let _ = write!(
            text,
            "name: {}\nexpect: {}\nsuite: {suite}\nlayout: {layout}\nsolid: false\nplace: {place}\nkeyring-id: {}\ngeneration: 1\n\
             data-key: {}\nplain-sha256: {sha}\ncomment: {}\nlength: {}\n\n",
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
}

/// Makes a file by steps. Returns its sealed bytes and its plain contents.
fn build(form: &Form, seed: u64, steps: &[Step]) -> (Vec<u8>, Vec<u8>) {
    let (keys, storage, random) = (keys(), MemStorage::default(), Fixed(Cell::new(seed << 32)));
    let mut scratch = Scratch::new();
    let mut file = SealedFile::create(&storage, form, &keys, Generation(1), &random).unwrap();
    let mut model = Vec::new();
    for step in steps {
        match *step {
            Step::Write(off, len) => {
                let bytes = plain(len);
                file.write_at(&storage, &mut scratch, &bytes, PlainOff(off as u64), &random)
                    .unwrap();
                model.resize(model.len().max(off + len), 0);
                model[off..off + len].copy_from_slice(&bytes);
            }
            Step::SetLen(len) => {
                file.set_len(&storage, &mut scratch, PlainLen(len), &random).unwrap();
                model.resize(len as usize, 0);
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

/// All vectors, good ones first.
pub fn all() -> Vec<Vector> {
    let mut maker = Maker { vectors: Vec::new(), seed: 0 };
    good(&mut maker);
    bad_headers(&mut maker);
    bad_blocks(&mut maker);
    sectored(&mut maker);
    maker.vectors
}

fn good(m: &mut Maker) {
    use Step::{SetLen, Write};
    for suite in Suite::ALL {
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
