//! Of a key of AEGIS, nothing stays on the stack.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;

use pgseal_crypto::{AegisKey, open_aegis, seal_aegis};

/// How much of the stack above its own frame [`stack`] reads; somebody above must have used it.
const ABOVE: usize = 64 << 10;

/// The used part of this thread's stack, and 256 KiB below it.
#[inline(never)]
fn stack() -> Vec<u8> {
    let here = 0_u8;
    let near = core::ptr::from_ref(&here).addr() as u64;
    let mut bytes = vec![0; (256 << 10) + ABOVE];
    let memory = File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, near - (256 << 10)).unwrap();
    bytes
}

/// The key of this test. It is made on the heap, and never lies on the stack as a whole.
fn key() -> Box<AegisKey> {
    let bytes: Vec<u8> = (0..32_u8).map(|i| i.wrapping_mul(37) ^ 0xA5).collect();
    bytes.into_boxed_slice().try_into().unwrap()
}

/// How often a quarter of the key is in these bytes.
fn found(bytes: &[u8], key: &AegisKey) -> usize {
    let is_part = |window: &&[u8]| key.chunks(8).any(|part| part == *window);
    bytes.windows(8).filter(is_part).count()
}

/// In a thread with a stack that reaches far enough below.
fn left_after(act: impl FnOnce(&AegisKey) + Send) -> usize {
    let run = || {
        // Above a thread's stack there need be no memory.
        let above = std::hint::black_box([0_u8; ABOVE]);
        let key = key();
        act(&key);
        let left = found(&stack(), &key);
        std::hint::black_box(&above);
        left
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(4 << 20).spawn_scoped(scope, run).unwrap();
        thread.join().unwrap()
    })
}

#[test]
fn a_key_is_not_left_on_the_stack() {
    let nonce = [3; 32];
    let left = left_after(|key| {
        let copy = std::hint::black_box(*key);
        std::hint::black_box(&copy);
    });
    assert!(left > 0, "the test does not see what is on the stack");
    let mut sealed = vec![0; 8192];
    let left = left_after(|key| {
        let _ = seal_aegis(key, &nonce, b"aad", &[5; 8192], &mut sealed);
    });
    assert_eq!(left, 0, "after sealing");
    let left = left_after(|key| {
        let _ = open_aegis(key, &nonce, b"aad", &[0; 16], &mut sealed);
    });
    assert_eq!(left, 0, "after opening");
}
