//! The page.

use super::Entry;

/// One self-contained page.
pub fn html_of(entries: &[Entry]) -> String {
    let titles: Vec<&str> = entries.iter().map(|entry| entry.title.as_str()).collect();
    format!("<!doctype html><title>{}</title>", titles.join(", "))
}
