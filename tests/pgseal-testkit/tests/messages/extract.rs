//! Finds messages in sources, by their text.

use std::fs;
use std::path::Path;

/// A message of pgseal.
pub struct Message {
    /// The file and line.
    pub place: String,
    /// What it says; "..." for what varies.
    pub text: String,
    /// Why it comes, if the source says so.
    pub cause: String,
    /// What to do, if the source says so.
    pub cure: String,
}

/// The files below a directory with this extension, sorted.
fn files(root: &Path, dir: &str, extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut left = vec![root.join(dir)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|found| found == extension) {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            // Tests are last in a file.
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned();
            found.push((name, text));
        }
    }
    found.sort();
    found
}

/// The string literal at the start of `text`, with the literals that C joins to it, and its length.
fn literal(text: &str) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut value = String::new();
    loop {
        let start = at + text[at..].len() - text[at..].trim_start().len();
        if bytes.get(start) != Some(&b'"') {
            return (at > 0).then_some((value, at));
        }
        at = start + 1;
        while bytes[at] != b'"' {
            if bytes[at] == b'\\' {
                match bytes[at + 1] {
                    b'\n' => {
                        at += 2;
                        while bytes[at].is_ascii_whitespace() {
                            at += 1;
                        }
                        continue;
                    }
                    b'n' => value.push(' '),
                    other => value.push(char::from(other)),
                }
                at += 2;
                continue;
            }
            let character = text[at..].chars().next().unwrap();
            value.push(character);
            at += character.len_utf8();
        }
        at += 1;
    }
}

/// "..." in the place of each placeholder of Rust.
fn without_placeholders(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let Some(close) = rest[open..].find('}') else { break };
        out.push_str("...");
        rest = &rest[open + close + 1..];
    }
    out + rest
}

/// "..." in the place of each placeholder of printf.
fn without_conversions(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let kind = letters.find(|letter| letter.is_ascii_alphabetic() && *letter != 'l');
        out.push_str(if kind == Some('m') { "the system's error" } else { "..." });
    }
    out
}

/// What to do: the messages of pgseal have a semicolon before it.
fn cure_in(text: &str) -> String {
    text.split_once("; ")
        .map(|(_, cure)| cure)
        .filter(|cure| *cure != "...")
        .unwrap_or_default()
        .to_owned()
}

fn place(name: &str, text: &str, at: usize) -> String {
    format!("{name}:{}", text[..at].matches('\n').count() + 1)
}

/// The `///` lines directly before `at`, joined.
fn comment_before(text: &str, at: usize) -> String {
    let mut lines: Vec<&str> = text[..at]
        .trim_end()
        .lines()
        .rev()
        .map(str::trim)
        .take_while(|line| line.starts_with("///"))
        .map(|line| line.trim_start_matches('/').trim())
        .collect();
    lines.reverse();
    lines.join(" ")
}

/// The variants of the enums that derive `thiserror::Error`. The comment of a variant is its cause.
pub fn enums(root: &Path, dir: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for (name, text) in files(root, dir, "rs") {
        let derived = text.matches("thiserror::Error").count();
        let mut variants = 0;
        for (at, _) in text.match_indices("#[error(") {
            variants += 1;
            let inner = &text[at + "#[error(".len()..];
            // Another error is shown as it is, and has its own line; so does a text of its own.
            let Some((said, _)) = literal(inner) else { continue };
            if said == "{0}" {
                continue;
            }
            let what = without_placeholders(&said);
            let cure = cure_in(&what);
            let cause = comment_before(&text, at);
            found.push(Message { place: place(&name, &text, at), text: what, cause, cure });
        }
        assert!(derived == 0 || variants > 1, "{name}: no variants found");
    }
    found
}

/// The texts that the program gives to the errors that have no text of their own.
pub fn said(root: &Path, dir: &str) -> Vec<Message> {
    const ERRORS: [&str; 5] = ["Usage", "Settings", "NotNow", "Damaged", "NoLibrary"];
    let mut found = Vec::new();
    for (name, text) in files(root, dir, "rs") {
        for error in ERRORS {
            for (at, matched) in text.match_indices(&format!("CliError::{error}(")) {
                let mut inner = text[at + matched.len()..].trim_start();
                inner = inner.strip_prefix("format!(").unwrap_or(inner);
                // A pattern of a match, or the text of another error.
                let Some((said, _)) = literal(inner) else { continue };
                let what = without_placeholders(&said);
                let cure = cure_in(&what);
                if what.trim_matches(['.', ':', ' ']).is_empty() {
                    continue;
                }
                found.push(Message {
                    place: place(&name, &text, at),
                    text: what,
                    cause: String::new(),
                    cure,
                });
            }
        }
    }
    found
}

/// The lines that the library writes.
pub fn log_lines(root: &Path, dir: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for (name, text) in files(root, dir, "rs") {
        for (at, matched) in text.match_indices("log::line(format_args!(") {
            let (said, _) = literal(&text[at + matched.len()..]).unwrap();
            let what = without_placeholders(&said);
            let cure = cure_in(&what);
            found.push(Message {
                place: place(&name, &text, at),
                text: what,
                cause: String::new(),
                cure,
            });
        }
        // No line in another form.
        let calls = text.matches("log::line(").count();
        assert_eq!(calls, text.matches("log::line(format_args!(").count(), "{name}: log::line");
    }
    found
}

/// The texts of at least four words in the `Display` of types of one's own: why something is
/// refused.
pub fn displayed(root: &Path, dir: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for (name, text) in files(root, dir, "rs") {
        for (start, _) in text.match_indices("Display for ") {
            let end = text[start..].find("\n}\n").map_or(text.len(), |end| start + end);
            let mut at = start;
            while let Some(quote) = text[at..end].find('"').map(|quote| at + quote) {
                at = quote + 1;
                if text[..quote].ends_with('\'') {
                    continue;
                }
                let (said, len) = literal(&text[quote..]).unwrap();
                at = quote + len;
                let what = without_placeholders(&said);
                let words = what.split(' ').filter(|word| word.contains(char::is_alphabetic));
                if words.count() < 4 {
                    continue;
                }
                let cure = cure_in(&what);
                found.push(Message {
                    place: place(&name, &text, quote),
                    text: what,
                    cause: String::new(),
                    cure,
                });
            }
        }
    }
    found
}

/// The `ereport`s of C sources, with their details and hints.
pub fn reports(root: &Path, dir: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for (name, text) in files(root, dir, "c") {
        for (at, matched) in text.match_indices("errmsg(") {
            let Some((said, _)) = literal(&text[at + matched.len()..]) else {
                panic!("{}: errmsg without a text", place(&name, &text, at))
            };
            // Up to the next message, and not beyond this statement.
            let rest = &text[at + matched.len()..];
            let end = rest.find("errmsg(").unwrap_or(rest.len()).min(end_of_report(rest));
            let part = |word: &str| -> String {
                let Some(at) = rest[..end].find(word) else { return String::new() };
                literal(&rest[at + word.len()..])
                    .map_or(String::new(), |(said, _)| without_conversions(&said))
            };
            found.push(Message {
                place: place(&name, &text, at),
                text: without_conversions(&said),
                cause: part("errdetail("),
                cure: part("errhint("),
            });
        }
    }
    found
}

/// Where a report ends: its statement, or for the three calls of a check hook the `return`.
fn end_of_report(text: &str) -> usize {
    let stop = text.find("return ").unwrap_or(text.len());
    match text.find(")));") {
        Some(end) => end.min(stop),
        None => stop,
    }
}
