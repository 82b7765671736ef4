//! The fuzz targets over a few thousand pseudo-random and mutated inputs, for toolchains without
//! libFuzzer.

#[path = "../../../tests/fuzz/bodies.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::header::{self, Kind};
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use smoke::Noise;

#[test]
fn headers() {
    let accepts = |seed: &[u8]| matches!(header::classify(seed), Ok(Kind::Sealed(_)));
    smoke::expect_accepted("header", accepts);
    smoke::run("header", 300, bodies::header);
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
        // Mostly zeros, for holes beside damage.
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
