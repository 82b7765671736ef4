//! Runs the body of the fuzz target for catalogs over its seeds.

#[path = "../../../tests/fuzz/pgdata.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

#[test]
fn catalog() {
    smoke::run("catalog", 3_000, bodies::catalog);
}

#[test]
fn a_seed_has_a_name() {
    smoke::expect_accepted("catalog", bodies::has_a_name);
}
