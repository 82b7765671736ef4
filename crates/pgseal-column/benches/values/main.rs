//! Measures the time for one value through the C interface: medians in nanoseconds. The contenders
//! of a group take turns. Run with `cargo bench -p pgseal-column --bench values [--
//! blocks|ff1|authenticated|raw|keys]...`.
//!
//! The rows "pgcrypto's calls" repeat what pgcrypto does for each value
//! (contrib/pgcrypto/openssl.c: a new context, two initialisations, one update, one final, the
//! context freed), with the OpenSSL of the system if it is installed, but without palloc, name
//! parsing and the SQL function call. They show how much a cached key saves.

#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block)]

mod openssl;

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use pgseal_column::ff1::Ff1;
use pgseal_column::ffi::*;
use pgseal_column::{ColumnKey, RawKey};
use pgseal_crypto::sys;

/// How long a pass takes: much longer than a tick of the clock, much shorter than a time slice.
const PASS_NS: u64 = 200_000;
const ROUNDS: usize = 501;
const INT8: u32 = 2;
const TEXT: u32 = 7;

/// A contender: its name, and what it does with the i-th value.
type Row<'a> = (&'static str, Box<dyn FnMut(u64) + 'a>);

/// Nanoseconds per value of one pass.
fn per_value(values: u64, work: &mut dyn FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..values).for_each(work);
    start.elapsed().as_nanos() as f64 / values as f64
}

/// Runs the contenders in turns, each round beginning with another one, and prints the medians.
fn group(title: &str, mut rows: Vec<Row>) {
    let passes: Vec<u64> = rows
        .iter_mut()
        .map(|(_, work)| {
            let tries: [f64; 5] = core::array::from_fn(|_| per_value(20, work));
            let best = tries.into_iter().fold(f64::MAX, f64::min);
            (PASS_NS as f64 / best) as u64 + 1
        })
        .collect();
    let mut times = vec![Vec::with_capacity(ROUNDS); rows.len()];
    for round in 0..ROUNDS {
        for turn in 0..rows.len() {
            let row = (round + turn) % rows.len();
            times[row].push(per_value(passes[row], &mut rows[row].1));
        }
    }
    println!("{title}");
    for ((name, _), times) in rows.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("  {name:46} {:8.1} ns", times[ROUNDS / 2]);
    }
}

fn ok(code: i32) {
    assert_eq!(code, 0);
}

fn key() -> *mut ColumnKey {
    let mut key = ptr::null_mut();
    // SAFETY: 32 bytes of key material, and a place for the handle.
    ok(unsafe { pgseal_column_key_new([7; 32].as_ptr(), 32, 5, 1, &raw mut key) });
    key
}

fn blocks() {
    let mut schedule = std::mem::MaybeUninit::<sys::AES_KEY>::zeroed();
    // SAFETY: 32 bytes of key, and a place for the schedule.
    unsafe { sys::AES_set_encrypt_key([7; 32].as_ptr(), 256, schedule.as_mut_ptr()) };
    // SAFETY: a fresh context.
    let context = unsafe { sys::EVP_CIPHER_CTX_new() };
    let null = ptr::null_mut::<sys::ENGINE>();
    let iv = ptr::null();
    // SAFETY: no arguments; a static table.
    let ecb = unsafe { sys::EVP_aes_256_ecb() };
    // SAFETY: 32 bytes of key, no IV.
    unsafe { sys::EVP_CipherInit_ex(context, ecb, null, [7; 32].as_ptr(), iv, 1) };
    let (mut one, mut two) = ([0_u8; 16], [0_u8; 16]);
    group(
        "one AES-256 block, each of the last one's result",
        vec![
            (
                "AES_encrypt",
                Box::new(|_| {
                    // SAFETY: in place over 16 bytes, with an initialised schedule.
                    unsafe {
                        sys::AES_encrypt(one.as_ptr(), one.as_mut_ptr(), schedule.as_ptr());
                    }
                }),
            ),
            (
                "EVP_Cipher, ECB",
                Box::new(|_| {
                    // SAFETY: in place over 16 bytes, with an initialised context.
                    unsafe { sys::EVP_Cipher(context, two.as_mut_ptr(), two.as_ptr(), 16) };
                }),
            ),
        ],
    );
}

fn ff1() {
    let key = key();
    let general = Ff1::new(&[7; 32], 2).unwrap();
    let mut bits = [0_u16; 64];
    let (mut a, mut b, mut c, mut d) = (0_u64, 0_u64, 0_u32, 0_u32);
    group(
        "FF1",
        vec![
            (
                "int8, encrypt",
                // SAFETY: a live handle and a place for the result.
                Box::new(|i| ok(unsafe { pgseal_column_ff1_encrypt64(key, INT8, i, &raw mut a) })),
            ),
            (
                "int8, decrypt",
                // SAFETY: as above.
                Box::new(|i| ok(unsafe { pgseal_column_ff1_decrypt64(key, INT8, i, &raw mut b) })),
            ),
            (
                "int4, encrypt",
                Box::new(|i| {
                    // SAFETY: as above.
                    ok(unsafe { pgseal_column_ff1_encrypt32(key, 1, i as u32, &raw mut c) });
                }),
            ),
            (
                "int4, decrypt",
                Box::new(|i| {
                    // SAFETY: as above.
                    ok(unsafe { pgseal_column_ff1_decrypt32(key, 1, i as u32, &raw mut d) });
                }),
            ),
            (
                "int8, encrypt, the general code path",
                Box::new(|_| general.encrypt(&[0; 9], black_box(&mut bits)).unwrap()),
            ),
        ],
    );
}

type Authenticated = unsafe extern "C" fn(
    *const ColumnKey,
    u32,
    *const u8,
    usize,
    *mut u8,
    usize,
    *mut usize,
) -> i32;

fn run(call: Authenticated, key: *const ColumnKey, input: &[u8], out: &mut [u8]) -> usize {
    let mut len = 0;
    let (from, to) = (input.as_ptr(), out.as_mut_ptr());
    // SAFETY: a live handle, buffers with their lengths.
    ok(unsafe { call(key, TEXT, from, input.len(), to, out.len(), &raw mut len) });
    len
}

fn authenticated(len: usize) {
    let key = key();
    let plain = vec![b'x'; len];
    let modes: [(_, Authenticated, Authenticated); 2] = [
        ("deterministic", pgseal_column_det_seal, pgseal_column_det_open),
        ("randomised", pgseal_column_rnd_seal, pgseal_column_rnd_open),
    ];
    for (mode, seal, open) in modes {
        let (mut out, mut back) = (vec![0; len + 33], vec![0; len]);
        let mut sealed = vec![0; len + 33];
        let sealed_len = run(seal, key, &plain, &mut sealed);
        sealed.truncate(sealed_len);
        let mut rows: Vec<Row> = vec![
            ("seal", Box::new(|_| _ = black_box(run(seal, key, &plain, &mut out)))),
            ("open", Box::new(|_| _ = black_box(run(open, key, &sealed, &mut back)))),
        ];
        if mode == "deterministic" {
            let unbound = UnboundKey::new(&AES_256_GCM_SIV, &[7; 32]).unwrap();
            let (key, mut text) = (LessSafeKey::new(unbound), plain.clone());
            let seal = move |_| {
                let nonce = Nonce::assume_unique_for_key([0; 12]);
                let aad = Aad::from([5; 10]);
                _ = black_box(key.seal_in_place_separate_tag(nonce, aad, &mut text).unwrap());
            };
            rows.push(("AES-256-GCM-SIV of AWS-LC, constant nonce, seal", Box::new(seal)));
        }
        group(&format!("{mode}, {len} bytes"), rows);
    }
}

fn raw_key() -> *mut RawKey {
    let mut raw = ptr::null_mut();
    // SAFETY: 32 bytes of key, and a place for the handle.
    ok(unsafe { pgseal_column_raw_new([7; 32].as_ptr(), 32, 0, &raw mut raw) });
    raw
}

fn raw(len: usize) {
    let raw = raw_key();
    let plain = vec![b'x'; len];
    let none = ptr::null();
    let (mut out, mut back, mut theirs) = (vec![0; len + 16], vec![0; len + 16], vec![0; len + 32]);
    let mut n = 0;
    let (from, cap) = (plain.as_ptr(), len + 16);
    // SAFETY: a live handle, buffers with their lengths.
    ok(unsafe {
        pgseal_column_raw_encrypt(raw, none, 0, from, len, out.as_mut_ptr(), cap, &raw mut n)
    });
    let sealed = out.clone();
    let sealed_len = n;
    let mut m = 0;
    let mut rows: Vec<Row> = vec![
        (
            "encrypt",
            Box::new(|_| {
                let to = out.as_mut_ptr();
                // SAFETY: as above.
                ok(unsafe {
                    pgseal_column_raw_encrypt(raw, none, 0, from, len, to, cap, &raw mut n)
                });
            }),
        ),
        (
            "decrypt",
            Box::new(|_| {
                let (from, to) = (sealed.as_ptr(), back.as_mut_ptr());
                // SAFETY: as above.
                ok(unsafe {
                    pgseal_column_raw_decrypt(raw, none, 0, from, sealed_len, to, cap, &raw mut m)
                });
            }),
        ),
    ];
    match openssl::Library::open() {
        Some(library) => {
            let done = library.pgcrypto_encrypt(&[7; 32], &plain, &mut theirs);
            assert_eq!(theirs[..done], sealed[..sealed_len]);
            rows.push((
                "pgcrypto's calls, the OpenSSL of the system",
                Box::new(move |_| {
                    black_box(library.pgcrypto_encrypt(&[7; 32], &plain, &mut theirs));
                }),
            ));
        }
        None => println!("(no libcrypto.so.3 here to compare with)"),
    }
    group(&format!("raw AES-256-CBC, {len} bytes"), rows);
}

fn keys() {
    group(
        "keys",
        vec![
            (
                "a column key made and freed",
                Box::new(|_| {
                    // SAFETY: the handle is freed once.
                    unsafe { pgseal_column_key_free(key()) };
                }),
            ),
            (
                "a raw key made and freed",
                Box::new(|_| {
                    // SAFETY: the handle is freed once.
                    unsafe { pgseal_column_raw_free(raw_key()) };
                }),
            ),
        ],
    );
}

fn main() {
    // `--bench` is cargo's; any other argument chooses what to run.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if wants("blocks") {
        blocks();
    }
    if wants("ff1") {
        ff1();
    }
    if wants("authenticated") {
        for len in [1, 16, 44, 200, 8192] {
            authenticated(len);
        }
    }
    if wants("raw") {
        for len in [8, 16, 200] {
            raw(len);
        }
    }
    if wants("keys") {
        keys();
    }
    println!("machine code: {} {}", std::env::consts::ARCH, std::env::consts::OS);
}
