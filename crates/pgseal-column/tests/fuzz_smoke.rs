//! Runs the fuzz target of column values over some thousand pseudo-random and mutated inputs, on
//! toolchains without libFuzzer.

#[path = "../../../tests/fuzz/column.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

use pgseal_column::header::Mode;
use pgseal_column::{Domain, TypeCode};
use smoke::Noise;

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
        noise.mutate(&mut sealed, usize::MAX);
        bodies::column(&sealed);
        if round % 10 == 0 {
            let mut wrapped = kek.wrap_new(Domain(5), 1).unwrap().to_vec();
            noise.mutate(&mut wrapped, usize::MAX);
            bodies::column(&wrapped);
        }
    }
}
