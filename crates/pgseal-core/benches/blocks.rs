//! The cost of the sealed file above the bare primitive of AWS-LC: 8192-byte blocks, sealed and
//! opened both ways in the same process, in turns. Prints medians and ratios; run with
//! `cargo bench -p pgseal-core --bench blocks`.
//!
//! The storage only copies sealed bytes in memory, because the kernel's copy is not what is
//! measured. The bare primitive gets its input by the same copy.

#![allow(unsafe_code, missing_docs, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::io;
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use pgseal_core::random::{LibraryRandom, Random, RandomFailed};
use pgseal_core::storage::{Accelerator, Storage};
use pgseal_core::testing::keys;
use pgseal_core::{
    Form, Generation, Layout, OnDamage, PlainOff, Scratch, SealedFile, SealedLen, SealedOff, Suite,
};
use pgseal_crypto::sys;

const BLOCK: usize = 8192;
const PAGES: usize = 64;
const ROUNDS: usize = 400;

/// A storage in memory that keeps what is written while `keep` is true.
struct Bytes {
    bytes: RefCell<Vec<u8>>,
    keep: Cell<bool>,
}

impl Storage for Bytes {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        let bytes = self.bytes.borrow();
        let start = (off.0 as usize).min(bytes.len());
        let got = buf.len().min(bytes.len() - start);
        buf[..got].copy_from_slice(&bytes[start..start + got]);
        Ok(got)
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        if !self.keep.get() {
            black_box(buf);
            return Ok(());
        }
        let mut bytes = self.bytes.borrow_mut();
        let end = off.0 as usize + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[off.0 as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn len(&self) -> io::Result<SealedLen> {
        Ok(SealedLen(self.bytes.borrow().len() as u64))
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        self.bytes.borrow_mut().resize(len.0 as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Accelerator for Bytes {}

/// The bare primitive: seals from one buffer to another, opens in place.
trait Bare {
    fn seal(&mut self, block: u64, plain: &[u8], sealed: &mut [u8]);
    fn open(&mut self, block: u64, data: &mut [u8]);
}

struct BareGcm(LessSafeKey, Vec<[u8; 16]>);

impl BareGcm {
    fn new(algorithm: &'static Algorithm) -> BareGcm {
        let key = UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]).unwrap();
        BareGcm(LessSafeKey::new(key), vec![[0; 16]; PAGES])
    }
}

fn nonce(block: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&block.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

impl Bare for BareGcm {
    fn seal(&mut self, block: u64, plain: &[u8], sealed: &mut [u8]) {
        let tag = &mut self.1[block as usize];
        self.0
            .seal_out_of_place_scatter(nonce(block), Aad::from([3; 32]), plain, sealed, &[], tag)
            .unwrap();
    }

    fn open(&mut self, block: u64, data: &mut [u8]) {
        let tag = self.1[block as usize];
        let aad = Aad::from([3; 32]);
        self.0.open_in_place_separate_tag(nonce(block), aad, &tag, data).unwrap();
    }
}

/// With the key and the nonce that libaegis takes for each page.
struct BareAegis(Vec<[u8; 16]>);

impl BareAegis {
    fn nonce(block: u64) -> [u8; 32] {
        let mut nonce = [9; 32];
        nonce[16..24].copy_from_slice(&block.to_le_bytes());
        nonce
    }
}

impl Bare for BareAegis {
    fn seal(&mut self, block: u64, plain: &[u8], sealed: &mut [u8]) {
        let nonce = BareAegis::nonce(block);
        let tag = pgseal_crypto::seal_aegis(&[7; 32], &nonce, &[3; 32], plain, sealed);
        self.0[block as usize] = tag.unwrap();
    }

    fn open(&mut self, block: u64, data: &mut [u8]) {
        let (nonce, tag) = (BareAegis::nonce(block), self.0[block as usize]);
        pgseal_crypto::open_aegis(&[7; 32], &nonce, &[3; 32], &tag, data).unwrap();
    }
}

/// EVP contexts for both directions; never freed, the process ends soon.
struct BareEvp {
    encrypt: *mut sys::EVP_CIPHER_CTX,
    decrypt: *mut sys::EVP_CIPHER_CTX,
}

impl BareEvp {
    fn new(cipher: *const sys::EVP_CIPHER) -> BareEvp {
        let key: Vec<u8> = (0..64).collect();
        let context = |direction| {
            // SAFETY: returns a fresh context.
            let context = unsafe { sys::EVP_CIPHER_CTX_new() };
            let null = std::ptr::null_mut();
            // SAFETY: no cipher used here reads more than 64 bytes of key; no IV yet.
            let ok = unsafe {
                sys::EVP_CipherInit_ex(context, cipher, null, key.as_ptr(), null.cast(), direction)
            };
            assert_eq!(ok, 1);
            context
        };
        BareEvp { encrypt: context(1), decrypt: context(0) }
    }

    fn start(context: *mut sys::EVP_CIPHER_CTX, block: u64) {
        let iv = u128::from(block).to_le_bytes();
        let null = std::ptr::null_mut::<sys::ENGINE>();
        // SAFETY: the context has its key; the ciphers used here read 16 bytes of IV.
        let ok = unsafe {
            sys::EVP_CipherInit_ex(context, null.cast(), null, null.cast(), iv.as_ptr(), -1)
        };
        assert_eq!(ok, 1);
    }
}

impl Bare for BareEvp {
    fn seal(&mut self, block: u64, plain: &[u8], sealed: &mut [u8]) {
        assert_eq!(plain.len(), sealed.len());
        BareEvp::start(self.encrypt, block);
        // SAFETY: both buffers have `plain.len()` bytes.
        unsafe {
            sys::EVP_Cipher(self.encrypt, sealed.as_mut_ptr(), plain.as_ptr(), plain.len());
        }
    }

    fn open(&mut self, block: u64, data: &mut [u8]) {
        BareEvp::start(self.decrypt, block);
        let pointer = data.as_mut_ptr();
        // SAFETY: in place over a buffer of `data.len()` bytes.
        unsafe { sys::EVP_Cipher(self.decrypt, pointer, pointer, data.len()) };
    }
}

/// Nanoseconds per block of one pass over all pages.
fn per_block(pass: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    pass();
    start.elapsed().as_nanos() as f64 / PAGES as f64
}

/// Runs two passes in turns, each first as often as the other; prints medians and their ratio.
fn compare(name: &str, mut bare: impl FnMut(), mut ours: impl FnMut()) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            a.push(per_block(&mut bare));
            b.push(per_block(&mut ours));
        } else {
            b.push(per_block(&mut ours));
            a.push(per_block(&mut bare));
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (a, b) = (median(&mut a), median(&mut b));
    println!("{name:42} bare {a:6.0} ns  sealed file {b:6.0} ns  {:5.1} %", 100.0 * a / b);
}

/// Random bytes in batches of a page, as the preloaded library draws its nonces. (There the page
/// is wiped in forked children, which takes `unsafe` and has no place here.)
#[derive(Default)]
struct Batched {
    library: LibraryRandom,
    batch: RefCell<Vec<u8>>,
}

impl Random for Batched {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        let mut batch = self.batch.borrow_mut();
        if batch.len() < bytes.len() {
            batch.resize(4096, 0);
            self.library.fill(&mut batch)?;
        }
        let left = batch.len() - bytes.len();
        bytes.copy_from_slice(&batch[left..]);
        batch.truncate(left);
        Ok(())
    }
}

fn measure(suite: Suite, layout: Layout, bare: &mut dyn Bare) {
    let (keys, random) = (keys(), Batched::default());
    let storage = Bytes { bytes: RefCell::default(), keep: Cell::new(true) };
    let mut file =
        SealedFile::create(&storage, &Form::anywhere(suite, layout), &keys, Generation(1), &random)
            .unwrap();
    let mut scratch = Scratch::new();
    let plain = vec![0x5A; PAGES * BLOCK];
    file.write_at(&storage, &mut scratch, &plain, PlainOff(0), &random).unwrap();
    storage.keep.set(false);
    let mut sealed = vec![0; PAGES * BLOCK];
    for (block, (plain, sealed)) in plain.chunks(BLOCK).zip(sealed.chunks_mut(BLOCK)).enumerate() {
        bare.seal(block as u64, plain, sealed);
    }

    for batch in [1, 16] {
        let mut out = vec![0; BLOCK];
        compare(
            &format!("{suite} {layout}: seal, {batch} at a time"),
            || {
                for (block, plain) in plain.chunks(BLOCK).enumerate() {
                    bare.seal(block as u64, plain, black_box(&mut out));
                }
            },
            || {
                for (index, plain) in plain.chunks(batch * BLOCK).enumerate() {
                    let off = PlainOff((index * batch * BLOCK) as u64);
                    file.write_at(&storage, &mut scratch, plain, off, &random).unwrap();
                }
            },
        );
    }
    // The storage dropped what the passes above sealed: seal once more, to read it back.
    storage.keep.set(true);
    file.write_at(&storage, &mut scratch, &plain, PlainOff(0), &random).unwrap();
    for (block, (plain, sealed)) in plain.chunks(BLOCK).zip(sealed.chunks_mut(BLOCK)).enumerate() {
        bare.seal(block as u64, plain, sealed);
    }
    // Only WAL notices: its pages are checked.
    file.set_must_open(PlainOff(u64::MAX));
    for batch in [1, 16] {
        let (mut one, mut two) = (vec![0; batch * BLOCK], vec![0; batch * BLOCK]);
        compare(
            &format!("{suite} {layout}: open, {batch} at a time"),
            || {
                for (index, sealed) in sealed.chunks(batch * BLOCK).enumerate() {
                    one.copy_from_slice(sealed);
                    for (at, data) in one.chunks_mut(BLOCK).enumerate() {
                        bare.open((index * batch + at) as u64, data);
                    }
                    black_box(&mut one);
                }
            },
            || {
                for index in 0..PAGES / batch {
                    let off = PlainOff((index * batch * BLOCK) as u64);
                    let fail = OnDamage::Fail;
                    file.read_at(&storage, &mut scratch, &mut two, off, fail).unwrap();
                    black_box(&mut two);
                }
            },
        );
    }
}

/// Measures one bare cipher against another one, page by page, by turns.
fn measure_ciphers(gcm: &mut BareGcm, aegis: &mut BareAegis) {
    let plain = vec![0x5A; PAGES * BLOCK];
    let seal = |cipher: &mut dyn Bare, sealed: &mut [u8]| {
        for (block, (plain, sealed)) in
            plain.chunks(BLOCK).zip(sealed.chunks_mut(BLOCK)).enumerate()
        {
            cipher.seal(block as u64, plain, sealed);
        }
    };
    let (mut one, mut two) = (vec![0; PAGES * BLOCK], vec![0; PAGES * BLOCK]);
    let names = "aegis-256x2 (left), aes-256-gcm (right)";
    compare(&format!("{names}: seal"), || seal(aegis, &mut one), || seal(gcm, &mut two));
    seal(aegis, &mut one);
    seal(gcm, &mut two);
    let open = |cipher: &mut dyn Bare, sealed: &[u8], page: &mut [u8]| {
        for (block, sealed) in sealed.chunks(BLOCK).enumerate() {
            page.copy_from_slice(sealed);
            cipher.open(block as u64, black_box(page));
        }
    };
    let (mut left, mut right) = (vec![0; BLOCK], vec![0; BLOCK]);
    compare(
        &format!("{names}: copy and open"),
        || open(aegis, &one, &mut left),
        || open(gcm, &two, &mut right),
    );
}

/// Measures the cost of the nonces of one write, drawn one by one or all at once.
fn measure_random(blocks: usize) {
    let random = LibraryRandom::new();
    let mut nonces = vec![0; 12 * blocks];
    compare(
        &format!("nonces: {blocks} in one draw, against one by one"),
        || {
            for _ in 0..PAGES / blocks {
                random.fill(black_box(&mut nonces)).unwrap();
            }
        },
        || {
            for _ in 0..PAGES {
                random.fill(black_box(&mut [0; 12])).unwrap();
            }
        },
    );
}

fn main() {
    measure_random(1);
    measure_random(16);
    measure(Suite::Aes256Gcm, Layout::Paged, &mut BareGcm::new(&AES_256_GCM));
    measure(Suite::Aes128Gcm, Layout::Paged, &mut BareGcm::new(&AES_128_GCM));
    measure(Suite::Aes256Gcm, Layout::Stream, &mut BareGcm::new(&AES_256_GCM));
    if Suite::Aegis256X2.check_approved().is_ok() {
        let mut aegis = BareAegis(vec![[0; 16]; PAGES]);
        measure(Suite::Aegis256X2, Layout::Paged, &mut aegis);
        measure_ciphers(&mut BareGcm::new(&AES_256_GCM), &mut aegis);
    }
    // SAFETY: returns a static table.
    let xts = unsafe { sys::EVP_aes_256_xts() };
    measure(Suite::Aes256Xts, Layout::InPlace, &mut BareEvp::new(xts));
    measure(Suite::Aes256Xts, Layout::Wal, &mut BareEvp::new(xts));
    // SAFETY: returns a static table.
    let ctr = unsafe { sys::EVP_aes_256_ctr() };
    measure(Suite::Aes256Ctr, Layout::Paged, &mut BareEvp::new(ctr));
    println!("machine code: {} {}", std::env::consts::ARCH, std::env::consts::OS);
}
