//! The commands of a page of docs/, for scenarios that run them as they stand there.

/// The blocks of a page from the heading `from` up to the heading `to`.
///
/// # Panics
/// When the page has no such headings.
#[must_use]
pub fn blocks(page: &str, from: &str, to: &str) -> Vec<String> {
    let part = page.split(from).nth(1).and_then(|rest| rest.split(to).next()).expect("the part");
    part.split("```").skip(1).step_by(2).map(|block| block.trim_start().to_owned()).collect()
}
