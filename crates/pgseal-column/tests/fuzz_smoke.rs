//! The fuzz target over some thousand pseudo-random and mutated inputs, for toolchains without libFuzzer.

#[path = "../../../fuzz/column.rs"]
mod bodies;

use pgseal_column::header::Mode;
use pgseal_column::{Domain, TypeCode};

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

    /// Changes a few bits, or the length.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.next() % 3 {
            let at = self.next() % bytes.len().max(1);
            match self.next() % 4 {
                0 => bytes.truncate(at),
                1 => bytes.push(at as u8),
                _ if at < bytes.len() => bytes[at] ^= 1 << (self.next() % 8),
                _ => {}
            }
        }
    }
}

#[test]
fn any_bytes() {
    let mut noise = Noise(0x5EED);
    for _ in 0..3000 {
        bodies::column(&noise.bytes(120));
    }
}

#[test]
fn nearly_good_values_and_keys() {
    let (key, kek, mut noise) = (bodies::key(), bodies::kek(), Noise(0xC01));
    let code = TypeCode::new(7).unwrap();
    for round in 0..2000 {
        let plain = noise.bytes(60);
        let mode = if round % 2 == 0 { Mode::Deterministic } else { Mode::Randomised };
        let mut sealed = vec![0; key.sealed_len(mode, plain.len())];
        key.seal(mode, code, &plain, &mut sealed).unwrap();
        noise.mutate(&mut sealed);
        bodies::column(&sealed);
        if round % 10 == 0 {
            let mut wrapped = kek.wrap_new(Domain(5), 1).unwrap().to_vec();
            noise.mutate(&mut wrapped);
            bodies::column(&wrapped);
        }
    }
}
