//! The fuzz targets over a few thousand pseudo-random and mutated inputs, for toolchains without
//! libFuzzer.

#[path = "../../../fuzz/bodies.rs"]
mod bodies;

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.next() % (most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Changes a few bytes, or the length, of an input.
    fn mutate(&mut self, bytes: &mut Vec<u8>, within: usize) {
        for _ in 0..1 + self.next() % 3 {
            let at = self.next() % within.min(bytes.len()).max(1);
            match self.next() % 4 {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = [0, 1, 2, 0x7F, 0xFF][self.next() % 5],
                _ if at < bytes.len() => bytes[at] ^= 1 << (self.next() % 8),
                _ => {}
            }
        }
    }
}

#[test]
fn headers() {
    let mut noise = Noise(0x5EED);
    for _ in 0..500 {
        bodies::header(&noise.bytes(5000));
    }
    for (suite, layout) in combinations() {
        let storage = MemStorage::default();
        Handle::create(&storage, suite, layout, &keys());
        let good = storage.bytes().clone();
        for _ in 0..300 {
            let mut bytes = good.clone();
            noise.mutate(&mut bytes, 160);
            bodies::header(&bytes);
        }
    }
}

#[test]
fn blocks() {
    let mut noise = Noise(0xB10C);
    for _ in 0..400 {
        bodies::block(&noise.bytes(30_000));
        // Mostly zeros: holes beside damage.
        let mut zeros = vec![0; noise.next() % 30_000 + 1];
        noise.mutate(&mut zeros, 30_000);
        bodies::block(&zeros);
    }
}

#[test]
fn operations() {
    let mut noise = Noise(0x0B5);
    for round in 0..150_u8 {
        let mut data = noise.bytes(8 * 12);
        data.insert(0, round);
        bodies::file_ops(&data);
    }
    assert_ne!(pattern(8, 1), pattern(8, 2));
}
