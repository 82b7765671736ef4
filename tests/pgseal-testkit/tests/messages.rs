//! `docs/troubleshooting.md` has each error message of pgseal, with its cause and what to do. The
//! messages come from the sources: the enums of errors, the lines that the library writes to the
//! server's log, and the reports of the guard module and the extension. What the sources do not say
//! themselves is in `messages/rows.tsv`. A message without a cause or a cure fails this test, and
//! so does a row without a message. `PGSEAL_BLESS=1 cargo test -p pgseal-testkit --test messages`
//! writes the page anew.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "messages/extract.rs"]
mod extract;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use extract::Message;

const BEGIN: &str = "<!-- messages: from the code -->\n";
const END: &str = "<!-- /messages -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A section of the page: its title, and the messages of these sources.
struct Section {
    title: &'static str,
    what: &'static str,
    messages: fn(&Path) -> Vec<Message>,
}

const SECTIONS: &[Section] = &[
    Section {
        title: "The program pgseal",
        what: "On standard error. The exit status says what kind of error it is \
               ([reference.md](reference.md#exit-codes)).",
        messages: |root| {
            let mut all = extract::enums(root, "crates/pgseal-cli/src");
            all.extend(extract::said(root, "crates/pgseal-cli/src"));
            all
        },
    },
    Section {
        title: "Keys, keyrings, key stores and escrow copies",
        what: "Of `pgseal`, and of a server that asks for its keys: the helper writes the line to the \
               server's log.",
        messages: |root| extract::enums(root, "crates/pgseal-keys/src"),
    },
    Section {
        title: "Conversions",
        what: "Of `pgseal encrypt`, `decrypt` and `rekey`.",
        messages: |root| extract::enums(root, "crates/pgseal-convert/src"),
    },
    Section {
        title: "TLS",
        what: "Of `pgseal tls`.",
        messages: |root| extract::enums(root, "crates/pgseal-tls/src"),
    },
    Section {
        title: "The library",
        what: "In the server's log, or on the standard error of a program that runs under pgseal; each \
               begins with `pgseal:`.",
        messages: |root| extract::log_lines(root, "server/pgseal-preload/src"),
    },
    Section {
        title: "Reasons in other messages",
        what: "The part of a line in which the library, `pgseal verify` and other commands say why a \
               file, a record or a copy is refused.",
        messages: |root| {
            [
                "crates/pgseal-core",
                "crates/pgseal-keys",
                "crates/pgseal-pgdata",
                "server/pgseal-preload",
            ]
            .iter()
            .flat_map(|at| extract::displayed(root, &format!("{at}/src")))
            .collect()
        },
    },
    Section {
        title: "The guard module",
        what: "Of a server, in its log or for a client.",
        messages: |root| extract::reports(root, "server/guard"),
    },
    Section {
        title: "The extension",
        what: "For clients that use sealed columns.",
        messages: |root| extract::reports(root, "server/extension"),
    },
];

/// Cause and cure of the messages whose text begins so: "" for what the source says itself.
struct Row {
    start: String,
    cause: String,
    cure: String,
}

fn rows() -> Vec<Row> {
    let text =
        fs::read_to_string(root().join("tests/pgseal-testkit/tests/messages/rows.tsv")).unwrap();
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let parts: Vec<&str> = line.split('\t').collect();
            assert_eq!(parts.len(), 3, "rows.tsv: start, cause, cure, with tabs: {line}");
            let [start, cause, cure] = [parts[0], parts[1], parts[2]].map(str::to_owned);
            Row { start, cause, cure }
        })
        .collect()
}

/// The message of which the row's start is the start, without the leading "...: ".
fn key_of(text: &str) -> &str {
    text.trim_start_matches("\"...\"").trim_start_matches("...").trim_start_matches(": ")
}

/// The message up to what to do; the whole one if that would be nothing but what varies.
fn what_is_wrong(text: &str) -> &str {
    match text.split_once("; ") {
        Some((what, _)) if what.matches(char::is_alphabetic).count() > 10 => what,
        _ => text,
    }
}

/// A cell of the table. What the code says may begin with a capital and end with a full stop.
fn cell(text: &str) -> String {
    let mut text = text.trim().replace('|', "\\|").replace('<', "&lt;");
    let mut letters = text.chars();
    let (first, second) = (letters.next(), letters.next());
    if first.is_some_and(|letter| letter.is_ascii_uppercase())
        && second.is_none_or(|letter| letter.is_ascii_lowercase() || letter == ' ')
    {
        text = text[..1].to_lowercase() + &text[1..];
    }
    if text.ends_with('.') && !text.ends_with("...") {
        text.pop();
    }
    text
}

fn page() -> Result<String, String> {
    let rows = rows();
    let mut used = vec![false; rows.len()];
    let mut page = String::new();
    let mut lacking = String::new();
    let mut number = 0;
    for section in SECTIONS {
        let mut lines = BTreeMap::new();
        for message in (section.messages)(&root()) {
            let start = key_of(&message.text);
            // The longest start wins, so that one row can serve many messages.
            let row = rows
                .iter()
                .enumerate()
                .filter(|(_, row)| start.starts_with(&row.start))
                .max_by_key(|(_, row)| row.start.len());
            let mut cause = message.cause.clone();
            let mut cure = message.cure.clone();
            if let Some((at, row)) = row {
                used[at] = true;
                for (said, own) in [(&row.cause, &mut cause), (&row.cure, &mut cure)] {
                    if !said.is_empty() {
                        said.clone_into(own);
                    }
                }
            }
            if cause == "-" {
                continue;
            }
            if cause.is_empty() || cure.is_empty() {
                writeln!(
                    lacking,
                    "{}: {}{}: {start}",
                    message.place,
                    if cause.is_empty() { "[cause] " } else { "" },
                    if cure.is_empty() { "[cure]" } else { "" },
                )
                .unwrap();
            }
            let shown = what_is_wrong(&message.text).replace('|', "\\|").replace('`', "'");
            let line = format!("| `{shown}` | {} | {} |\n", cell(&cause), cell(&cure));
            lines.insert(start.trim_matches('"').to_lowercase(), line);
        }
        assert!(!lines.is_empty(), "{}: no messages found", section.title);
        number += lines.len();
        write!(page, "\n## {}\n\n{}\n\n", section.title, wrapped(section.what)).unwrap();
        page.push_str("| message | cause | what to do |\n|---|---|---|\n");
        page.extend(lines.into_values());
    }
    for (row, used) in rows.iter().zip(&used) {
        if !used {
            writeln!(lacking, "rows.tsv: no message begins so any more: {}", row.start).unwrap();
        }
    }
    if lacking.is_empty() {
        assert!(number > 250, "{number} messages: the search for them is broken");
        Ok(page)
    } else {
        Err(lacking)
    }
}

/// A paragraph at 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if lines.last().unwrap().len() + word.len() >= 100 {
            lines.push(String::new());
        }
        let line = lines.last_mut().unwrap();
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n")
}

/// `PGSEAL_BLESS=1` writes the page anew.
#[test]
fn each_message_is_in_the_documentation() {
    let made = page().unwrap_or_else(|lacking| {
        panic!(
            "tests/pgseal-testkit/tests/messages/rows.tsv lacks causes or cures; add a row with the \
             start of the message, its cause, and what to do:\n{lacking}"
        )
    });
    let path = root().join("docs/troubleshooting.md");
    let doc = fs::read_to_string(&path).unwrap();
    let (before, rest) = doc.split_once(BEGIN).unwrap();
    let (listed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("PGSEAL_BLESS").is_some() {
        fs::write(&path, [before, BEGIN, &made, "\n", END, after].concat()).unwrap();
        return;
    }
    assert!(
        listed.trim() == made.trim(),
        "docs/troubleshooting.md is not what the code says: \
         PGSEAL_BLESS=1 cargo test -p pgseal-testkit --test messages"
    );
}
