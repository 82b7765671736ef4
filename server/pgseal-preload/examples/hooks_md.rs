//! Prints `spec/hooks.md` from the library's symbol table.

#[path = "../tests/support/hooks_md.rs"]
mod hooks_md;

fn main() {
    print!("{}", hooks_md::text());
}
