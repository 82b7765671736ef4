//! Writes the test vectors: `cargo run -p pgseal-core --example make_vectors -- vectors/v2`.

#![allow(clippy::unwrap_used)]

mod vectors;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: make_vectors DIRECTORY");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&dir)?;
    for vector in vectors::all() {
        std::fs::write(format!("{dir}/{}.vec", vector.name), vector.to_text())?;
    }
    Ok(())
}
