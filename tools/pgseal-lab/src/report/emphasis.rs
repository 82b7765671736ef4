//! Makes the figures in a sentence bold.

use super::markup::escape;

/// Units that may follow a figure as a separate word.
const UNITS: [&str; 24] = [
    "%", "times", "GB/s", "MB/s", "kB/s", "B/s", "s", "ms", "us", "ns", "min", "h", "k/s", "M/s",
    "/s", "KiB", "MiB", "GiB", "TiB", "MB", "GB", "tps", "fold", "B",
];

/// HTML of a sentence in which `12.3 %`, `3.4 GB/s`, `800/s` and the like are bold.
pub fn emphasised(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let (unit, rest) = split_unit(next);
        if is_figure(word) && UNITS.contains(&unit) {
            out.push(format!("<b>{}&nbsp;{}</b>{}", escape(word), escape(unit), escape(rest)));
            at += 2;
            continue;
        }
        let (bare, rest) = split_unit(word);
        if bare.strip_suffix("/s").is_some_and(is_figure) {
            out.push(format!("<b>{}</b>{}", escape(bare), escape(rest)));
        } else {
            out.push(escape(word));
        }
        at += 1;
    }
    out.join(" ")
}

/// Splits a word from the punctuation after it.
fn split_unit(word: &str) -> (&str, &str) {
    let bare = word.trim_end_matches([',', '.', ';', ':', ')']);
    (bare, word.get(bare.len()..).unwrap_or_default())
}

fn is_figure(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_with_their_units_are_strong_and_nothing_else_is() {
        assert_eq!(
            emphasised("AES-256 runs at 3.4 GB/s, -14.4 % of 128 <bits>; 45/s."),
            "AES-256 runs at <b>3.4&nbsp;GB/s</b>, <b>-14.4&nbsp;%</b> of 128 &lt;bits&gt;; \
             <b>45/s</b>."
        );
    }
}
