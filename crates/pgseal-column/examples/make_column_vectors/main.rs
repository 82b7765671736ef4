//! Writes the test vectors: `cargo run -p pgseal-column --example make_column_vectors --
//! vectors/column`.

#![allow(clippy::unwrap_used)]

mod vectors;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: make_column_vectors DIRECTORY");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&dir)?;
    for (name, text) in vectors::all() {
        std::fs::write(format!("{dir}/{name}.vec"), text)?;
    }
    Ok(())
}
