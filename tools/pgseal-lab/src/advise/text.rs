//! The recommendations as text for a terminal.

use std::fmt::Write;

use super::Advice;
use crate::report::format::rounds;

const WIDTH: usize = 100;

/// The whole text.
pub fn text_of(advice: &Advice) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for source in &advice.sources {
        let _ = writeln!(
            out,
            "from {} (profile {}, {}, {})",
            source.experiment,
            source.profile,
            rounds(source.rounds),
            source.cpu_model
        );
    }
    for recommendation in &advice.recommendations {
        let title = recommendation.topic.title();
        let _ = writeln!(out, "\n{title} ({})", recommendation.basis.words());
        wrapped(&mut out, "  ", &recommendation.text);
        for reason in &recommendation.reasons {
            let source = if reason.source.is_empty() {
                String::new()
            } else {
                format!(" [{}]", reason.source)
            };
            wrapped(&mut out, "  * ", &format!("{}{source}", reason.text));
        }
    }
    if !advice.cautions.is_empty() {
        out.push_str("\nBefore you believe it\n");
        for caution in &advice.cautions {
            wrapped(&mut out, "  * ", caution);
        }
    }
    for (title, lines) in
        [("Lines for postgresql.conf", &advice.conf), ("Commands", &advice.commands)]
    {
        let _ = writeln!(out, "\n{title}");
        for line in lines {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

fn wrapped(out: &mut String, begin: &str, text: &str) {
    let indent = " ".repeat(begin.len());
    let mut line = begin.to_owned();
    for word in text.split_ascii_whitespace() {
        if line.len() + word.len() + 1 > WIDTH && line.trim() != "" && line != begin {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clone_from(&indent);
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
