//! The program `pgseal`.
fn main() {}
